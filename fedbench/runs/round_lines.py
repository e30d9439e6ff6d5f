"""The text of ``rounds.jsonl`` as a checked table, and the tables that were read lately."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from fedbench.core.trees import from_json
from fedbench.runs.facts import check_rounds, check_row

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

_KEPT = 2**28  # bytes of tables that are kept


def row_of(line: bytes) -> dict[str, Any]:
    """Return the content of a line, checked.

    Raises:
        ValueError: If it is not a line of a run.
    """
    try:
        row: dict[str, Any] = from_json(line)
    except RecursionError as error:
        raise ValueError("a line is nested too deeply") from error
    check_row(row)
    return row


def table_of(content: bytes) -> pd.DataFrame:
    """Return all rounds, a column per key in the order of their first appearance, checked.

    Numbers are those that ``json.loads`` reads, and null is NaN, or None if a key is null in all rounds.

    Raises:
        ValueError: If these are not the rounds of a run.
    """
    import pandas as pd

    if not content:
        raise ValueError("it is empty")
    columns = _of_numbers(content)
    if columns is None:
        columns = _of_any(content)
    check_rounds(columns)
    return pd.DataFrame(columns)


def _of_numbers(content: bytes) -> dict[str, np.ndarray] | None:
    """Return the columns of lines that have only finite numbers and null; None for all others."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.json

    lines = content.count(b"\n") + (not content.endswith(b"\n"))
    whole = pyarrow.json.ReadOptions(use_threads=False, block_size=len(content) + 1)  # columns have one type throughout
    try:
        table = pyarrow.json.read_json(pa.BufferReader(content), read_options=whole)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None  # which is read again, line by line, and then has a message with the fault
    kinds = {field.type for field in table.schema}
    if table.num_rows != lines or not kinds <= {pa.int64(), pa.float64(), pa.null()}:
        return None
    names, columns = table.column_names, table.columns
    return {
        n: c.to_numpy() if c.type != pa.null() else np.full(lines, None) for n, c in zip(names, columns, strict=True)
    }


def _of_any(content: bytes) -> dict[str, np.ndarray]:
    import pandas as pd

    rows = []
    for number, line in enumerate(content.splitlines(), 1):
        try:
            rows.append(row_of(line))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
    keys = dict.fromkeys(key for row in rows for key in row)
    return {k: pd.Series([row.get(k) for row in rows]).to_numpy() for k in keys}


class RecentTables:
    """Tables that were read lately.

    Args:
        most: Bytes of the tables that are kept; the one that was not used for longest goes first.
    """

    def __init__(self, most: int = _KEPT) -> None:
        self._most, self._held = most, 0
        self._tables: OrderedDict[Hashable, tuple[int, pd.DataFrame]] = OrderedDict()

    def get(self, key: Hashable, read: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        """Return the table of a key, which is read if it is not at hand; it must not be changed."""
        if key in self._tables:
            self._tables.move_to_end(key)
            return self._tables[key][1]
        table = read()
        self._tables[key] = size, _ = 8 * table.size, table
        self._held += size
        while self._held > self._most and len(self._tables) > 1:
            self._held -= self._tables.popitem(last=False)[1][0]
        return table

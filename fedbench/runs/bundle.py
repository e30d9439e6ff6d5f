"""Bundles: what a report needs of its runs, as compressed Parquet in the folder ``evidence`` of a published report.

A bundle has the same interface as a directory of runs. Of each run it keeps the configuration and the facts, some
rounds with all their keys (the last one among them), the curves and documents that the report has read, and the
per-client table of the last round. All numbers are kept in full precision, so that a report of a bundle has the same
bytes as the report that it was published with.

| file | content |
| --- | --- |
| ``runs.parquet`` | a row per run: its path, whether it is done, and JSON texts: ``config``, ``meta``, ``documents``, ``keys`` (of its rounds), ``curves`` (keys at all rounds), ``client_columns``; ``all_clients``: whether all rounds of its per-client table are kept |
| ``rounds.parquet`` | a row per kept round, with all keys; ``run`` is the number of the row in ``runs.parquet`` |
| ``curves.parquet`` | a row per evaluated round of the runs with curves |
| ``clients.parquet`` | a row per run, kept round and client |
| ``bundle.json`` | the format, the SHA-256 of all other files, and messages about runs that could not be read |
| ``plan.json``, ``labels/`` | as in a directory of runs, if the report uses them |
"""  # noqa: E501 (a table)

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fedbench.core.errors import RequestError
from fedbench.core.trees import from_json
from fedbench.runs.configs import config_of_json
from fedbench.runs.records import Fields
from fedbench.runs.store import ResultStore, Run, as_run

if TYPE_CHECKING:
    import pandas as pd

FOLDER = "evidence"
_MANIFEST = "bundle.json"
FORMAT = 1
_TABLES = ("runs", "rounds", "curves", "clients")
_COLUMNS = ["path", "done", "all_clients", "config", "meta", "documents", "keys", "curves", "client_columns"]
_MOST_RUNS, _MOST_VALUES = 1_000_000, 500_000_000  # of a bundle


class Stored(Protocol):
    """Runs of a directory or of a bundle; after an iteration, ``damaged`` has messages about unreadable runs."""

    root: Path
    damaged: list[str]

    @property
    def place(self) -> Path:
        """Directory of the plan and of the label counts."""

    def __iter__(self) -> Iterator[Run]:
        """Yield the runs."""


def stored(folder: Path) -> Stored:
    """Return the runs of a folder: those of its bundle if it has one, else those in directories below it.

    Raises:
        RequestError: If its bundle is damaged.
    """
    return Bundle(folder) if is_bundle(folder) else ResultStore(folder)


def is_bundle(folder: Path) -> bool:
    """Return whether a folder has a bundle, be it damaged."""
    return (folder / FOLDER / "runs.parquet").exists() or manifest(folder).exists()


def manifest(folder: Path) -> Path:
    """Return the file that lists the others."""
    return folder / FOLDER / _MANIFEST


class Bundle:
    """The runs of a bundle.

    Args:
        root: Directory of the published report.
        check: Whether all tables are read at once. Without it, each is read when a run asks for it, and what is wrong
            in it, other than its checksum, is found then.
        home: Directory below which the runs have their paths; None for ``root``.

    Attributes:
        files: The content of further files, such as the plan and the label counts, by their path in the bundle.

    Raises:
        RequestError: If a file is missing or is not the one that was written.
    """

    def __init__(self, root: Path, check: bool = True, home: Path | None = None) -> None:
        self.root = root
        self.home = root if home is None else home
        facts = self._facts()
        self.damaged: list[str] = list(facts["damaged"])
        contents = {name: self._content(name, digest) for name, digest in facts["files"].items()}
        with self.reading("its tables"):
            self._contents = {name: contents[f"{name}.parquet"] for name in _TABLES}
            runs = _read(self._contents.pop("runs"), _MOST_RUNS)
            # a table without rows has no columns
            self._runs: list[Fields] = runs.select(_COLUMNS).to_pylist() if len(runs) else []
        self.files = {name: content for name, content in contents.items() if not name.endswith(".parquet")}
        self._tables: dict[str, tuple[Any, dict[int, tuple[int, int]]]] = {}
        if check:
            self.check()

    @property
    def place(self) -> Path:
        """Directory of the plan and of the label counts."""
        return self.root / FOLDER

    def check(self) -> None:
        """Read all tables.

        Raises:
            RequestError: If one of them cannot be read.
        """
        for name in _TABLES[1:]:
            self._table(name)

    def __iter__(self) -> Iterator[Run]:
        for number in range(len(self._runs)):
            yield self.run(number)

    def run(self, number: int) -> Run:
        """Return the run in a row of ``runs.parquet``."""
        row = self._runs[number]
        try:
            path = self.home / row["path"]
            config, meta = config_of_json(row["config"]), from_json(row["meta"])
            return as_run(path, config, meta, BundledRecords(self, number, path, row))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise self._broken("runs.parquet", f"{str(row['path'])[:300]}: {error}") from error

    def finished(self) -> dict[str, tuple[int, str]]:
        """Return the rows of the finished runs and what became of them, ``done`` or ``diverged``, by their paths.

        The paths are those below the directory of runs.

        Raises:
            RequestError: If the facts of a run cannot be read.
        """
        rows = [(number, row) for number, row in enumerate(self._runs) if row["done"]]
        try:
            return {str(row["path"]): (number, str(from_json(row["meta"])["status"])) for number, row in rows}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._broken("runs.parquet", f"cannot be read: {error}") from error

    def part(self, name: str, number: int) -> Any:
        """Return the rows of a run in one of the tables.

        Raises:
            RequestError: If the table cannot be read.
        """
        table, places = self._table(name)
        return table.slice(*places.get(number, (0, 0)))

    def _table(self, name: str) -> tuple[Any, dict[int, tuple[int, int]]]:
        """Return a table, and the first row and the number of rows of every run in it."""
        if name not in self._tables:
            with self.reading("its tables"):
                table = _read(self._contents.pop(name), _MOST_VALUES)
                self._tables[name] = table, _places(table)
        return self._tables[name]

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Turn errors in reading a part of the bundle into one that names it and says what to do."""
        try:
            yield
        except (KeyError, ValueError, TypeError, OSError) as error:
            raise self._broken(name, f"cannot be read: {error}") from error

    def _facts(self) -> Fields:
        try:
            facts: Fields = from_json(manifest(self.root).read_text(encoding="utf-8"))
            if facts["format"] != FORMAT:
                raise self._broken(_MANIFEST, f"has format {facts['format']!r}, and this version reads {FORMAT}")
            if not isinstance(facts["files"], dict) or not isinstance(facts["damaged"], list):
                raise ValueError("files or damaged is not a list")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._broken(_MANIFEST, f"cannot be read: {error}") from error
        return facts

    def _content(self, name: str, digest: str) -> bytes:
        try:
            content = (self.place / name).read_bytes()
        except OSError as error:
            raise self._broken(name, f"cannot be read: {error}") from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise self._broken(name, f"is not the file that {_MANIFEST} was written for")
        return content

    def _broken(self, name: str, fault: str) -> RequestError:
        return RequestError(
            f"{self.place}: {name} {fault}; restore the folder from version control, or write it again with: "
            f"fedbench report RUNS --into {self.root}"
        )


def _read(content: bytes, most_rows: int) -> Any:
    """Return a table, unless it declares more rows or values than a report has: few bytes can stand for any number."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(pa.BufferReader(content))
    rows, columns = file.metadata.num_rows, file.metadata.num_columns
    if rows > most_rows or rows * columns > _MOST_VALUES:
        raise ValueError(f"it declares {rows} rows of {columns} columns; at most {most_rows} rows are read")
    table = file.read()
    table.validate(full=True)  # text in UTF-8, for example
    if len(table) and "run" in table.column_names and "round" not in table.column_names:
        raise ValueError("it has no column round")
    return table


def _places(table: Any) -> dict[int, tuple[int, int]]:
    """Return the first row and the number of rows of every run in a table whose rows are in the order of the runs.

    Without ``to_numpy``, which imports pandas: a plan needs neither.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(table):
        return {}
    column = table["run"].combine_chunks()
    if not pa.types.is_integer(column.type):
        raise ValueError(f"its column run has values of type {column.type}")
    runs = pc.run_end_encode(column, run_end_type=pa.int64())
    ends = runs.run_ends.to_pylist()
    lengths = (end - first for first, end in zip([0, *ends], ends, strict=False))
    return dict(zip(runs.values.to_pylist(), zip([0, *ends], lengths, strict=False), strict=True))


class BundledRecords:
    """The records of a run in a bundle."""

    def __init__(self, bundle: Bundle, number: int, path: Path, facts: Fields) -> None:
        self._bundle, self._number, self._path = bundle, number, path
        self._done: bool = facts["done"]
        self._all_clients: bool = facts["all_clients"]
        self._keys: list[str] = from_json(facts["keys"])
        self._curves: list[str] = from_json(facts["curves"])
        self._client_columns: list[str] | None = from_json(facts["client_columns"])
        self._documents: Fields = from_json(facts["documents"])

    @property
    def place(self) -> Path:
        """Directory of the published report."""
        return self._bundle.root

    @property
    def done(self) -> bool:
        """Whether the run is complete."""
        return self._done

    @property
    def begun(self) -> bool:
        """Whether a round is kept."""
        return bool(self._keys)

    @property
    def has_clients(self) -> bool:
        """Whether there is a per-client table."""
        return self._client_columns is not None

    def last(self) -> Fields:
        """Return the row of the last evaluated round."""
        return dict(self._rows[-1])

    def rows(self, rounds: Collection[int]) -> list[Fields]:
        """Return the rows of some rounds, if they are kept, and of the last one."""
        return [dict(row) for row in self._rows if row["round"] in rounds or row is self._rows[-1]]

    def table(self) -> pd.DataFrame:
        """Return the kept rounds."""
        import pandas as pd

        return pd.DataFrame(self._rows)

    @cached_property
    def _rows(self) -> list[Fields]:
        if not self._keys:
            return []
        table = self._bundle.part("rounds", self._number).select(self._keys)
        texts = {f.name for f in table.schema if f.metadata and f.metadata.get(b"json") == b"true"}
        return [
            {k: from_json(v) if k in texts and v is not None else v for k, v in row.items()}
            for row in table.to_pylist()
        ]

    def curves(self, names: Sequence[str]) -> pd.DataFrame:
        """Return these keys at all evaluated rounds.

        Raises:
            RequestError: If one of them was measured and is not kept.
        """
        import pandas as pd

        for name in self.lost(names):
            raise RequestError(
                f"{self._path}: {name} is kept at some rounds only; at all rounds the bundle has "
                f"{', '.join(self._curves[1:]) or 'nothing'}; report from the runs themselves"
            )
        wanted = [name for name in dict.fromkeys(("round", *names)) if name in self._curves]
        if not wanted:
            return pd.DataFrame({"round": []})
        frame: pd.DataFrame = self._bundle.part("curves", self._number).select(wanted).to_pandas()
        return frame

    def lost(self, names: Collection[str]) -> list[str]:
        """Return those of some keys that were measured and are not kept at all rounds."""
        return [name for name in names if name in self._keys and name not in self._curves]

    def clients(self) -> pd.DataFrame:
        """Return the per-client table of all rounds.

        Raises:
            RequestError: If only some rounds of it are kept.
        """
        if self.has_clients and not self._all_clients:
            raise RequestError(
                f"{self._path}: the bundle keeps the per-client table of some rounds only; report from the runs "
                "themselves"
            )
        return self._clients

    def clients_at(self, rounds: Collection[int] = ()) -> pd.DataFrame:
        """Return the per-client table of the last kept round and of others."""
        table = self._clients
        return table[table["round"].isin([table["round"].max(), *rounds])]

    def accuracy_of(self, client: int) -> float | None:
        """Return the accuracy of a client in the last kept round.

        Without pandas, whose import takes longer than a plan may.
        """
        table = self._client_rows
        if "accuracy" not in table.column_names:
            return None
        with self._bundle.reading("clients.parquet"):
            rounds, clients, accuracies = (table[k].to_pylist() for k in ("round", "client", "accuracy"))
            end = max((r for r in rounds if r is not None and not math.isnan(r)), default=None)
            rows = zip(rounds, clients, accuracies, strict=True)
            found = [math.nan if a is None else float(a) for r, c, a in rows if (r, c) == (end, client)]
        return None if not found or any(map(math.isnan, found)) else found[0]

    @property
    def _clients(self) -> pd.DataFrame:
        frame: pd.DataFrame = self._client_rows.to_pandas()
        return frame

    @property
    def _client_rows(self) -> Any:
        if self._client_columns is None:
            raise RequestError(f"{self._path}: the bundle has no per-client table of this run")
        return self._bundle.part("clients", self._number).select(self._client_columns)

    def document(self, name: str) -> Fields | None:
        """Return the document of a diagnostic."""
        found: Fields | None = self._documents.get(name)
        return found

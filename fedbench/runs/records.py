"""What a run has recorded: the files of its directory, each compared with its checksum before it is read."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fedbench.core.sealing import Seals, check, from_text
from fedbench.core.trees import from_json
from fedbench.runs.facts import check_clients, check_document
from fedbench.runs.round_lines import RecentTables, row_of, table_of

if TYPE_CHECKING:
    import pandas as pd

Fields = dict[str, Any]
_Stamp = tuple[int, int]  # size and time of a file
DONE = "DONE"  # written last
_READ = (".yaml", ".json", ".jsonl", ".parquet")  # of the files that a report reads; models are large
_END = 16384  # bytes of rounds.jsonl in which its last line is looked for first


def is_done(path: Path) -> bool:
    """Return whether the run in a directory is complete: trained to its last round, or diverged."""
    return (path / DONE).exists()


class DamagedRun(Exception):
    """A run's files cannot be read; the message gives the directory, the fault and the remedy.

    Args:
        message: The message.
        path: The run's directory.
    """

    def __init__(self, message: str, path: Path | None = None) -> None:
        super().__init__(message)
        self.path = path


def damaged(path: Path, fault: object) -> DamagedRun:
    """Return the error for a run in the directory ``path`` with a fault in its files."""
    if isinstance(fault, OSError) and fault.strerror and fault.filename:
        fault = f"{Path(fault.filename).name}: {fault.strerror}"  # its directory is named before
    return DamagedRun(f"{path}: {' '.join(str(fault).split())}; force=true trains it again", path)


class Records(Protocol):
    """What a run has recorded, wherever it is stored. Methods raise DamagedRun if a file cannot be read."""

    @property
    def place(self) -> Path:
        """The directory that exists: the run's own, or that of the published report that it is part of."""

    @property
    def done(self) -> bool:
        """Whether the run is complete: trained to its last round, or diverged."""

    @property
    def begun(self) -> bool:
        """Whether a round has been recorded."""

    @property
    def has_clients(self) -> bool:
        """Whether there is a per-client table."""

    def last(self) -> Fields:
        """Return the row of the last evaluated round."""

    def rows(self, rounds: Collection[int]) -> list[Fields]:
        """Return the rows of the last evaluated round and of those of ``rounds`` that are stored, in order."""

    def table(self) -> pd.DataFrame:
        """Return all stored rounds with all their keys; it must not be changed."""

    def curves(self, names: Sequence[str]) -> pd.DataFrame:
        """Return the column ``round`` and these keys at all evaluated rounds; keys never measured are left out."""

    def clients(self) -> pd.DataFrame:
        """Return the per-client table of all rounds that the run kept."""

    def clients_at(self, rounds: Collection[int] = ()) -> pd.DataFrame:
        """Return the per-client table of the last kept round, and of those of ``rounds`` that are stored."""

    def accuracy_of(self, client: int) -> float | None:
        """Return the accuracy of a client in the last kept round, from 0 to 1; None if it has none."""

    def document(self, name: str) -> Fields | None:
        """Return the document of a diagnostic; None if the run has none."""


class RunFolder:
    """The records in a run's own directory.

    Args:
        path: The directory.
        recent: Where tables that were read lately are kept.
    """

    def __init__(self, path: Path, recent: RecentTables | None = None) -> None:
        self.path = path
        self._recent = RecentTables() if recent is None else recent
        self._compared: dict[str, _Stamp] = {}  # files that had their checksums
        self._last: tuple[_Stamp, Fields] | None = None  # the last row, of rounds.jsonl as it was then

    @property
    def place(self) -> Path:
        """The run's directory."""
        return self.path

    @property
    def done(self) -> bool:
        """Whether the run is complete."""
        return is_done(self.path)

    @property
    def begun(self) -> bool:
        """Whether a round has been recorded."""
        return (self.path / "rounds.jsonl").exists()

    @property
    def has_clients(self) -> bool:
        """Whether there is a per-client table."""
        return (self.path / "clients.parquet").exists()

    @property
    def sealed(self) -> bool:
        """Whether DONE has checksums of the run's files."""
        return self.done and (self.path / DONE).stat().st_size > 0

    def verify(self, *names: str) -> None:
        """Compare files with their checksums in DONE; without names, all that have one.

        Raises:
            DamagedRun: If one of them is missing or has changed.
        """
        stamps = {n: self._stamp(n) for n in names if (self.path / n).exists()}
        new = [n for n in names if self._compared.get(n) != stamps.get(n, ())]
        if (names and not new) or not self.sealed:
            return
        sealed = self._seals()
        try:
            check(self.path, sealed, [n for n in new if n in sealed] if names else None)
            self._compared |= stamps
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise damaged(self.path, error) from error

    def _seals(self) -> Seals:
        """Return the checksums in DONE, by the name of the file."""
        try:
            sealed: Seals = from_text((self.path / DONE).read_text(encoding="utf-8"))["sealed"]
            return dict(sealed)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise damaged(self.path, error) from error

    def check(self) -> None:
        """Check what a report reads of a complete run: its checksums, or if it has none, that it can be read.

        Raises:
            DamagedRun: If something is missing, has changed or cannot be read.
        """
        if self.sealed:
            self.verify(*(name for name in self._seals() if Path(name).suffix in _READ))
        else:
            self.table()
            if self.has_clients:
                self.clients()

    def _stamp(self, name: str) -> _Stamp:
        facts = (self.path / name).stat()
        return facts.st_size, facts.st_mtime_ns

    def last(self) -> Fields:
        """Return the row of the last evaluated round."""
        with self._reading("rounds.jsonl") as file:
            stamp = self._stamp(file.name)
            if self._last is None or self._last[0] != stamp:
                self._last = stamp, row_of(_last_line(file))
            return dict(self._last[1])

    def rows(self, rounds: Collection[int]) -> list[Fields]:
        """Return the rows of some rounds and of the last one."""
        numbers = self.table()["round"].tolist()
        with self._reading("rounds.jsonl") as file:
            lines = file.read_bytes().splitlines()
            return [row_of(line) for n, line in zip(numbers, lines, strict=True) if n in rounds or n == numbers[-1]]

    def table(self) -> pd.DataFrame:
        """Return all evaluated rounds."""
        with self._reading("rounds.jsonl") as file:
            return self._recent.get((file, self._stamp(file.name)), lambda: table_of(file.read_bytes()))

    def curves(self, names: Sequence[str]) -> pd.DataFrame:
        """Return these keys at all evaluated rounds."""
        import pandas as pd

        table = self.table()
        return pd.DataFrame(
            {name: table[name].to_numpy() for name in dict.fromkeys(("round", *names)) if name in table}
        )

    def clients(self) -> pd.DataFrame:
        """Return the per-client table of the kept rounds."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        with self._reading("clients.parquet") as file:
            try:
                table: pd.DataFrame = pq.ParquetFile(file).read(use_threads=False).to_pandas()
            except (pa.ArrowException, MemoryError) as error:  # of a length that is damaged
                raise ValueError(str(error)) from error
            check_clients(table)
            return table

    def clients_at(self, rounds: Collection[int] = ()) -> pd.DataFrame:
        """Return the per-client table of the last kept round and of others."""
        import numpy as np

        table = self.clients()
        numbers = table["round"].to_numpy()
        kept = np.isin(numbers, [numbers.max(), *rounds])
        at: pd.DataFrame = table if kept.all() else table[kept]
        return at

    def accuracy_of(self, client: int) -> float | None:
        """Return the accuracy of a client in the last kept round."""
        table = self.clients_at()
        if "accuracy" not in table:
            return None
        found = table.loc[table["client"] == client, "accuracy"]
        return float(found.iloc[0]) if len(found) and found.notna().all() else None

    def document(self, name: str) -> Fields | None:
        """Return the document of a diagnostic."""
        if not (self.path / f"{name}.json").exists():
            return None
        with self._reading(f"{name}.json") as file:
            content: Fields = from_json(file.read_text(encoding="utf-8"))
            check_document(name, content)
            return content

    @contextmanager
    def _reading(self, name: str) -> Iterator[Path]:
        """Give the path of a file that has its checksum, and turn errors in reading it into those of a damaged run."""
        self.verify(name)
        path = self.path / name
        try:
            if path.exists() and not path.is_file():
                raise ValueError("it is not a file")
            yield path
        except (OSError, ValueError, RecursionError) as error:
            raise damaged(self.path, f"{name}: {error}") from error


def _last_line(file: Path) -> bytes:
    """Return the last line of a file; usually only its end is read."""
    with file.open("rb") as content:
        content.seek(max(0, content.seek(0, os.SEEK_END) - _END))
        lines = content.read().splitlines()
        if len(lines) < 2:  # it may begin further ahead
            content.seek(0)
            lines = content.read().splitlines()
    if not lines:
        raise ValueError("it is empty")
    return lines[-1]

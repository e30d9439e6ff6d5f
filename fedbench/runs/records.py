"""What a run has recorded: the files of its directory, each compared with its checksum before it is read."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fedbench.core.sealing import check, from_text

if TYPE_CHECKING:
    import pandas as pd

Fields = dict[str, Any]
DONE = "DONE"  # written last
_END = 16384  # bytes of rounds.jsonl in which its last line is looked for first


def is_done(path: Path) -> bool:
    """Return whether the run in a directory is complete: trained to its last round, or diverged."""
    return (path / DONE).exists()


class DamagedRun(Exception):
    """A run's files cannot be read; the message gives the directory, the fault and the remedy."""


def damaged(path: Path, fault: object) -> DamagedRun:
    """Return the error for a run in the directory ``path`` with a fault in its files."""
    return DamagedRun(f"{path}: {fault}; force=true trains it again")


class Records(Protocol):
    """What a run has recorded, wherever it is stored. Methods raise DamagedRun if a file cannot be read."""

    @property
    def done(self) -> bool:
        """Whether the run is complete: trained to its last round, or diverged."""

    @property
    def begun(self) -> bool:
        """Whether a round has been recorded."""

    @property
    def has_clients(self) -> bool:
        """Whether there is a per-client table."""

    def rows(self, which: slice = slice(None)) -> list[Fields]:
        """Return the stored rows of the evaluated rounds, in order, the last one among them."""

    def curves(self, names: Sequence[str]) -> pd.DataFrame:
        """Return the column ``round`` and these keys at all evaluated rounds; keys never measured are left out."""

    def clients(self) -> pd.DataFrame:
        """Return the per-client table of all rounds that the run kept."""

    def clients_at(self, rounds: Collection[int] = ()) -> pd.DataFrame:
        """Return the per-client table of the last kept round, and of those of ``rounds`` that are stored."""

    def document(self, name: str) -> Fields | None:
        """Return the document of a diagnostic; None if the run has none."""


class RunFolder:
    """The records in a run's own directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._compared: dict[str, tuple[int, int]] = {}  # files that had their checksums: size and time
        self._frame: tuple[tuple[int, int], pd.DataFrame] | None = None  # all rounds, of rounds.jsonl as it was then

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
        known = all(self._compared.get(n) == stamps.get(n, ()) for n in names)
        if (names and known) or not self.sealed:
            return
        try:
            sealed = from_text((self.path / DONE).read_text(encoding="utf-8"))["sealed"]
            check(self.path, sealed, [n for n in names if n in sealed] if names else None)
            self._compared |= stamps
        except (OSError, ValueError, KeyError) as error:
            raise damaged(self.path, error) from error

    def _stamp(self, name: str) -> tuple[int, int]:
        facts = (self.path / name).stat()
        return facts.st_size, facts.st_mtime_ns

    def rows(self, which: slice = slice(None)) -> list[Fields]:
        """Return the rows of the evaluated rounds."""
        self.verify("rounds.jsonl")
        try:
            rows: list[Fields] = [json.loads(line) for line in self._lines(which)[which]]
            if not rows:
                raise ValueError("it is empty")
        except (OSError, ValueError) as error:
            raise damaged(self.path, f"rounds.jsonl: {error}") from error
        return rows

    def _lines(self, which: slice) -> list[bytes]:
        """Return the lines of rounds.jsonl; if the last one is wanted, only those of the file's end."""
        with (self.path / "rounds.jsonl").open("rb") as file:
            if which == slice(-1, None):
                file.seek(max(0, file.seek(0, os.SEEK_END) - _END))
                if len(lines := file.read().splitlines()) > 1:
                    return lines
                file.seek(0)
            return file.read().splitlines()

    def curves(self, names: Sequence[str]) -> pd.DataFrame:
        """Return these keys at all evaluated rounds."""
        import pandas as pd

        file = self.path / "rounds.jsonl"
        stamp = self._stamp(file.name) if file.exists() else (0, 0)
        if self._frame is None or self._frame[0] != stamp:
            rows = self.rows()
            keys = dict.fromkeys(key for row in rows for key in row)
            self._frame = stamp, pd.DataFrame({k: [row.get(k) for row in rows] for k in keys})
        table = self._frame[1]
        return table[[name for name in dict.fromkeys(("round", *names)) if name in table]].copy()

    def clients(self) -> pd.DataFrame:
        """Return the per-client table of the kept rounds."""
        import pandas as pd

        self.verify("clients.parquet")
        try:
            return pd.read_parquet(self.path / "clients.parquet")
        except (OSError, ValueError) as error:
            raise damaged(self.path, f"clients.parquet: {error}") from error

    def clients_at(self, rounds: Collection[int] = ()) -> pd.DataFrame:
        """Return the per-client table of the last kept round and of others."""
        table = self.clients()
        at: pd.DataFrame = table[table["round"].isin([table["round"].max(), *rounds])]
        return at

    def document(self, name: str) -> Fields | None:
        """Return the document of a diagnostic."""
        self.verify(f"{name}.json")
        path = self.path / f"{name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

"""Checkpoints of a run, each with the checksums of all that it consists of.

A checkpoint counts once its manifest is in place, which is written last; until then the previous one does. Both are on
the disk, in the sense of fsync, before anything of the previous one is removed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.core.sealing import GrowingFile, Seals, check, from_text, seal, to_disk, to_text
from fedbench.core.writing import replace_file, writing

if TYPE_CHECKING:
    from torch import Tensor

_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Checkpoint:
    """Everything that resuming a run needs.

    Attributes:
        tensors: Tensors by name.
        progress: Numbers by name, among them ``round``.
        files: Files of tensors that are too large for memory, by name; saving copies them.
    """

    tensors: dict[str, Tensor]
    progress: dict[str, Any]
    files: dict[str, Path] = field(default_factory=dict)


class Checkpoints:
    """The checkpoints in a directory.

    Args:
        folder: The directory, created when it is needed. Per-client tables ``clients_<round>.parquet`` in it belong to
            the checkpoint.
        rounds: The file ``rounds.jsonl`` of the run, whose first lines belong to the checkpoint.
    """

    def __init__(self, folder: Path, rounds: Path) -> None:
        self.folder, self.rounds = folder, rounds
        self._growing, self._tables = GrowingFile(rounds), Seals()

    @property
    def tables(self) -> list[Path]:
        """The per-client tables that are kept until the run is done, in the order of the rounds."""
        return sorted(self.folder.glob("clients_*.parquet"))

    @property
    def exists(self) -> bool:
        """Whether there is a checkpoint."""
        return (self.folder / _MANIFEST).exists()

    @property
    def round(self) -> int | None:
        """The round of the checkpoint; None if there is none that can be read."""
        try:
            return int(self._manifest()["progress"]["round"])
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def adopt(self, other: Checkpoints, wanted: Callable[[bytes], bool]) -> int:
        """Copy another run's checkpoint to here, where there is none, and return its round.

        Args:
            other: The other run's checkpoint.
            wanted: Returns whether a line of its rounds is copied.

        Raises:
            OSError: If it cannot be copied.
            ValueError: If it has changed since it was written.
        """
        content = other._manifest()
        check(other.folder, content["sealed"])
        length, digest = content["rounds"]
        if seal(other.rounds, length)[1] != digest:
            raise ValueError("rounds.jsonl has changed since it was written: its checksum differs")
        with other.rounds.open("rb") as file:
            lines = [line for line in file.read(length).splitlines(keepends=True) if wanted(line)]
        for name in content["sealed"]:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(other.folder / name, self.folder / name)
        self.rounds.write_bytes(b"".join(lines))
        self._commit(content | {"rounds": seal(self.rounds)})
        return int(content["progress"]["round"])

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, then remove the previous one.

        Raises:
            NotWritten: If it cannot be written; the previous one still counts.
        """
        with writing(self.folder):
            files = sum(path.stat().st_size for path in checkpoint.files.values())
        with writing(self.folder, files + sum(v.nbytes for v in checkpoint.tensors.values())):
            self._save(checkpoint)

    def _save(self, checkpoint: Checkpoint) -> None:
        from fedbench.runs.tensors import save_tensors  # imports torch

        number = f"{checkpoint.progress['round']:09d}"
        state, beside = f"state_{number}.safetensors", self.folder / f"files_{number}"
        places = {name: f"{beside.name}/{path.name}" for name, path in checkpoint.files.items()}
        self.folder.mkdir(exist_ok=True)
        try:
            save_tensors(checkpoint.tensors, self.folder / state)
            if checkpoint.files:
                beside.mkdir(exist_ok=True)
                for name, path in checkpoint.files.items():
                    shutil.copyfile(path, self.folder / places[name])
            content = {
                "progress": checkpoint.progress,
                "state": state,
                "files": places,
                "sealed": self._sealed([state, *places.values()]) | self._sealed_tables(),
                "rounds": self._growing.seal(),
            }
            self._commit(content)
        except OSError:
            if self._state() != state:  # of a full disk, half of a checkpoint would take the last bytes
                (self.folder / state).unlink(missing_ok=True)
                shutil.rmtree(beside, ignore_errors=True)
            raise
        self._remove_all_but(state, beside.name)

    def load(self) -> Checkpoint | None:
        """Return the checkpoint and cut the run's files back to it; None if there is none.

        Raises:
            OSError: If a part of it cannot be read.
            NotWritten: If the run's files cannot be cut back.
            ValueError: If a part of it is missing or has changed.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        if not (self.folder / _MANIFEST).exists():
            if (self.folder / "state.safetensors").exists():
                raise ValueError("the checkpoint is of an earlier version of fedbench")
            return None
        content = self._manifest()
        check(self.folder, content["sealed"])
        length, digest = content["rounds"]
        if seal(self.rounds, length)[1] != digest:
            raise ValueError("rounds.jsonl has changed since it was written: its checksum differs")
        try:
            tensors = load_file(self.folder / content["state"])
        except SafetensorError as error:
            raise ValueError(f"{content['state']}: {error}") from error
        self._cut_back(length, content["sealed"])
        files = {name: self.folder / place for name, place in content["files"].items()}
        return Checkpoint(tensors, content["progress"], files)

    def _cut_back(self, length: int, sealed: Seals) -> None:
        """Remove what the run has recorded after the checkpoint."""
        with writing(self.rounds), self.rounds.open("ab") as file:
            file.truncate(length)
        with writing(self.folder):
            for table in self.tables:
                if table.name not in sealed:
                    table.unlink()

    def _manifest(self) -> dict[str, Any]:
        try:
            return from_text((self.folder / _MANIFEST).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{_MANIFEST}: {error}") from error

    def _state(self) -> str | None:
        """Return the name of the state that counts; None if there is none that can be read."""
        try:
            return str(self._manifest()["state"])
        except (OSError, ValueError):
            return None

    def _sealed(self, names: Iterable[str]) -> Seals:
        """Return the seals of files, which are on the disk after this."""
        found = {}
        for name in names:
            found[name] = seal(self.folder / name)
            to_disk(self.folder / name)
        return found

    def _sealed_tables(self) -> Seals:
        """Return the seals of the per-client tables, each of which is read once."""
        self._tables |= self._sealed(t.name for t in self.tables if t.name not in self._tables)
        return self._tables

    def _commit(self, content: dict[str, Any]) -> None:
        """Let a checkpoint count whose parts are on the disk."""
        if self.rounds.exists():
            to_disk(self.rounds)
        replace_file(self.folder / _MANIFEST, to_text(content), lasting=True)
        to_disk(self.folder)

    def _remove_all_but(self, state: str, beside: str) -> None:
        for old in self.folder.glob("state_*"):
            if old.name != state:
                old.unlink()
        for old in self.folder.glob("files_*"):
            if old.name != beside:
                shutil.rmtree(old)

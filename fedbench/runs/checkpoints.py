"""Checkpoints of a run, each with the checksums of its files.

A checkpoint counts once its manifest is in place, which is written last; until then the previous one does. Both are on
the disk, in the sense of fsync, before anything of the previous one is removed.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.core.files import (
    check_files,
    file_checksum,
    read_with_checksum,
    replace_file,
    to_disk,
    with_checksum,
    writing,
)

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
        rounds: The file ``rounds.jsonl`` of the run, whose first bytes belong to the checkpoint.
    """

    def __init__(self, folder: Path, rounds: Path) -> None:
        self.folder, self.rounds = folder, rounds
        self._tables: dict[str, Any] = {}  # checksums of the per-client tables, each of which is read once

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
        except (OSError, ValueError, LookupError):
            return None

    def adopt(self, other: Checkpoints) -> int:
        """Copy another run's checkpoint to here, where there is none, and return its round.

        Raises:
            OSError: If it cannot be copied.
            ValueError: If it has changed since it was written.
        """
        content = other._checked()
        for name in content["sealed"]:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(other.folder / name, self.folder / name)
        self.rounds.write_bytes(other._first_rounds(content))
        self._commit(content)
        return int(content["progress"]["round"])

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, then remove the previous one.

        Raises:
            NotWritten: If it cannot be written; the previous one still counts.
        """
        from fedbench.runs.tensors import save_tensors  # imports torch

        number = f"{checkpoint.progress['round']:09d}"
        state, beside = f"state_{number}.safetensors", f"files_{number}"
        places = {name: f"{beside}/{path.name}" for name, path in checkpoint.files.items()}
        with writing(self.folder):
            self.folder.mkdir(exist_ok=True)
            try:
                save_tensors(checkpoint.tensors, self.folder / state)
                for name, path in checkpoint.files.items():
                    (self.folder / beside).mkdir(exist_ok=True)
                    shutil.copyfile(path, self.folder / places[name])
                content = {
                    "progress": checkpoint.progress,
                    "state": state,
                    "files": places,
                    "sealed": self._checksums([state, *places.values()]) | self._checksums_of_tables(),
                    "rounds": self._lasting(self.rounds),
                }
            except OSError:  # of a full disk, half of a checkpoint would take the last bytes
                (self.folder / state).unlink(missing_ok=True)
                shutil.rmtree(self.folder / beside, ignore_errors=True)
                raise
            self._commit(content)
            self._remove_all_but(state, beside)

    def load(self) -> Checkpoint | None:
        """Return the checkpoint and cut the run's files back to it; None if there is none.

        Raises:
            OSError: If a part of it cannot be read.
            NotWritten: If the run's files cannot be cut back.
            ValueError: If a part of it is missing or has changed.
        """
        from safetensors.torch import load_file

        if not self.exists:
            return None
        content = self._checked()
        kept = self._first_rounds(content)
        tensors = load_file(self.folder / content["state"])
        with writing(self.rounds), self.rounds.open("ab") as file:
            file.truncate(len(kept))
        with writing(self.folder):
            for table in self.tables:
                if table.name not in content["sealed"]:
                    table.unlink()
        files = {name: self.folder / place for name, place in content["files"].items()}
        return Checkpoint(tensors, content["progress"], files)

    def _manifest(self) -> dict[str, Any]:
        return read_with_checksum(self.folder / _MANIFEST)

    def _checked(self) -> dict[str, Any]:
        """Return the manifest of a checkpoint whose files are as they were written."""
        content = self._manifest()
        check_files(self.folder, content["sealed"])
        return content

    def _first_rounds(self, content: dict[str, Any]) -> bytes:
        """Return what ``rounds.jsonl`` contained when the checkpoint was written."""
        length, digest = content["rounds"]
        found = self.rounds.read_bytes()[:length] if length else b""
        if hashlib.sha256(found).hexdigest() != digest:
            raise ValueError("rounds.jsonl has changed since it was written: its checksum differs")
        return found

    def _lasting(self, path: Path) -> list[Any]:
        """Return the checksum of a file that is on the disk after this."""
        to_disk(path)
        return file_checksum(path)

    def _checksums(self, names: list[str]) -> dict[str, Any]:
        return {name: self._lasting(self.folder / name) for name in names}

    def _checksums_of_tables(self) -> dict[str, Any]:
        self._tables |= self._checksums([t.name for t in self.tables if t.name not in self._tables])
        return self._tables

    def _commit(self, content: dict[str, Any]) -> None:
        """Let a checkpoint count whose parts are on the disk."""
        replace_file(self.folder / _MANIFEST, with_checksum(content), lasting=True)
        to_disk(self.folder)

    def _remove_all_but(self, state: str, beside: str) -> None:
        for old in self.folder.glob("state_*"):
            if old.name != state:
                old.unlink()
        for old in self.folder.glob("files_*"):
            if old.name != beside:
                shutil.rmtree(old)

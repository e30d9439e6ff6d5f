"""Files of a run, written during training.

A run can be read without the code that created it. Only ``rounds.jsonl`` grows in place; a resumed
run truncates it to the length in the checkpoint. All other files are replaced. A checkpoint is
valid once its manifest exists, and a run is complete once DONE exists. Both files are written last,
contain the checksums of all files that belong to them, and are flushed to disk with fsync before
anything older is removed.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from filelock import BaseFileLock
from pydantic_core import to_json
from safetensors import SafetensorError
from safetensors.numpy import save_file
from safetensors.torch import load_file
from torch import Tensor

from fedbench.core.atomic_files import (
    NotWritten,
    replace_file,
    replacing,
    to_disk,
    waiting_lock,
    writing,
)
from fedbench.core.checksums import file_checksum, with_checksum
from fedbench.runs.run import (
    CHECKPOINT,
    CLIENT_STATES,
    DONE,
    LOCK,
    MANIFEST,
    STATE,
    DamagedRun,
    Fields,
    checked_checkpoint,
    is_done,
)

_FILES = (
    "config.yaml",
    "rounds.jsonl",
    "clients.parquet",
    "model.safetensors",
    "personal.safetensors",
)


class Recorder:
    """Writer of one run and its checkpoints.

    Methods raise NotWritten if a file cannot be written or if another process may be working on the
    run.

    Args:
        path: The run's directory, created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.checkpoint = path / CHECKPOINT
        self.rounds = path / "rounds.jsonl"
        self.states = self.checkpoint / CLIENT_STATES
        # checksums of the per-client tables of the last checkpoint
        self._tables: dict[str, Any] = {}
        self._length = 0  # length of rounds.jsonl in bytes
        self._lock: BaseFileLock | None = None
        self._lock_file: os.stat_result | None = None

    def lock(self, wait: bool = True) -> None:
        """Lock the run against other processes until ``close``.

        Unfinished files of a killed process are removed.

        Args:
            wait: Whether to wait for another process that is working on the run.

        Raises:
            Timeout: If another process is working on the run and ``wait`` is false.
        """
        lock_file = self.path / LOCK
        self._lock = waiting_lock(lock_file, f"working in {self.path}", wait).lock
        self._lock_file = lock_file.stat()
        with writing(self.path):
            for pattern in ("*.part", ".tmp*"):
                for unfinished in self.path.rglob(pattern):
                    unfinished.unlink()

    def close(self) -> None:
        """Release the lock, so that other processes can work on the run."""
        if is_done(self.path):  # a waiting process creates the lock file again, and finds DONE
            (self.path / LOCK).unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.release()

    def check_lock(self) -> None:
        """Refuse to write if another process may be working on the run.

        Raises:
            NotWritten: If the lock file has been removed or replaced.
        """
        if self._lock_file is None:
            return
        file = self.path / LOCK
        if file.exists() and os.path.samestat(file.stat(), self._lock_file):
            return
        message = "its .lock was removed, and another process may have it"
        raise NotWritten(self.path, OSError(errno.EBUSY, message))

    def clear(self) -> None:
        """Remove the files of an earlier run."""
        with self._writing(self.path):
            (self.path / DONE).unlink(missing_ok=True)
            for name in _FILES:
                (self.path / name).unlink(missing_ok=True)
            for document in self.path.glob("*.json"):
                document.unlink()
            shutil.rmtree(self.checkpoint, ignore_errors=True)
            shutil.rmtree(self.path / STATE, ignore_errors=True)
        self._tables = {}
        self._length = 0

    def begin(self, config: Fields, meta: Fields) -> None:
        """Write the resolved configuration and the initial facts of the run."""
        self.check_lock()
        text = yaml.safe_dump(config, sort_keys=False)
        replace_file(self.path / "config.yaml", text, lasting=True)
        self.write_meta(meta)

    def write_meta(self, meta: Fields) -> None:
        """Write the facts of the run to ``meta.json``."""
        self.check_lock()
        content = to_json(meta, indent=2, inf_nan_mode="null") + b"\n"
        replace_file(self.path / "meta.json", content, lasting=True)

    def append(self, row: Fields) -> None:
        """Append a line to ``rounds.jsonl``.

        Numbers that JSON cannot represent (NaN, infinities) become null.
        """
        line = to_json(row, inf_nan_mode="null") + b"\n"
        with self._writing(self.rounds), self.rounds.open("ab") as file:
            self._check_rounds(file.tell())
            self._length += file.write(line)

    def keep_clients(
        self,
        round: int,
        columns: Mapping[str, Any],
    ) -> None:
        """Store the per-client table of a round with the checkpoint until the run is done."""
        with self._writing(self.checkpoint):
            self.checkpoint.mkdir(exist_ok=True)
        table = pd.DataFrame({"round": round, **columns})
        replace_file(
            self.checkpoint / f"clients_{round:09d}.parquet", table.to_parquet(index=False)
        )

    def save(
        self,
        tensors: Mapping[str, Tensor],
        progress: Fields,
    ) -> None:
        """Write a checkpoint, then remove the previous one, which is valid until then.

        Args:
            tensors: Tensors needed to resume the run.
            progress: Numbers needed to resume the run, including ``round``.
        """
        state = self.checkpoint / f"round_{progress['round']:09d}.safetensors"
        with self._writing(self.checkpoint):
            self.checkpoint.mkdir(exist_ok=True)
            save_tensors(tensors, state)
            to_disk(self.rounds)
            tables = self.checkpoint.glob("clients_*")
            self._tables |= _on_disk(table for table in tables if table.name not in self._tables)
            manifest = {
                "progress": progress,
                "rounds": file_checksum(self.rounds),
                "state": state.name,
                "sealed": self._tables | _on_disk([state]),
            }
            replace_file(self.checkpoint / MANIFEST, with_checksum(manifest), lasting=True)
            to_disk(self.checkpoint)
            for old in self.checkpoint.glob("round_*"):
                if old != state:
                    old.unlink()

    def load(self) -> tuple[dict[str, Tensor], Fields] | None:
        """Return the checkpoint of an unfinished run, and cut the run's files back to it.

        The result is None if there is no checkpoint.

        Raises:
            DamagedRun: If a part of the checkpoint, or the part of rounds.jsonl that existed when
                the checkpoint was written, is missing or has changed.
        """
        if not (self.checkpoint / MANIFEST).exists():
            return None
        try:
            manifest = checked_checkpoint(self.checkpoint)
            length, digest = manifest["rounds"]
            rounds = self.rounds.read_bytes()[:length]
            if hashlib.sha256(rounds).hexdigest() != digest:
                raise ValueError(
                    "rounds.jsonl has changed since it was written: its checksum differs"
                )
            stored = load_file(self.checkpoint / manifest["state"])
            # in memory of their own: products of matrices can depend on the alignment by rounding
            tensors = {name: v.clone() for name, v in stored.items()}
        except (OSError, ValueError) as error:
            raise DamagedRun(f"{self.path}: {error}") from error
        self._cut_back(length, manifest["sealed"])
        return tensors, manifest["progress"]

    def _cut_back(self, length: int, sealed: Fields) -> None:
        """Remove the rounds and tables that are not in the checkpoint."""
        with writing(self.rounds), self.rounds.open("ab") as file:
            self._length = file.truncate(length)
        self._tables = {}
        for name, checksum in sealed.items():
            if name.startswith("clients_"):
                self._tables[name] = checksum
        with writing(self.checkpoint):
            for table in self.checkpoint.glob("clients_*"):
                if table.name not in self._tables:
                    table.unlink()

    def adopt(self, other: Path, facts: Fields) -> int:
        """Start a run without a checkpoint from the state of another run, and return its round.

        Args:
            other: The other run's directory.
            facts: Entries to add to ``progress``.

        Raises:
            OSError: If the state cannot be copied.
            ValueError: If the state has changed since it was written.
        """
        manifest = checked_checkpoint(other / STATE)
        shutil.copyfile(other / "rounds.jsonl", self.rounds)
        shutil.copytree(other / STATE, self.checkpoint)
        manifest["progress"] |= facts
        replace_file(self.checkpoint / MANIFEST, with_checksum(manifest))
        return int(manifest["progress"]["round"])

    def finish(
        self,
        models: Mapping[str, Mapping[str, Tensor]],
        documents: Mapping[str, Fields],
        meta: Fields,
    ) -> None:
        """Write the last files of a finished run, and DONE with the checksums of all its files.

        Args:
            models: Parameters by name for each file ``<name>.safetensors``.
            documents: Documents of diagnostics for each file ``<name>.json``.
            meta: The final facts.
        """
        self.check_lock()
        for name, tensors in models.items():
            with replacing(self.path / f"{name}.safetensors") as part:
                save_tensors(tensors, part)
        if tables := sorted(self.checkpoint.glob("clients_*")):
            table = pd.concat([pd.read_parquet(table) for table in tables])
            replace_file(self.path / "clients.parquet", table.to_parquet(index=False))
        for name, document in documents.items():
            content = to_json(document, inf_nan_mode="null") + b"\n"
            replace_file(self.path / f"{name}.json", content)
        self.write_meta(meta)

        with writing(self.path):
            names = (*_FILES, "meta.json", *(f"{name}.json" for name in documents))
            files = [self.path / name for name in names]
            sealed = _on_disk(file for file in files if file.exists())
            self.check_lock()
            self._check_rounds(sealed[self.rounds.name][0])
            replace_file(self.path / DONE, with_checksum({"sealed": sealed}), lasting=True)
            to_disk(self.path)

    @contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        """Check the lock, and turn write errors inside this block into ``NotWritten``."""
        self.check_lock()
        with writing(path):
            yield

    def _check_rounds(self, length: int) -> None:
        """Refuse to write if the length of rounds.jsonl has changed since this process wrote it."""
        if length != self._length:
            raise OSError(errno.EBUSY, "another process has written to rounds.jsonl")


class Reader(Recorder):
    """The recorder of a process that shares a run whose files another process writes.

    Args:
        path: The run's directory.
        rank: Rank of the process.
    """

    def __init__(self, path: Path, rank: int) -> None:
        super().__init__(path)
        self.states = self.states / str(rank)

    def _ignore(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing instead of writing or removing files."""

    lock = close = clear = begin = write_meta = append = keep_clients = save = finish = _ignore
    _cut_back = _ignore


def open_recorder(
    path: Path,
    rank: int = 0,
    wait: bool = True,
) -> Recorder:
    """Return the recorder of a run, which locks the run's directory until it is closed.

    Args:
        path: The run's directory.
        rank: Rank of this process among the processes that share the run; only rank 0 writes.
        wait: Whether to wait for another command that is working on the run.

    Raises:
        Timeout: If another command is working on the run and ``wait`` is false.
    """
    recorder = Reader(path, rank) if rank else Recorder(path)
    recorder.lock(wait)
    return recorder


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors in the safetensors format; they may share memory and be on any device.

    Raises:
        OSError: If the file cannot be written.
    """
    arrays = {}
    for name, v in tensors.items():
        arrays[name] = v.contiguous().numpy(force=True)
    try:
        save_file(arrays, path)
    except SafetensorError as error:
        message = str(error)
        full = "StorageFull" in message or "No space" in message
        raise OSError(errno.ENOSPC if full else errno.EIO, message) from error
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)  # safetensors makes the file readable by its owner only


def _on_disk(files: Iterable[Path]) -> dict[str, Any]:
    """Flush files to the disk, and return their checksums by name."""
    checksums = {}
    for file in files:
        to_disk(file)
        checksums[file.name] = file_checksum(file)
    return checksums

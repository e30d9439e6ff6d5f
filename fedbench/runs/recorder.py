"""Writes a run as it happens; it is complete when DONE exists, and readable without the code that made it.

Only ``rounds.jsonl`` grows in place; a resumed run cuts it back to its checkpoint. All other files are replaced. A
checkpoint counts once its manifest is in place, as a run does once DONE is: both are written last, have the checksums
of all files that belong to them, and are on the disk, in the sense of fsync, before anything older is removed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, schedule

import fedbench
from fedbench.config.targets import user_folder
from fedbench.core.atomic_files import NotWritten, replace_file, replacing, to_disk, writing
from fedbench.core.checksums import file_checksum, with_checksum
from fedbench.runs.run import CHECKPOINT, DONE, MANIFEST, STATE, DamagedRun, Fields, checked_checkpoint

_RECORDED = ("torch", "numpy", "hydra-core", "omegaconf", "pandas", "safetensors")  # versions
_FILES = ("config.yaml", "rounds.jsonl", "clients.parquet", "model.safetensors", "personal.safetensors")


class Recorder:
    """Writes one run and its checkpoints.

    Methods raise NotWritten if a file cannot be written, or if another process may be working on the run.

    Args:
        path: The run's directory, created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path, self.folder, self.rounds = path, path / CHECKPOINT, path / "rounds.jsonl"
        self.states = self.folder / "client_states"
        self._tables: dict[str, Any] = {}  # checksums of the per-client tables of the last checkpoint
        self._length = 0  # bytes of rounds.jsonl
        self._lock: tuple[Path, os.stat_result] | None = None

    def guard(self, lock: Path) -> None:
        """Write only as long as the file of a lock, which is held now, is neither removed nor replaced.

        Files that a killed process left unfinished are removed.
        """
        self._lock = lock, lock.stat()
        with writing(self.path):
            for unfinished in (*self.path.rglob("*.part"), *self.path.rglob(".tmp*")):
                unfinished.unlink()

    def check_lock(self) -> None:
        """Refuse to write if another process may be working on the run.

        Raises:
            NotWritten: If the file of the lock has been removed or replaced.
        """
        if self._lock is None:
            return
        file, held = self._lock
        if not file.exists() or not os.path.samestat(file.stat(), held):
            raise NotWritten(self.path, OSError(errno.EBUSY, "its .lock was removed, and another process may have it"))

    def _check_rounds(self, length: int) -> None:
        """Refuse to write if rounds.jsonl has another length than this process has left it with."""
        if length != self._length:
            raise OSError(errno.EBUSY, "another process has written to rounds.jsonl")

    def clear(self) -> None:
        """Remove the files of an earlier run."""
        self.check_lock()
        with writing(self.path):
            for file in (self.path / DONE, *self.path.glob("*.json"), *(self.path / name for name in _FILES)):
                file.unlink(missing_ok=True)
            for folder in (self.folder, self.path / STATE):
                shutil.rmtree(folder, ignore_errors=True)
        self._tables, self._length = {}, 0

    def begin(self, config: Fields, meta: Fields) -> None:
        """Write the resolved configuration and the first facts of the run."""
        self.check_lock()
        replace_file(self.path / "config.yaml", yaml.safe_dump(config, sort_keys=False), lasting=True)
        self.write_meta(meta)

    def write_meta(self, meta: Fields) -> None:
        """Write ``meta.json``, the facts of the run."""
        self.check_lock()
        replace_file(self.path / "meta.json", to_json(meta, indent=2) + "\n", lasting=True)

    def append(self, row: Fields) -> None:
        """Append a line to ``rounds.jsonl``."""
        self.check_lock()
        with writing(self.rounds), self.rounds.open("ab") as file:
            self._check_rounds(file.tell())
            self._length += file.write(to_json(row).encode() + b"\n")

    def keep_clients(self, round: int, columns: Mapping[str, Any]) -> None:
        """Keep the per-client table of a round with the checkpoint until the run is done."""
        self.check_lock()
        with writing(self.folder):
            self.folder.mkdir(exist_ok=True)
        content = pd.DataFrame({"round": round, **columns}).to_parquet(index=False)
        replace_file(self.folder / f"clients_{round:09d}.parquet", content)

    def save(self, tensors: Mapping[str, Tensor], progress: Fields) -> None:
        """Write a checkpoint, then remove the previous one, which counts until then.

        Args:
            tensors: The tensors that resuming the run needs.
            progress: The numbers that it needs, among them ``round``.
        """
        self.check_lock()
        state = self.folder / f"round_{progress['round']:09d}.safetensors"
        with writing(self.folder):
            self.folder.mkdir(exist_ok=True)
            save_tensors(tensors, state)
            to_disk(self.rounds)
            new_tables = [table for table in self.folder.glob("clients_*") if table.name not in self._tables]
            self._tables |= _on_disk(new_tables)
            sealed = {"state": state.name, "sealed": self._tables | _on_disk([state])}
            content = {"progress": progress, "rounds": file_checksum(self.rounds), **sealed}
            replace_file(self.folder / MANIFEST, with_checksum(content), lasting=True)
            to_disk(self.folder)
            for old in self.folder.glob("round_*"):
                if old != state:
                    old.unlink()

    def load(self, cut: bool = True) -> tuple[dict[str, Tensor], Fields] | None:
        """Return the checkpoint of an unfinished run and cut its files back to it; None if there is no checkpoint.

        Args:
            cut: Whether the files are cut back.

        Raises:
            DamagedRun: If a part of the checkpoint, or what rounds.jsonl had when it was written, is missing or has
                changed.
        """
        if not (self.folder / MANIFEST).exists():
            return None
        try:
            content = checked_checkpoint(self.folder)
            length, digest = content["rounds"]
            if hashlib.sha256(self.rounds.read_bytes()[:length]).hexdigest() != digest:
                raise ValueError("rounds.jsonl has changed since it was written: its checksum differs")
            tensors = load_file(self.folder / content["state"])
        except (OSError, ValueError) as error:
            raise DamagedRun(f"{self.path}: {error}") from error
        if not cut:
            return tensors, content["progress"]
        with writing(self.rounds), self.rounds.open("ab") as file:
            self._length = file.truncate(length)
        self._tables = {name: content["sealed"][name] for name in content["sealed"] if name.startswith("clients_")}
        with writing(self.folder):
            for table in self.folder.glob("clients_*"):
                if table.name not in self._tables:
                    table.unlink()
        return tensors, content["progress"]

    def adopt(self, other: Path, facts: Fields) -> int:
        """Begin with the state that another run has kept, where there is no checkpoint, and return its round.

        Args:
            other: The other run's directory.
            facts: What is added to ``progress``.

        Raises:
            OSError: If it cannot be copied.
            ValueError: If it has changed since it was written.
        """
        content = checked_checkpoint(other / STATE)
        shutil.copyfile(other / "rounds.jsonl", self.rounds)
        shutil.copytree(other / STATE, self.folder)
        content["progress"] |= facts
        replace_file(self.folder / MANIFEST, with_checksum(content))
        return int(content["progress"]["round"])

    def finish(
        self,
        model: Mapping[str, Tensor],
        personal: Mapping[str, Tensor] | None,
        documents: Mapping[str, Fields],
        meta: Fields,
    ) -> None:
        """Write everything that a finished run leaves, and last DONE with the checksums of all its files.

        Args:
            model: The global model by the names of its parameters.
            personal: The clients' own models [N, ...], likewise; None if clients are judged on the global one.
            documents: The documents of diagnostics, each for a file ``<name>.json``.
            meta: The final facts.
        """
        self.check_lock()
        for name, tensors in (("model", model), ("personal", personal)):
            if tensors is not None:
                with replacing(self.path / f"{name}.safetensors") as part:
                    save_tensors(tensors, part)
        if tables := sorted(self.folder.glob("clients_*")):
            content = pd.concat([pd.read_parquet(table) for table in tables]).to_parquet(index=False)
            replace_file(self.path / "clients.parquet", content)
        for name, document in documents.items():
            replace_file(self.path / f"{name}.json", to_json(document) + "\n")
        self.write_meta(meta)
        with writing(self.path):
            names = (*_FILES, "meta.json", *(f"{name}.json" for name in documents))
            files = [self.path / name for name in names if (self.path / name).exists()]
            sealed = _on_disk(files)
            self.check_lock()
            self._check_rounds(sealed[self.rounds.name][0])
            replace_file(self.path / DONE, with_checksum({"sealed": sealed}), lasting=True)
            to_disk(self.path)


class Reader(Recorder):
    """The recorder of a process that shares the work on a run whose files another one writes.

    Args:
        path: The run's directory.
        number: Number of the process.
    """

    def __init__(self, path: Path, number: int) -> None:
        super().__init__(path)
        self.states = self.states / str(number)

    def load(self, cut: bool = False) -> tuple[dict[str, Tensor], Fields] | None:
        """Return the checkpoint of an unfinished run; None if there is none."""
        return super().load(cut)

    def _nothing(self, *args: Any, **kwargs: Any) -> None:
        """Write and remove nothing."""

    clear = begin = write_meta = append = keep_clients = save = finish = _nothing


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors, which may share memory and be on any device, in the safetensors format.

    Raises:
        OSError: If the file cannot be written.
    """
    written: dict[str, Tensor] = {}
    memory: set[int] = set()
    for name, v in tensors.items():
        place = v.untyped_storage().data_ptr()  # the format refuses tensors that share memory
        written[name] = v.detach().clone() if place in memory else v.detach().contiguous()
        memory.add(place)
    try:
        save_file(written, path)
        os.umask(mask := os.umask(0))
        path.chmod(0o666 & ~mask)  # safetensors lets its owner alone read it
    except SafetensorError as error:
        full = "StorageFull" in str(error) or "No space" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error


def to_json(value: Mapping[str, Any], indent: int | None = None) -> str:
    """Return JSON text; numbers that JSON cannot express (NaN, infinities) become null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list | tuple) else value


def _on_disk(files: Iterable[Path]) -> dict[str, Any]:
    """Return the checksums of files, all of which are on the disk after this."""
    found = {}
    for file in files:
        to_disk(file)
        found[file.name] = file_checksum(file)
    return found


# ---- the software and hardware of a run


def utc_now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def environment(device: torch.device) -> dict[str, Any]:
    """Return versions, the device, and the commit of the checkout that fedbench runs from; None if it is installed.

    With a user's own config directory in a repository, also the commit of that.
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    versions = {"fedbench": fedbench.__version__, "python": platform.python_version()}
    versions |= {name: version(name) for name in _RECORDED}
    root, own = Path(fedbench.__file__).resolve().parent.parent, user_folder.get()
    # without .git it is installed; a repository around it would be another project's
    head, dirty = _commit(root, "no") if (root / ".git").exists() else (None, None)
    own_head, changed = _commit(own, "all") if own else (None, None)
    return {
        "versions": versions,
        "git_commit": head,
        "git_dirty": dirty,
        **({"own_commit": f"{own_head}{' with changes' if changed else ''}"} if own_head else {}),
        "device": str(device),
        "device_name": name,
        "platform": platform.platform(),
    }


@cache  # that of this process, whatever happens in the checkout later
def _commit(folder: Path, untracked: str) -> tuple[str | None, bool | None]:
    """Return the commit of a directory and whether its files have changed, with untracked ones ``all`` or ``no``."""
    git = ["git", "-C", str(folder)]
    try:
        head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True, stderr=subprocess.DEVNULL).strip()
        changes = subprocess.check_output([*git, "status", "--porcelain", f"--untracked-files={untracked}", "--", "."])
    except (OSError, subprocess.CalledProcessError):
        return None, None
    return head, bool(changes)


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak memory in bytes: of the device, or on a CPU of the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # kilobytes on Linux


@contextmanager
def traced(path: Path, device: torch.device) -> Iterator[Callable[[], None]]:
    """Trace the third and the fourth of the steps in this block, and print the ten most expensive operations.

    Args:
        path: File of the trace, in the format of chrome://tracing and Perfetto.
        device: The device whose operations are traced in addition to the host's.

    Yields:
        A function to be called after every step.
    """

    def write(p: profile) -> None:
        p.export_chrome_trace(str(path))
        table = p.key_averages().table(sort_by="self_cpu_time_total", row_limit=10, max_name_column_width=40)
        print(f"{table}\ntrace: {path}", file=sys.stderr)

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    plan = schedule(wait=1, warmup=1, active=2, repeat=1)  # the first step is the initial model
    with profile(activities=activities, schedule=plan, on_trace_ready=write) as p:
        yield p.step

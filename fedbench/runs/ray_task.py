"""A run in a task of a Ray cluster: what it gets, what it sends while it goes on, and what it leaves."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fedbench
from fedbench.config.schema import RunConfig
from fedbench.core.atomic_files import replace_file, to_disk
from fedbench.core.errors import RequestError
from fedbench.runs.pool import RunBatch, RunResult, execute
from fedbench.runs.process import answered_by, raise_interrupted
from fedbench.runs.progress import hidden
from fedbench.runs.run import CHECKPOINT, DONE, LOCK, MANIFEST, NODE

_BEAT = 2.0  # seconds between two messages of a run; one a round would be thousands a second for small models
_MANIFEST = f"{CHECKPOINT}/{MANIFEST}"
_AT_HOME = (LOCK, NODE, "client_states")  # of one machine, and the memory of one process
Files = dict[str, bytes]  # of a run's directory, by their paths in it
Key = tuple[int, int]  # the number of a run and that of the attempt at it


@dataclass(frozen=True)
class Sent:
    """What all tasks get.

    Attributes:
        runs: What they need to know of all runs.
        cores: Number of cores of a run.
        versions: What a node must have in the same version.
        folder: The working directory, which relative paths refer to; nodes without it use their own.
        environment: Variables that configurations may refer to.
    """

    runs: RunBatch
    cores: int
    versions: tuple[str, ...]
    folder: str
    environment: dict[str, str]


def sent(runs: RunBatch, cores: int) -> Sent:
    """Return what all tasks get of this process."""
    kept = {k: v for k, v in os.environ.items() if k.startswith(("FEDBENCH_", "OMP_", "MKL_"))}
    return Sent(replace(runs, overrides=()), cores, _versions(), str(Path.cwd()), kept)


def _versions() -> tuple[str, ...]:
    import torch  # late: a driver that finds all runs done does without it

    return f"fedbench {fedbench.__version__}", f"Python {sys.version.split()[0]}", f"torch {torch.__version__}"


class Mailbox:
    """What tasks have sent, on the node of the process that reads it."""

    def __init__(self) -> None:
        self._rounds: dict[Key, tuple[int, str]] = {}
        self._saved: dict[Key, tuple[Any, ...]] = {}

    def send(self, key: Key, round: int, node: str, saved: tuple[Any, ...]) -> None:
        """Take how far an attempt is, on which node, and if there is a new checkpoint a reference to its files.

        The files stay on the node that has them until they are read: those of a thousand runs would not fit here.
        """
        self._rounds[key] = round, node
        if saved:
            self._saved[key] = saved  # the one before it is superseded

    def take(self) -> tuple[dict[Key, tuple[int, str]], dict[Key, tuple[Any, ...]]]:
        """Return what has come since the last call: rounds with nodes, and references to files."""
        rounds, saved = self._rounds, self._saved
        self._rounds, self._saved = {}, {}
        return rounds, saved


def packed(path: Path) -> Files:
    """Return the files of a run's directory."""
    files = [file for file in sorted(path.rglob("*")) if file.is_file()]
    inside = {file.relative_to(path): file for file in files}
    return {p.as_posix(): file.read_bytes() for p, file in inside.items() if not set(p.parts) & set(_AT_HOME)}


def unpack(files: Mapping[str, bytes], path: Path) -> None:
    """Write the files of a run to the disk, in the sense of fsync, and those that vouch for others last.

    It can be resumed whenever this is cut off.
    """
    last = [name for name in (_MANIFEST, DONE) if name in files]
    for name in [*(name for name in files if name not in last), *last]:
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, files[name], lasting=True)
        to_disk(file.parent)
    if DONE in files:
        shutil.rmtree(path / CHECKPOINT, ignore_errors=True)
    for old in (path / CHECKPOINT).glob("round_*"):
        if f"{CHECKPOINT}/{old.name}" not in files:
            old.unlink()


def work(
    sent: Sent,
    config: RunConfig,
    overrides: Sequence[str],
    key: Key,
    files: Files,
    mailbox: Any,
    put: Callable[[Files], Any],
) -> tuple[RunResult, Files]:
    """Carry out a run in a scratch directory, and return its result and its files.

    Args:
        sent: What all tasks get.
        config: The configuration of the run.
        overrides: Its overrides.
        key: What its messages are called.
        files: The files that it begins with.
        mailbox: Where its messages go.
        put: Returns a reference to files.

    Raises:
        RequestError: If this node has other versions.
    """
    node, reached, over = os.uname().nodename, 0, threading.Event()

    def send(*saved: Any) -> None:
        mailbox.send.remote(key, reached, node, saved)

    def beat() -> None:
        while not over.wait(_BEAT):
            send()

    send()
    if (mine := _versions()) != sent.versions:
        differs = ", ".join(f"{b} instead of {a}" for a, b in zip(sent.versions, mine, strict=True) if a != b)
        raise RequestError(f"it has {differs}")
    os.environ.update(sent.environment)
    if Path(sent.folder).is_dir():
        os.chdir(sent.folder)
    with tempfile.TemporaryDirectory(prefix="fedbench-") as scratch:
        config = replace(config, results_dir=Path(scratch), force=False)
        unpack(files, config.path)
        manifest = config.path / _MANIFEST
        seen = _written(manifest)

        def report(round: int) -> None:
            nonlocal reached, seen
            reached, now = round, _written(manifest)
            if now != seen:
                send(put(packed(config.path)))
                seen = now

        threading.Thread(target=beat, daemon=True).start()  # however long a round takes
        try:
            with answered_by(raise_interrupted), hidden(report):
                ended = execute(sent.runs, config, overrides, sent.cores)
        except KeyboardInterrupt:
            ended = RunResult(tuple(overrides), "interrupted")
        finally:
            over.set()
        return replace(ended, path=None, outcome=None), packed(config.path)


def _written(file: Path) -> int:
    """Return when a file was last written, or 0."""
    return file.stat().st_mtime_ns if file.exists() else 0

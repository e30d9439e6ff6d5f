"""Execution of a run on another machine, in a scratch directory.

The files of the run are exchanged with the process that owns the results. An executor for a cluster
sends ``Shared``, a configuration and the files of a run to a node, and calls ``run_on_node`` in a
process there with a function that sends messages back.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import fedbench
from fedbench.config.schema import RunConfig
from fedbench.core.atomic_files import replace_file, to_disk
from fedbench.core.errors import RequestError
from fedbench.runs.executors.base import RunBatch, RunResult, execute_run
from fedbench.runs.process import on_signal, raise_interrupted
from fedbench.runs.progress import hidden
from fedbench.runs.run import CHECKPOINT, CLIENT_STATES, DONE, LOCK, MANIFEST

# interval between messages of a run; one per round would be thousands per second for small models
_BEAT_SECONDS = 2.0
_MANIFEST = f"{CHECKPOINT}/{MANIFEST}"
_NOT_SENT = {LOCK, CLIENT_STATES}  # local to one machine and to one process, respectively
Files: TypeAlias = dict[str, bytes]  # contents of a run's files by path in its directory


@dataclass(frozen=True)
class Shared:
    """Facts that are sent to all tasks of a batch.

    Attributes:
        config_dir: The user's directory with config files and modules.
        debug: Whether to print the traceback of a failed run.
        cores: Number of cores per run.
        versions: Versions that a node must have.
        folder: Working directory to which relative paths refer. Nodes without this directory use
            their own.
        environment: Environment variables that configurations may refer to.
    """

    config_dir: Path | None
    debug: bool
    cores: int
    versions: str
    folder: str
    environment: dict[str, str]

    @classmethod
    def of(cls, batch: RunBatch, cores: int) -> Shared:
        """Return the facts for the tasks of a batch, taken from this process."""
        prefixes = ("FEDBENCH_", "OMP_", "MKL_")
        environment = {}
        for name, value in os.environ.items():
            if name.startswith(prefixes):
                environment[name] = value
        return cls(
            config_dir=batch.config_dir,
            debug=batch.debug,
            cores=cores,
            versions=_versions(),
            folder=str(Path.cwd()),
            environment=environment,
        )


def _versions() -> str:
    import torch  # late: a driver does not need torch if all runs are done

    python = platform.python_version()
    return f"fedbench {fedbench.__version__}, Python {python}, torch {torch.__version__}"


def read_files(path: Path) -> Files:
    """Return the files in a run's directory that other nodes need."""
    files: Files = {}
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path)
        if file.is_file() and not _NOT_SENT & set(name.parts):
            files[name.as_posix()] = file.read_bytes()
    return files


def write_files(files: Mapping[str, bytes], path: Path) -> None:
    """Write the files of a run, and flush them to disk with fsync.

    Files with the checksums of others are written last, so that the run can be resumed even if
    writing is interrupted.
    """
    for name in sorted(files, key=lambda name: (name == DONE, name == _MANIFEST)):
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, files[name], lasting=True)
        to_disk(file.parent)
    if DONE in files:
        shutil.rmtree(path / CHECKPOINT, ignore_errors=True)
    for old in (path / CHECKPOINT).glob("round_*"):
        if f"{CHECKPOINT}/{old.name}" not in files:
            old.unlink()


class Reporter:
    """Sender of messages about one attempt: at regular intervals, and with files at checkpoints.

    Args:
        path: The directory of the run.
        send: Function that sends a round and, optionally, a reference to files.
        put: Function that returns a reference to files.
    """

    def __init__(
        self,
        path: Path,
        send: Callable[..., None],
        put: Callable[[Files], Any],
    ) -> None:
        self._path = path
        self._send = send
        self._put = put
        self._round = 0
        self._saved_at = self._checkpoint_time()
        self.over = threading.Event()
        # in a thread, because a round may take a long time
        threading.Thread(target=self._beat, daemon=True).start()

    def report(self, round: int, estimated: float = 0.0) -> None:
        """Note a finished round, and send the files if there is a new checkpoint."""
        self._round = round
        saved_at = self._checkpoint_time()
        if saved_at != self._saved_at:
            files = read_files(self._path)
            self._send(round, self._put(files))
            self._saved_at = saved_at

    def _beat(self) -> None:
        while not self.over.wait(_BEAT_SECONDS):
            self._send(self._round)

    def _checkpoint_time(self) -> int:
        manifest = self._path / _MANIFEST
        return manifest.stat().st_mtime_ns if manifest.exists() else 0


def run_on_node(
    shared: Shared,
    config: RunConfig,
    files: Files,
    send: Callable[..., None],
    put: Callable[[Files], Any],
) -> tuple[RunResult, Files]:
    """Execute a run in a scratch directory, and return its result and its files.

    Args:
        shared: Facts sent to all tasks.
        config: The configuration of the run.
        files: The files with which the run starts.
        send: Function that sends a round and, after a checkpoint, a reference to files.
        put: Function that returns a reference to files.

    Raises:
        RequestError: If this node has different versions.
    """
    send(0)
    versions = _versions()
    if versions != shared.versions:
        raise RequestError(f"it has {versions} instead of {shared.versions}")
    os.environ.update(shared.environment)
    if Path(shared.folder).is_dir():
        os.chdir(shared.folder)

    with tempfile.TemporaryDirectory(prefix="fedbench-") as scratch:
        config = replace(config, results_dir=Path(scratch), force=False)
        write_files(files, config.path)
        reporter = Reporter(config.path, send, put)
        try:
            with on_signal(raise_interrupted), hidden(reporter.report):
                result = execute_run(
                    config,
                    shared.config_dir,
                    shared.debug,
                    shared.cores,
                )
        except KeyboardInterrupt:
            result = RunResult(config.overrides, "interrupted")
        finally:
            reporter.over.set()
        return replace(result, path=None, outcome=None), read_files(config.path)

"""Several runs: in this process, or a number of them at a time in processes of their own.

Each of the places for a run is a stock pool of one process, so that a process that dies costs its run alone: the pool
of its place is replaced, and the others go on. A process imports torch once and takes one run after another, so that
runs share the data that it has read. Ctrl-C reaches this process alone; it asks the others to stop, and the next
command resumes their runs.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import TypeVar

from fedbench.config.schema import RunConfig
from fedbench.config.targets import user_code_from
from fedbench.core.atomic_files import NotWritten
from fedbench.core.errors import RequestError
from fedbench.runs.cached_run import Outcome, cached_run
from fedbench.runs.process import Interrupted, answered_by, available_cores, interruption, raise_interrupted
from fedbench.runs.progress import PoolView, going, hidden

T = TypeVar("T")

PATIENCE = 25.0  # seconds for a run to finish its round and save it; schedulers usually give 30
# forked from one that has imported torch, or started afresh where forks are unsafe
_PROCESSES = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
_PROCESSES.set_forkserver_preload(["torch", "pandas", "pyarrow.parquet", "safetensors.torch"])
VISIBLE = "CUDA_VISIBLE_DEVICES"
_idle = threading.Event()  # of this process, if it is one of a pool: whether its run has ended


@dataclass(frozen=True)
class RunResult:
    """The result of one of several runs.

    Attributes:
        overrides: The overrides of the run.
        status: ``done``, ``diverged``, ``failed``, ``refused`` (the request was wrong) or ``interrupted``.
        path: Directory of the run; None if it has left nothing.
        error: The message of what ended it; empty for a run that is done or has diverged.
        outcome: The outcome of a run that is done or has diverged.
    """

    overrides: tuple[str, ...]
    status: str
    path: Path | None = None
    error: str = ""
    outcome: Outcome | None = None


@dataclass(frozen=True)
class RunBatch:
    """Runs that are carried out together.

    Attributes:
        overrides: The overrides of each run.
        compose: Composes the configuration of a run from its overrides.
        config_dir: A directory of the user with config files and modules.
        loud: Print the traceback of a failed run.
        quiet: Do not print the results.
    """

    overrides: Sequence[Sequence[str]]
    compose: Callable[[Sequence[str]], RunConfig]
    config_dir: Path | None = None
    loud: bool = False
    quiet: bool = False


def execute_all(runs: RunBatch, jobs: int, gpus: Sequence[str], found: list[RunResult]) -> None:
    """Carry out runs; a failure never stops the others.

    Args:
        runs: The runs.
        jobs: Number of runs at a time; 1 is this process.
        gpus: The GPUs that the processes share out among themselves; without any, each sees all of them.
        found: The list that results are added to, in the order in which the runs end.

    Raises:
        KeyboardInterrupt: On Ctrl-C, when all processes have stopped.
    """
    jobs = min(jobs, max(1, len(runs.overrides)))
    if jobs > 1:
        _Places(runs, jobs, gpus, found).work_through()
        return
    for overrides in runs.overrides:
        config = attempt(overrides, runs.config_dir, partial(runs.compose, overrides))
        note(runs, config if isinstance(config, RunResult) else execute(runs, config, overrides), found)
        if (outcome := found[-1].outcome) is not None and outcome.signal is not None:
            raise Interrupted(outcome.signal)


def execute(runs: RunBatch, config: RunConfig, overrides: Sequence[str], cores: int | None = None) -> RunResult:
    """Return the result of one run; ``cores`` is the number that it may use, or None for all of this process."""
    outcome = attempt(overrides, runs.config_dir, lambda: cached_run(config, cores), runs.loud)
    if isinstance(outcome, RunResult):
        begun = outcome.status == "failed" and (config.path / "meta.json").exists()
        return replace(outcome, path=config.path if begun else None)
    return RunResult(tuple(overrides), outcome.run.meta["status"], outcome.run.path, outcome=outcome)


def attempt(
    overrides: Sequence[str], config_dir: Path | None, step: Callable[[], T], loud: bool = False
) -> T | RunResult:
    """Return the result of a step of a run, or that of a run which an error has ended in it.

    Raises:
        KeyboardInterrupt: If the error came up during a signal.
    """
    try:
        with user_code_from(config_dir):
            return step()
    except Exception as error:
        if (cause := interruption(error)) is not None:
            raise cause from None
        if isinstance(error, RequestError):
            return RunResult(tuple(overrides), "refused", error=str(error))
        if loud:
            traceback.print_exc()
        text = str(error) if isinstance(error, NotWritten) else f"{type(error).__name__}: {error}"
        return RunResult(tuple(overrides), "failed", error=text)


def note(runs: RunBatch, result: RunResult, found: list[RunResult]) -> None:
    """Add the result of a run to those that are found, and print it unless the runs are quiet."""
    if result.outcome is not None and not runs.quiet:
        result.outcome.say()
    found.append(result)


def start_importing() -> None:
    """Let the process that others are forked from import torch, while this one does something else."""
    if sys.platform == "linux":
        from multiprocessing.forkserver import ensure_running

        ensure_running()


class _Places:
    """The places for runs, each a pool of one process.

    Args:
        runs: The runs.
        jobs: Number of places.
        gpus: The GPUs that they share out.
        found: The list that results are added to.
    """

    def __init__(self, runs: RunBatch, jobs: int, gpus: Sequence[str], found: list[RunResult]) -> None:
        self._runs, self._found = runs, found
        self._sent = replace(runs, overrides=())  # what a process needs to know of all of them
        self._view = PoolView(len(runs.overrides))
        self._cores = max(1, available_cores() // jobs)
        self._visible = [{VISIBLE: gpus[k % len(gpus)]} if gpus else {} for k in range(jobs)]
        self._pools: dict[int, ProcessPoolExecutor] = {}
        self._at_work: dict[Future[RunResult], tuple[int, RunConfig, Sequence[str]]] = {}  # with the place of each
        self._others = set(multiprocessing.active_children())

    def work_through(self) -> None:
        """Carry out all runs."""
        with self._view.bars:
            try:
                for overrides in self._runs.overrides:
                    config = attempt(overrides, self._runs.config_dir, partial(self._runs.compose, overrides))
                    if isinstance(config, RunResult):
                        note(self._runs, config, self._found)
                        continue
                    while len(self._at_work) == len(self._visible):
                        self._await()
                    self._begin(config, overrides)
                while self._at_work:
                    self._await()
            except BaseException:
                self._stop()
                raise
            finally:
                for pool in self._pools.values():
                    pool.shutdown(cancel_futures=True)  # its thread, if still there, prints errors as Python ends

    def _begin(self, config: RunConfig, overrides: Sequence[str]) -> None:
        taken = {place for place, *_ in self._at_work.values()}
        place = next(k for k in range(len(self._visible)) if k not in taken)
        if place not in self._pools:
            given = ({**os.environ, **self._visible[place]},)
            self._pools[place] = ProcessPoolExecutor(1, _PROCESSES, initializer=_prepare, initargs=given)
        future = self._pools[place].submit(_work, self._sent, config, overrides, self._cores)
        self._at_work[future] = place, config, overrides

    def _await(self) -> None:
        """Wait until a run has ended, or for a moment."""
        done, _ = wait(self._at_work, self._view.every, FIRST_COMPLETED)
        for future in done:
            place, _, overrides = self._at_work.pop(future)
            try:
                result = future.result()
            except BrokenProcessPool:
                del self._pools[place]
                short = "its process was killed; if memory was short, run fewer at a time (--jobs)"
                result = RunResult(tuple(overrides), "failed", error=short)
            note(self._runs, result, self._found)
        self._view.look([e.status for e in self._found], [going(config) for _, config, _ in self._at_work.values()])

    def _stop(self) -> None:
        """Let all runs finish their round and save it; a second Ctrl-C ends them at once."""
        processes = set(multiprocessing.active_children()) - self._others
        try:
            for process in processes:
                process.terminate()
            wait(self._at_work, timeout=PATIENCE)
        finally:
            for process in processes:
                process.kill()


# ---- in the processes


def _prepare(environment: Mapping[str, str]) -> None:
    """Prepare a process: Ctrl-C is for its parent, and it ends with it. CUDA reads its variable at its first use."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.update(environment)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _work(runs: RunBatch, config: RunConfig, overrides: Sequence[str], cores: int) -> RunResult:
    _idle.clear()
    try:
        with answered_by(raise_interrupted), hidden():
            return execute(runs, config, overrides, cores)
    except KeyboardInterrupt:
        return RunResult(tuple(overrides), "interrupted", config.path)
    finally:
        _idle.set()


def _leave_with_parent() -> None:
    """Stop this process when the one that started it is gone, even if that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait_for([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    _idle.wait(PATIENCE)  # a round may take hours; the last checkpoint is whole
    os.kill(os.getpid(), signal.SIGKILL)

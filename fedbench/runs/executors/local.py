"""Execution on this machine: one run after another in this process, or several in other processes.

Each slot for a run is a standard pool of one process. If a process dies, only its run is lost: the
pool of its slot is replaced, and the others continue. A process imports torch once and executes one
run after another, so that its runs share loaded data. On Ctrl-C, the processes of runs wait until
this process stops them. Their runs can be resumed by another command.
"""

import multiprocessing
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import compress
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import NamedTuple

import psutil

from fedbench.config.schema import RunConfig
from fedbench.runs.cached_run import is_cached
from fedbench.runs.executors.base import (
    PATIENCE,
    Executor,
    RunBatch,
    RunResult,
    begun,
    execute_run,
)
from fedbench.runs.process import Interrupted, available_cores, on_signal, raise_interrupted
from fedbench.runs.progress import AFTER, BatchDisplay, hidden, run_progress
from fedbench.runs.status import is_held

_DENSE_BYTES = 2**30  # memory reserved for a run of a dense model
_OTHER_BYTES = 4 * 2**30  # memory reserved for a run of any other model
_VISIBLE = "CUDA_VISIBLE_DEVICES"
# forked from a process that has imported torch, or started from scratch where forks are unsafe
_PROCESSES = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
_PROCESSES.set_forkserver_preload(["torch", "pandas", "pyarrow.parquet", "safetensors.torch"])
_idle = threading.Event()  # in a pool's process: set while it has no run
_estimates: Connection  # in a pool's process: takes the directories and estimated seconds of runs


@dataclass(frozen=True)
class LocalExecutor(Executor):
    """An executor on this machine.

    Attributes:
        jobs: Number of runs at a time. If None, as many as cores, GPUs and memory allow.
    """

    jobs: int | None = None

    def jobs_for(self, configs: Sequence[RunConfig]) -> int:
        """Return ``jobs`` or, if it is None, the number of runs that cores, GPUs and memory allow.

        On GPUs, there is at most one run per GPU.
        """
        if self.jobs is not None:
            return min(self.jobs, max(1, len(configs)))
        models = [config.model.target or "" for config in configs]
        dense = all(model.startswith("fedbench.models.dense.") for model in models)
        size = _DENSE_BYTES if dense else _OTHER_BYTES
        fitting = psutil.virtual_memory().available // size

        devices = {config.device.partition(":")[0] for config in configs}
        places = available_cores()
        if "cuda" in devices or ("auto" in devices and visible_gpus()):
            places = len(shared_gpus(configs))
        return max(1, min(places, len(configs), int(fitting)))

    def execute(self, batch: RunBatch) -> None:
        """Execute runs and add their results to the batch.

        Raises:
            KeyboardInterrupt: On Ctrl-C, after all processes have stopped.
        """
        pending = [not is_cached(config) for config in batch.configs]
        todo = list(compress(batch.configs, pending))
        jobs = self.jobs_for(todo)
        if len(todo) > 1 and not batch.quiet:
            at_a_time = f"{jobs} at a time" if jobs > 1 else "one at a time"
            print(f"fedbench: {len(todo)} runs, {at_a_time} (jobs={jobs})", file=sys.stderr)
        if jobs > 1:
            _Pools(batch, jobs, shared_gpus(todo)).execute()
            return

        try:
            for number, config in enumerate(_held_last(batch.configs), 1):
                AFTER.set(sum(pending[number:]))
                result = execute_run(config, batch.config_dir, batch.debug)
                batch.add(result)
                if result.outcome is not None and result.outcome.signal is not None:
                    raise Interrupted(result.outcome.signal)
        finally:
            AFTER.set(0)


def visible_gpus() -> list[str]:
    """Return the GPUs that runs may use, in the notation of CUDA_VISIBLE_DEVICES.

    torch is not used, because importing it takes seconds.
    """
    files = sorted(Path("/dev").glob("nvidia[0-9]*"))
    installed = [file.name.removeprefix("nvidia") for file in files]
    listed = os.environ.get(_VISIBLE)
    if listed is None or not installed:
        return installed
    return re.findall(r"(?:^|,)\s*(\d+|(?:GPU|MIG)-[^\s,]+)\s*(?=,|$)", listed)


def shared_gpus(configs: Iterable[RunConfig]) -> list[str]:
    """Return the GPUs to distribute over processes.

    The list is empty if there is only one GPU, if all runs use the CPU, or if a run names a GPU,
    whose index must stay valid.
    """
    devices = {config.device for config in configs}
    gpus = visible_gpus()
    named = any(":" in device for device in devices)
    if named or len(gpus) == 1 or devices <= {"cpu"}:
        return []
    return gpus


def _held_last(configs: Sequence[RunConfig]) -> Iterator[RunConfig]:
    """Yield runs in order, but last those that another process is working on at their turn.

    Two commands with the same runs therefore share the work.
    """
    held = []
    for config in configs:
        if is_held(config.path):
            held.append(config)
        else:
            yield config
    yield from held


class _Job(NamedTuple):
    """An active run: the slot that it occupies, and its configuration."""

    slot: int
    config: RunConfig


class _Pools:
    """Slots for runs, each a pool of one process.

    Args:
        batch: The runs.
        jobs: Number of slots.
        gpus: GPUs to distribute over the slots. If empty, every slot sees all GPUs.
    """

    def __init__(
        self,
        batch: RunBatch,
        jobs: int,
        gpus: Sequence[str],
    ) -> None:
        self._batch = batch
        self._display = BatchDisplay(len(batch.configs))
        self._cores = max(1, available_cores() // jobs)
        self._gpus = gpus
        self._free = list(reversed(range(jobs)))
        self._pools: dict[int, ProcessPoolExecutor] = {}
        self._jobs: dict[Future[RunResult], _Job] = {}
        # messages are shorter than PIPE_BUF, so that those of several processes do not mix
        self._estimates, self._sender = _PROCESSES.Pipe(duplex=False)
        self._estimated: dict[Path, float] = {}
        self._other_processes = set(multiprocessing.active_children())

    def execute(self) -> None:
        """Execute all runs."""
        with self._display.bars:
            try:
                for config in _held_last(self._batch.configs):
                    self._start(config)
                    while not self._free:
                        self._wait()
                while self._jobs:
                    self._wait()
            except BaseException:
                self._stop()
                raise
            finally:
                for pool in self._pools.values():
                    # a remaining pool thread would print errors when Python exits
                    pool.shutdown(cancel_futures=True)

    def _start(self, config: RunConfig) -> None:
        """Start a run in a free slot."""
        slot = self._free.pop()
        if slot not in self._pools:
            environment = dict(os.environ)
            if self._gpus:
                environment[_VISIBLE] = self._gpus[slot % len(self._gpus)]
            self._pools[slot] = ProcessPoolExecutor(
                max_workers=1,
                mp_context=_PROCESSES,
                initializer=_prepare,
                initargs=(environment, self._sender),
            )
        future = self._pools[slot].submit(
            _run,
            config,
            self._batch.config_dir,
            self._batch.debug,
            self._cores,
        )
        self._jobs[future] = _Job(slot, config)

    def _wait(self) -> None:
        """Wait until a run ends or the next display update is due, and collect finished runs."""
        ended, _ = wait(self._jobs, self._display.every, FIRST_COMPLETED)
        for future in ended:
            job = self._jobs.pop(future)
            self._free.append(job.slot)
            try:
                result = future.result()
            except BrokenProcessPool:
                del self._pools[job.slot]
                error = "its process was killed; if memory was short, run fewer at a time (--jobs)"
                result = RunResult(job.config.overrides, "failed", begun(job.config), error)
            self._batch.add(result)

        while self._estimates.poll():
            self._estimated.update([self._estimates.recv()])
        running = [run_progress(job.config, self._estimated) for job in self._jobs.values()]
        self._display.show(self._batch.statuses(), running)

    def _stop(self) -> None:
        """Let all runs finish and save their round; a second Ctrl-C ends them at once."""
        processes = set(multiprocessing.active_children()) - self._other_processes
        try:
            for process in processes:
                process.terminate()
            wait(self._jobs, timeout=PATIENCE)
        finally:
            for process in processes:
                process.kill()


# ---- functions in the pools' processes


def _prepare(environment: Mapping[str, str], estimates: Connection) -> None:
    """Prepare a pool's process, which ignores Ctrl-C and ends with its parent.

    The environment is set before CUDA first reads CUDA_VISIBLE_DEVICES.
    """
    global _estimates
    _estimates = estimates
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.update(environment)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _run(
    config: RunConfig,
    config_dir: Path | None,
    debug: bool,
    cores: int,
) -> RunResult:
    """Execute one run and return its result."""
    _idle.clear()

    def report(round: int, estimated: float) -> None:
        if estimated:
            _estimates.send((config.path, estimated))

    try:
        with on_signal(raise_interrupted), hidden(report):
            return execute_run(config, config_dir, debug, cores)
    except KeyboardInterrupt:
        return RunResult(config.overrides, "interrupted", config.path)
    finally:
        _idle.set()


def _leave_with_parent() -> None:
    """Stop this process when its parent has ended, even if the parent was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait_for([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    _idle.wait(PATIENCE)  # a round may take hours; the last checkpoint is intact
    os.kill(os.getpid(), signal.SIGKILL)

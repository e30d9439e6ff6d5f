"""The runs of a sweep without Hydra's launchers: in this process, or several at a time in worker processes.

A worker imports torch once, lives as long as the sweep, and takes one run after another, so that runs share the data
that it has read. What a run prints is sent to this process, which prints it in whole lines. Ctrl-C reaches this process
alone; it stops the workers, whose runs are resumed by the next command. A worker whose process dies costs its run, and
another one takes its place.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess, parent_process
from pathlib import Path
from typing import Literal, NamedTuple

from fedbench.commands.gpus import gpu_of
from fedbench.commands.launch import Job
from fedbench.commands.sweep_view import SweepView
from fedbench.config.schema import RunConfig
from fedbench.runs.cores import available_cores
from fedbench.runs.interrupts import as_exceptions
from fedbench.runs.progress import hidden
from fedbench.runs.sweep_notes import Note, leave, note_of

# what takes long to import; not fedbench, which that process may find elsewhere: its path is not yet that of this one
_PRELOADED = ["torch", "safetensors.torch", "hydra.core.override_parser.overrides_parser", "pandas", "pyarrow.parquet"]
_PATIENCE = 25.0  # seconds for a worker to finish its round and save it; schedulers usually give 30


class _Task(NamedTuple):
    """A run for a worker: its number, its overrides, its configuration, and the number of cores that it may use."""

    number: int
    overrides: list[str]
    config: RunConfig | None
    cores: int


class _Message(NamedTuple):
    """What a worker sends: lines that its run has printed, or that the run is over."""

    kind: Literal["out", "err", "over"]
    text: str = ""


def work_through(job: Job, runs: Sequence[Sequence[str]], folder: Path, jobs: int, gpus: Sequence[str] = ()) -> None:
    """Carry out runs, ``jobs`` at a time; the notes in ``folder`` have the results.

    Args:
        job: Carries out one run.
        runs: Overrides per run.
        folder: Directory of the sweep, which exists.
        jobs: Number of worker processes; 1 is this process.
        gpus: The GPUs that workers share out among themselves; without any, each sees all of them.

    Raises:
        KeyboardInterrupt: On Ctrl-C, when all workers have stopped.
    """
    with SweepView(runs, jobs) as view:
        if jobs > 1:
            _in_workers(job, runs, folder, jobs, gpus, view)
            return
        for number, overrides in enumerate(runs):
            config = _composed(job, overrides)
            view.begins(number, config)
            view.ended(job.carry_out(number, list(overrides), folder, config))


def _in_workers(
    job: Job, runs: Sequence[Sequence[str]], folder: Path, jobs: int, gpus: Sequence[str], view: SweepView
) -> None:
    shares = core_shares(len(runs), jobs, available_cores())
    waiting = deque(range(len(runs)))

    def next_task() -> _Task:
        number = waiting.popleft()
        config = _composed(job, runs[number])
        view.begins(number, config)
        return _Task(number, list(runs[number]), config, shares[number])

    workers: list[_Worker] = []
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                number = min(set(range(jobs)) - {w.number for w in workers})  # a lost worker's, and so its GPU
                workers.append(_Worker(job, folder, number, gpu_of(number, gpus)))
                workers[-1].give(next_task())
            ready = wait([w.connection for w in workers])
            for worker in [w for w in workers if w.connection in ready]:
                if worker.listen():
                    continue
                view.ended(note_of(folder, worker.task.number))
                if waiting and worker.alive:
                    worker.give(next_task())
                else:
                    worker.dismiss()
                    workers.remove(worker)
    except BaseException:
        _stop(workers)
        raise


def _stop(workers: Sequence[_Worker]) -> None:
    """Stop workers: all have the same time to leave their runs, which a second Ctrl-C cuts short."""
    end = time.monotonic() + _PATIENCE
    try:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.join(max(0.0, end - time.monotonic()))
    finally:
        for worker in workers:
            worker.process.kill()


def _composed(job: Job, overrides: Sequence[str]) -> RunConfig | None:
    """Return the configuration of a run, composed here: Hydra takes 0.3 s for a choice of groups, in every process.

    None if that fails: its worker fails likewise, and reports it without stopping the other runs.
    """
    try:
        return job.compose(overrides)
    except Exception:
        return None


def core_shares(runs: int, jobs: int, cores: int) -> list[int]:
    """Return how many cores each of a number of runs may use; those that are left at the end share all of them."""
    left = (runs - k // jobs * jobs for k in range(runs))
    return [max(1, cores // min(jobs, n)) for n in left]


def start_importing() -> None:
    """Let the process that workers are forked from import torch, while this one does something else."""
    _context()
    if sys.platform == "linux":
        from multiprocessing.forkserver import ensure_running

        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited: Ctrl-C is for this process
        try:
            ensure_running()
        finally:
            signal.signal(signal.SIGINT, before)


def _context() -> BaseContext:
    """Return how workers are started: forked from a process that has imported torch, or afresh if forks are unsafe."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


class _Worker:
    """A worker process, seen from the process that started it."""

    def __init__(self, job: Job, folder: Path, number: int, changed: Mapping[str, str]) -> None:
        start_importing()
        context = _context()
        self.connection, theirs = context.Pipe()
        given = (theirs, job, folder, {**os.environ, **changed})
        self.process: BaseProcess = context.Process(target=_work, args=given, daemon=True)  # type: ignore[attr-defined]
        self.process.start()
        theirs.close()  # so that the end of the process is the end of the connection
        self.folder, self.task, self.alive, self.number = folder, _Task(0, [], None, 0), True, number

    def give(self, task: _Task) -> None:
        self.task = task
        with suppress(ConnectionError):  # it has died: listening says so
            self.connection.send(task)

    def listen(self) -> bool:
        """Print what the worker has sent, and return whether it is still at work."""
        try:
            message: _Message = self.connection.recv()
        except (EOFError, OSError):  # OSError: it died in the middle of a message
            self.alive = False
            self.process.join()
            leave(self.folder, Note(self.task.number, self.task.overrides, "failed", None, self._death()))
            return False
        if message.kind != "over":
            print(message.text, end="", file=sys.stdout if message.kind == "out" else sys.stderr, flush=True)
        return message.kind != "over"

    def dismiss(self) -> None:
        with suppress(ConnectionError):
            self.connection.send(None)
        self.connection.close()
        self.process.join()

    def _death(self) -> str:
        code = self.process.exitcode or 0
        if code >= 0:
            return f"the process of the run ended with exit status {code}"
        short = "; if memory was short, run fewer at a time (--jobs)" if code == -signal.SIGKILL else ""
        return f"the process of the run was ended by {signal.Signals(-code).name}{short}"


# ---- in the worker


def _work(connection: Connection, job: Job, folder: Path, environment: Mapping[str, str]) -> None:
    """Carry out the runs that arrive, until None does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    # The process that this one was forked from may be older than these. It has imported torch, but not used CUDA: the
    # driver reads CUDA_VISIBLE_DEVICES when it is initialised, which torch leaves to the first use of a GPU.
    os.environ.clear()
    os.environ.update(environment)
    lock = threading.Lock()
    out, err = _Sent(connection, "out", lock), _Sent(connection, "err", lock)
    with suppress(KeyboardInterrupt), as_exceptions(), redirect_stdout(out), redirect_stderr(err), hidden():
        while (task := _received(connection)) is not None:
            job.carry_out(task.number, task.overrides, folder, task.config, task.cores)
            out.flush_all()
            err.flush_all()
            with lock:  # threads of a run, such as those of a tracker, may still print
                connection.send(_Message("over"))


def _received(connection: Connection) -> _Task | None:
    """Return the next run; None if there is none, or if the process that had it is gone."""
    try:
        task: _Task | None = connection.recv()
    except (EOFError, ConnectionResetError):
        return None
    return task


def _leave_with_parent() -> None:
    """Stop this worker when the process that started it is gone, even if that was killed."""
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_PATIENCE)  # a round may take hours; the last checkpoint is whole
    os.kill(os.getpid(), signal.SIGKILL)


class _Sent(io.TextIOBase):
    """A text stream to the process that prints: errors by the line, and what belongs to a run's result in one piece."""

    def __init__(self, connection: Connection, kind: Literal["out", "err"], lock: threading.Lock) -> None:
        self._connection, self._kind, self._lock, self._text = connection, kind, lock, ""

    def write(self, text: str) -> int:
        with self._lock:
            self._text += text
            end = self._text.rfind("\n") + 1
            if self._kind == "err" and end:
                self._connection.send(_Message(self._kind, self._text[:end]))
                self._text = self._text[end:]
        return len(text)

    def flush_all(self) -> None:
        """Send what is left."""
        with self._lock:
            if self._text:
                self._connection.send(_Message(self._kind, self._text))
                self._text = ""

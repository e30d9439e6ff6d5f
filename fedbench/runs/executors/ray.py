"""Runs on a Ray cluster: a task per run, in a scratch directory of its node; this process alone writes the results.

A task gets the files of the run that are here already, and sends its own after every checkpoint and
at its end. So nodes need not see the results directory, no lock crosses machines, and an abandoned
node that recovers can write nothing: messages of an earlier attempt are ignored. A run that is lost
with its node, or is silent, resumes on another node from the last checkpoint that was received.
"""

from __future__ import annotations

import math
import os
import re
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from types import FrameType
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from fedbench.config.schema import RunConfig
from fedbench.core.atomic_files import NotWritten
from fedbench.core.errors import RequestError, install_hint
from fedbench.runs.cached_run import Outcome, continue_shorter
from fedbench.runs.executors.base import PATIENCE, Executor, RunBatch, RunResult
from fedbench.runs.executors.node import Files, Shared, read_files, run_on_node, write_files
from fedbench.runs.process import Interrupted, answered_by, available_cores, raise_interrupted
from fedbench.runs.progress import BatchDisplay, RunProgress
from fedbench.runs.run import CHECKPOINT, LOCK, NODE, is_done, read_run

if TYPE_CHECKING:
    from fedbench.runs.recorder import Recorder

ATTEMPTS = 3  # of a run that loses its process or is silent
# without a message, which come every two seconds; more at each attempt, if imports are slow
SILENT_SECONDS = 60.0
# without runs for a node that has lost a process; Ray notices within them whether it is dead
SUSPECT_SECONDS = 60.0
_POLL_SECONDS = 1.0  # between two looks at what was received


@dataclass(frozen=True)
class RayExecutor(Executor):
    """Carries out runs on a Ray cluster.

    Attributes:
        address: ``HOST:PORT`` of the head, or None for a cluster of this machine alone.
        cpus: Number of cores of a run.
        gpus: Number of GPUs of a run, also a part of one; None is one if the cluster has any.
    """

    address: str | None = None
    cpus: float = 1.0
    gpus: float | None = None

    @classmethod
    def at(cls, address: str, cpus: float | None, gpus: float | None) -> RayExecutor:
        """Return the executor for ``--on ray://ADDRESS``; without an address, for RAY_ADDRESS or a cluster of its own.

        Raises:
            RequestError: If it is no address.
        """
        if address and not re.fullmatch(r"[^/:\s]+:\d+", address):
            raise RequestError(f"--on must be ray or ray://HOST:PORT, got ray://{address}")
        return cls(
            address or os.environ.get("RAY_ADDRESS", "").removeprefix("ray://") or None,
            cpus or 1.0,
            gpus,
        )

    def execute(self, batch: RunBatch, configs: Sequence[RunConfig]) -> None:
        """Carry out runs and add their results to the batch.

        Raises:
            RequestError: If Ray is not installed, the cluster cannot be reached, or no node can
                carry out a run.
            Interrupted: If a signal asked this process to end.
        """
        without_gpus = configs and all(config.device == "cpu" for config in configs)
        gpus = 0.0 if without_gpus else self.gpus
        _Driver(batch, replace(self, gpus=gpus)).execute()

    def connect(self) -> Any:
        """Return the module ``ray``, connected to the cluster."""
        try:
            import ray
            import ray.exceptions
            import ray.util.scheduling_strategies
        except ImportError as error:
            raise RequestError(f"--on ray needs Ray; {install_hint('ray')}") from error
        address, cores = (self.address, None) if self.address else ("local", available_cores())
        host, _, port = address.rpartition(":")
        try:
            if host:
                # Ray tries for minutes
                socket.create_connection((host, int(port)), timeout=10).close()
            with answered_by(raise_interrupted):  # which removes Ray's handler of SIGTERM again
                ray.init(address, num_cpus=cores, log_to_driver=False, configure_logging=False)
        except (OSError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            hint = "ray start --head begins one; set RAY_AUTH_MODE=token if it has a token"
            raise RequestError(f"there is no Ray cluster at {address}: {reason}; {hint}") from error
        return ray


# ---- in the process that has the results


@dataclass
class _Run:
    """A run that is sent to nodes, one attempt after another, until one of them returns its result."""

    config: RunConfig
    overrides: Sequence[str]
    lock: FileLock
    recorder: Recorder
    key: int = 0  # of the messages of the present attempt
    attempts: int = 0
    received_at: float = 0.0  # when the attempt was sent, or its last message was received
    round: int = 0  # the last one that is known to be over
    node_id: str = ""
    node_name: str = ""

    def sent(self, key: int, node_id: str, now: float) -> None:
        """Begin the next attempt."""
        self.key, self.node_id, self.node_name, self.received_at = key, node_id, node_id, now
        self.attempts += 1

    def received(self, now: float, round: int, node_name: str) -> None:
        """Take note of a message."""
        self.received_at, self.round, self.node_name = now, round, node_name

    def silent(self, now: float) -> bool:
        """Return whether the attempt is to be abandoned."""
        return now - self.received_at > SILENT_SECONDS * self.attempts

    def result(self, status: str, error: str = "") -> RunResult:
        """Return the result of a run that no task has returned."""
        return RunResult(tuple(self.overrides), status, error=error)


class _Driver:
    """Sends the runs of a batch to the nodes, and writes the files that it receives.

    Args:
        batch: The runs.
        cluster: The cluster and the resources of a run.

    Raises:
        RequestError: If Ray is not installed, or the cluster cannot be reached.
    """

    def __init__(self, batch: RunBatch, cluster: RayExecutor) -> None:
        self._batch = batch
        self._display = BatchDisplay(len(batch.overrides))
        self._ray = cluster.connect()
        this_node = self._ray.get_runtime_context().get_node_id()
        self._on_node = partial(
            self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy, soft=False
        )
        mailbox = self._ray.remote(Mailbox).options(
            num_cpus=0, scheduling_strategy=self._on_node(this_node)
        )
        self._mailbox = mailbox.remote()
        gpus = (
            float("GPU" in self._ray.cluster_resources()) if cluster.gpus is None else cluster.gpus
        )
        self._needed = {"CPU": cluster.cpus, "GPU": gpus}
        # where a task has GPUs, Ray ends its process with it: another task would have others
        self._task = self._ray.remote(num_cpus=cluster.cpus, num_gpus=gpus, max_retries=0)(run_task)
        self._shared = self._ray.put(Shared.of(batch, max(1, int(cluster.cpus))))
        self._keys = count()
        self._waiting = deque(batch.overrides)
        self._lost: deque[_Run] = deque()  # to be started again
        self._running: dict[Any, _Run] = {}  # by the reference of the task's result
        # until when nodes get no run, as long as there are others
        self._suspect: dict[str, float] = {}
        self._excluded: dict[str, str] = {}  # why nodes cannot carry out runs

    def execute(self) -> None:
        """Carry out all runs.

        Raises:
            Interrupted: If a signal asked this process to end.
        """
        signals: list[int] = []

        def end(number: int, frame: FrameType | None) -> None:
            signals.append(number)
            raise Interrupted(number)

        try:
            with self._display.bars, answered_by(end):
                while self._waiting or self._lost or self._running:
                    self._start_runs()
                    self._wait()
        except BaseException as error:
            self._stop()
            if signals:  # Ray raises a KeyboardInterrupt of its own over it
                raise Interrupted(signals[0]) from error
            raise
        finally:
            for run in (*self._running.values(), *self._lost):
                run.lock.release()
            self._ray.shutdown()

    def _start_runs(self) -> None:
        """Start runs while a node is free: first those that were lost, then others in their order.

        Tasks are sent to a node by name: where Ray chooses, all tasks wait behind one for a node
        that is frozen.
        """
        slots = self._free_slots()
        now = time.monotonic()
        trusted = {node: free for node, free in slots.items() if self._suspect.get(node, 0.0) < now}
        slots = trusted or slots
        for _ in range(len(self._lost) + len(self._waiting)):
            if not any(free > 0 for free in slots.values()):
                return
            run = self._lost.popleft() if self._lost else self._prepared(self._waiting.popleft())
            if run is not None:
                node = max(slots, key=lambda node: slots[node])
                slots[node] -= 1
                self._send(run, node)

    def _free_slots(self) -> dict[str, int]:
        """Return the number of further runs that each node has resources for.

        Raises:
            RequestError: If no node can ever carry out one.
        """
        slots = {}
        for node in self._ray.nodes():
            name, resources = node["NodeID"], node["Resources"]
            total = int(
                min(
                    resources.get(kind, 0.0) / needed
                    for kind, needed in self._needed.items()
                    if needed
                )
            )
            if node["Alive"] and total and name not in self._excluded:
                slots[name] = total - sum(run.node_id == name for run in self._running.values())
        # where all nodes have died, others may come
        if not slots and (self._excluded or not self._suspect):
            cores, gpus = self._needed.values()
            reason = next(
                iter(self._excluded.values()),
                f"none has {cores:g} cores and {gpus:g} GPUs for a run",
            )
            raise RequestError(f"no node of the Ray cluster can carry out runs: {reason}")
        return slots

    def _prepared(self, overrides: Sequence[str]) -> _Run | None:
        """Return a run with its lock; None if it is over, or must wait for another process that works on it."""
        config = self._batch.config(overrides)
        if isinstance(config, RunResult):
            self._batch.add(config)
            return None
        if is_done(config.path) and not config.force and not (config.path / CHECKPOINT).exists():
            self._batch.add(self._batch.run(config, overrides))
            return None
        from fedbench.runs.recorder import Recorder  # imports torch, which takes seconds

        recorder = Recorder(config.path)
        lock = FileLock(config.path / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            self._waiting.append(overrides)
            return None
        recorder.guard(config.path / LOCK)
        if config.force:
            recorder.clear()
        continue_shorter(config, recorder)
        return _Run(config, overrides, lock, recorder)

    def _send(self, run: _Run, node: str) -> None:
        """Start the next attempt at a run on a node."""
        run.sent(next(self._keys), node, time.monotonic())
        task = self._task.options(scheduling_strategy=self._on_node(node))
        files = read_files(run.config.path)
        reference = task.remote(
            self._shared, run.config, run.overrides, run.key, files, self._mailbox, self._ray.put
        )
        self._running[reference] = run

    def _wait(self) -> None:
        """Wait for a moment, read messages and results, and abandon attempts that are silent."""
        ended: Sequence[Any] = ()
        if self._running:
            ended, _ = self._ray.wait(list(self._running), num_returns=1, timeout=_POLL_SECONDS)
        else:
            time.sleep(_POLL_SECONDS)
        now = time.monotonic()  # reading files may take longer than a run may be silent
        self._read_messages(now)
        for reference in ended:
            self._collect(reference)
        for reference, run in list(self._running.items()):
            if run.silent(now):
                del self._running[reference]
                self._ray.cancel(reference, force=True)
                self._retry(run, "is silent", math.inf)

        statuses = [result.status for result in self._batch.results]
        running = [
            RunProgress(run.round, run.config.rounds, run.node_name)
            for run in self._running.values()
        ]
        self._display.show(statuses, running)

    def _read_messages(self, now: float) -> None:
        """Read the messages of the present attempts; checkpoints are written to the results directory."""
        rounds, saved = self._ray.get(self._mailbox.take.remote())
        for run in self._running.values():
            if run.key in rounds:
                run.received(now, *rounds[run.key])
                (run.config.path / NODE).write_text(run.node_name)  # for fedbench status
                self._suspect.pop(run.node_id, None)
        for run in self._running.values():
            if run.key in saved:
                # lost with its node, or another process has the run: the checkpoint before it
                # counts
                with suppress(self._ray.exceptions.RayError, NotWritten):
                    run.recorder.check_lock()
                    write_files(
                        self._ray.get(saved[run.key][0], timeout=SILENT_SECONDS), run.config.path
                    )

    def _collect(self, reference: Any) -> None:
        """Take the result and the files of a task that has ended."""
        run = self._running.pop(reference)
        errors = self._ray.exceptions
        files: Files = {}
        try:
            result, files = self._ray.get(reference)
        except errors.RayTaskError as error:  # of the node: those of the run are in its result
            reason = str(error.cause).partition("\n")[0]
            self._excluded[run.node_id] = reason
            print(f"fedbench: node {run.node_name} is left out: {reason}", file=sys.stderr)
            self._lost.append(run)
            return
        except errors.TaskCancelledError:
            result = run.result("interrupted")
        except errors.RayError as error:
            self._retry(
                run, f"has lost its process ({str(error).partition('.')[0]})", SUSPECT_SECONDS
            )
            return
        try:
            run.recorder.check_lock()
            write_files(files, run.config.path)
        except NotWritten as error:
            result = run.result("failed", str(error))
        if result.status in ("done", "diverged"):
            result = replace(result, outcome=Outcome(read_run(run.config.path), fresh=True))
        self._finish(run, result)

    def _retry(self, run: _Run, loss: str, suspect_seconds: float) -> None:
        """Start a run again on another node, or give it up if it was lost too often."""
        self._suspect[run.node_id] = time.monotonic() + suspect_seconds
        if run.attempts >= ATTEMPTS:
            self._finish(run, run.result("failed", f"it {loss}, for the {ATTEMPTS}rd time"))
            return
        print(
            f"fedbench: {' '.join(run.overrides)} {loss} on {run.node_name}: again", file=sys.stderr
        )
        self._lost.append(run)

    def _finish(self, run: _Run, result: RunResult) -> None:
        """Release the lock of a run and add its result to the batch."""
        path = run.config.path
        if is_done(path):  # a process that waits creates it again, and finds DONE
            (path / LOCK).unlink(missing_ok=True)
        (path / NODE).unlink(missing_ok=True)
        run.lock.release()
        begun = (path / "meta.json").exists()
        self._batch.add(replace(result, path=path if begun else None))

    def _stop(self) -> None:
        """Let all runs finish their round and send it; a second Ctrl-C ends them at once."""
        references = list(self._running)
        if not references:
            return
        for reference in references:
            self._ray.cancel(reference)
        ended, _ = self._ray.wait(references, num_returns=len(references), timeout=PATIENCE)
        self._read_messages(time.monotonic())
        for reference in ended:
            self._collect(reference)


# ---- between the processes


class Mailbox:
    """The messages of all tasks, on the node of the process that reads them."""

    def __init__(self) -> None:
        self._rounds: dict[int, tuple[int, str]] = {}
        self._saved: dict[int, tuple[Any, ...]] = {}

    def send(self, key: int, round: int, node_name: str, saved: tuple[Any, ...]) -> None:
        """Take the round and the node of an attempt, and if there is a new checkpoint a reference to its files.

        The files stay on the node that has them until they are read: those of a thousand runs would
        not fit here.
        """
        self._rounds[key] = round, node_name
        if saved:
            self._saved[key] = saved  # the one before it is superseded

    def take(self) -> tuple[dict[int, tuple[int, str]], dict[int, tuple[Any, ...]]]:
        """Return the messages since the last call: rounds with nodes, and references to files."""
        messages = self._rounds, self._saved
        self._rounds, self._saved = {}, {}
        return messages


def run_task(
    shared: Shared,
    config: RunConfig,
    overrides: Sequence[str],
    key: int,
    files: Files,
    mailbox: Any,
    put: Callable[[Files], Any],
) -> tuple[RunResult, Files]:
    """Carry out a run as a task of Ray, whose messages go to a mailbox under a key; see ``run_on_node``."""
    node_name = os.uname().nodename

    def send(round: int, *saved: Any) -> None:
        mailbox.send.remote(key, round, node_name, saved)

    return run_on_node(shared, config, overrides, files, send, put)

"""Execution on a Ray cluster: one task per run, in a scratch directory on the task's node.

Only this process writes the results. A task receives the existing files of its run, and sends its
files after every checkpoint and at its end. Nodes therefore need no access to the results
directory, and no lock crosses machines. If an abandoned node recovers, its messages are ignored and
it cannot write results. A run that is silent or lost with its node resumes on another node from the
last checkpoint received.

``_Driver`` sends the runs and receives their files, ``_Run`` is a run with its attempts, ``_Nodes``
chooses the nodes that receive runs, and ``Mailbox`` collects the messages of tasks.
"""

from __future__ import annotations

import math
import os
import re
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from types import FrameType
from typing import TYPE_CHECKING, Any

from filelock import Timeout

from fedbench.config.schema import RunConfig
from fedbench.core.atomic_files import NotWritten
from fedbench.core.errors import RequestError, install_hint
from fedbench.runs.cached_run import Outcome, continue_shorter, is_cached
from fedbench.runs.executors.base import (
    PATIENCE,
    Executor,
    RunBatch,
    RunResult,
    begun,
    execute_run,
)
from fedbench.runs.executors.node import Files, Shared, read_files, run_on_node, write_files
from fedbench.runs.process import Interrupted, available_cores, on_signal, raise_interrupted
from fedbench.runs.progress import BatchDisplay, RunProgress
from fedbench.runs.run import read_run

if TYPE_CHECKING:
    from fedbench.runs.recorder import Recorder

ATTEMPTS = 3  # maximum attempts at a run that loses its process or is silent
# time without a message (normally sent every two seconds) before an attempt is abandoned;
# multiplied by the number of the attempt, in case imports are slow
SILENT_SECONDS = 60.0
# time without runs for a node that lost a process; in this time, Ray notices whether it is dead
SUSPECT_SECONDS = 60.0
_POLL_SECONDS = 1.0  # interval between two reads of received messages


@dataclass(frozen=True)
class RayExecutor(Executor):
    """An executor on a Ray cluster.

    Attributes:
        address: ``HOST:PORT`` of the head node. If None, a cluster of this machine alone.
        cpus: Number of cores per run.
        gpus: Number of GPUs per run, possibly a fraction. If None, one GPU if the cluster has any.
    """

    address: str | None = None
    cpus: float = 1.0
    gpus: float | None = None

    @classmethod
    def at(
        cls,
        address: str,
        cpus: float | None,
        gpus: float | None,
    ) -> RayExecutor:
        """Return the executor for ``--on ray://ADDRESS``.

        If the address is empty, RAY_ADDRESS is used or, if it is unset, a new local cluster.

        Raises:
            RequestError: If the address is malformed.
        """
        if address and not re.fullmatch(r"[^/:\s]+:\d+", address):
            raise RequestError(f"--on must be ray or ray://HOST:PORT, got ray://{address}")
        known = os.environ.get("RAY_ADDRESS", "").removeprefix("ray://")
        return cls(address or known or None, cpus or 1.0, gpus)

    def execute(self, batch: RunBatch) -> None:
        """Execute runs and add their results to the batch.

        Raises:
            RequestError: If Ray is not installed, the cluster cannot be reached, or no node can
                execute a run.
            Interrupted: If a signal asked this process to end.
        """
        _Driver(batch, self).execute()

    def connect(self) -> Any:
        """Return the module ``ray``, connected to the cluster."""
        try:
            import ray
            import ray.exceptions
            import ray.util.scheduling_strategies
        except ImportError as error:
            raise RequestError(f"--on ray needs Ray; {install_hint('ray')}") from error
        address = self.address or "local"
        cores = None if self.address else available_cores()
        host, _, port = address.rpartition(":")
        try:
            if host:
                # checked first, as Ray itself tries for minutes
                socket.create_connection((host, int(port)), timeout=10).close()
            with on_signal(raise_interrupted):  # also removes Ray's handler of SIGTERM afterwards
                ray.init(
                    address,
                    num_cpus=cores,
                    log_to_driver=False,
                    configure_logging=False,
                )
        except (OSError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            hint = "ray start --head begins one; set RAY_AUTH_MODE=token if it has a token"
            raise RequestError(f"there is no Ray cluster at {address}: {reason}; {hint}") from error
        return ray


# ---- in the process that owns the results


@dataclass
class _Run:
    """A run that is sent to nodes, one attempt after another, until one returns its result."""

    config: RunConfig
    recorder: Recorder | None = None  # set at the first attempt; holds the lock of the run
    key: int = 0  # key of the messages of the current attempt
    attempts: int = 0
    received_at: float = 0.0  # time when the attempt was sent or its last message was received
    round: int = 0  # last round known to be finished
    node_id: str = ""
    node_name: str = ""

    def silent(self, now: float) -> bool:
        """Return whether the attempt has been silent for so long that it is to be abandoned."""
        return now - self.received_at > SILENT_SECONDS * self.attempts

    def write(self, files: Files) -> None:
        """Write files of the run that were sent by its node.

        Raises:
            NotWritten: If they cannot be written or another process may be working on the run.
        """
        assert self.recorder is not None
        self.recorder.check_lock()
        write_files(files, self.config.path)

    def result(self, status: str, error: str = "") -> RunResult:
        """Return a result for a run whose task returned none."""
        return RunResult(self.config.overrides, status, error=error)


class _Nodes:
    """The nodes of a cluster, and the choice of nodes that receive runs.

    Args:
        ray: The module ``ray``, connected to the cluster.
        needed: The resources of a run.

    Attributes:
        names: Names of the nodes by id.
        suspected: Time until which a node receives no run if other nodes are available, by id.
        excluded: Reasons why nodes receive no more runs, by id.
    """

    def __init__(
        self,
        ray: Any,
        needed: dict[str, float],
    ) -> None:
        self._ray = ray
        self._needed = needed
        self.names: dict[str, str] = {}
        self.suspected: dict[str, float] = {}
        self.excluded: dict[str, str] = {}

    def slots(self, running: Iterable[_Run]) -> dict[str, int]:
        """Return the number of further runs that each node has resources for.

        Args:
            running: The runs currently on nodes.

        Raises:
            RequestError: If no node can ever execute a run.
        """
        used = Counter(run.node_id for run in running)
        slots = {}
        for node in self._ray.nodes():
            node_id = node["NodeID"]
            resources = node["Resources"]
            self.names[node_id] = node["NodeManagerHostname"]
            shares = [
                resources.get(k, 0.0) / needed for k, needed in self._needed.items() if needed
            ]
            total = int(min(shares))
            if node["Alive"] and total and node_id not in self.excluded:
                slots[node_id] = total - used[node_id]

        # if all nodes have died, new ones may still join
        if not slots and (self.excluded or not self.suspected):
            cores, gpus = self._needed.values()
            lacking = f"none has {cores:g} cores and {gpus:g} GPUs for a run"
            reason = next(iter(self.excluded.values()), lacking)
            raise RequestError(f"no node of the Ray cluster can carry out runs: {reason}")
        now = time.monotonic()
        suspects = [node_id for node_id, until in self.suspected.items() if until > now]
        trusted = {node_id: free for node_id, free in slots.items() if node_id not in suspects}
        return trusted or slots


class _Driver:
    """A driver that sends the runs of a batch to the nodes and writes the files received from them.

    Args:
        batch: The runs.
        cluster: The cluster and the resources of a run.

    Raises:
        RequestError: If Ray is not installed or the cluster cannot be reached.
    """

    def __init__(self, batch: RunBatch, cluster: RayExecutor) -> None:
        self._batch = batch
        self._display = BatchDisplay(len(batch.configs))
        self._ray = cluster.connect()
        this_node = self._ray.get_runtime_context().get_node_id()
        self._on_node = partial(
            self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy, soft=False
        )
        mailbox = self._ray.remote(Mailbox).options(
            num_cpus=0, scheduling_strategy=self._on_node(this_node)
        )
        self._mailbox = mailbox.remote()

        cpus, gpus = cluster.cpus, cluster.gpus
        if all(config.device == "cpu" for config in batch.configs):
            gpus = 0.0
        elif gpus is None:
            gpus = float("GPU" in self._ray.cluster_resources())
        self._nodes = _Nodes(self._ray, {"CPU": cpus, "GPU": gpus})
        # Ray ends a process with GPUs after its task, because another task would use other GPUs
        self._task = self._ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(run_task)
        shared = Shared.of(batch, cores=max(1, int(cpus)))
        self._shared = self._ray.put(shared)
        self._keys = count()
        self._waiting = deque(map(_Run, batch.configs))
        self._running: dict[Any, _Run] = {}  # by reference to the task's result

    def execute(self) -> None:
        """Execute all runs.

        Raises:
            Interrupted: If a signal asked this process to end.
        """
        signals: list[int] = []

        def end(number: int, frame: FrameType | None) -> None:
            signals.append(number)
            raise Interrupted(number)

        try:
            with self._display.bars, on_signal(end):
                while self._waiting or self._running:
                    self._start_runs()
                    self._wait()
        except BaseException as error:
            self._stop()
            if signals:  # Ray replaces it with its own KeyboardInterrupt
                raise Interrupted(signals[0]) from error
            raise
        finally:
            for run in (*self._running.values(), *self._waiting):
                if run.recorder is not None:
                    run.recorder.close()
            self._ray.shutdown()

    def _start_runs(self) -> None:
        """Start runs while a node is free.

        Tasks are assigned to named nodes. If Ray chose the nodes, all tasks would wait behind a
        task for a frozen node.
        """
        slots = self._nodes.slots(self._running.values())
        for _ in range(len(self._waiting)):
            if max(slots.values(), default=0) <= 0:
                return
            run = self._waiting.popleft()
            if self._prepare(run):
                node = max(slots, key=lambda node: slots[node])
                slots[node] -= 1
                self._send(run, node)

    def _prepare(self, run: _Run) -> bool:
        """Return whether a run can be sent: it is unfinished and not locked by another process."""
        if run.recorder is not None:  # prepared earlier, and lost by a node
            return True
        config = run.config
        if is_cached(config):
            result = execute_run(config, self._batch.config_dir, self._batch.debug)
            self._batch.add(result)
            return False
        from fedbench.runs.recorder import open_recorder  # imports torch, which takes seconds

        try:
            run.recorder = open_recorder(config.path, wait=False)
        except Timeout:
            self._waiting.append(run)
            return False
        if config.force:
            run.recorder.clear()
        continue_shorter(config, run.recorder)
        return True

    def _send(self, run: _Run, node: str) -> None:
        """Send a run to a node as its next attempt."""
        run.key = next(self._keys)
        run.node_id = node
        run.node_name = self._nodes.names[node]
        run.received_at = time.monotonic()
        run.attempts += 1
        task = self._task.options(scheduling_strategy=self._on_node(node))
        files = read_files(run.config.path)
        reference = task.remote(
            self._shared, run.config, run.key, files, self._mailbox, self._ray.put
        )
        self._running[reference] = run

    def _wait(self) -> None:
        """Wait briefly, read messages and results, and abandon silent attempts."""
        ended: Sequence[Any] = ()
        running = list(self._running)
        if running:
            ended, _ = self._ray.wait(running, num_returns=1, timeout=_POLL_SECONDS)
        else:
            time.sleep(_POLL_SECONDS)
        now = time.monotonic()  # before reading files, which may exceed the silence limit
        self._read_messages(now)
        for reference in ended:
            self._collect(reference)
        for reference, run in list(self._running.items()):
            if run.silent(now):
                del self._running[reference]
                self._ray.cancel(reference, force=True)
                self._retry(run, "is silent", math.inf)

        progress = [
            RunProgress(run.round, run.config.rounds, run.node_name)
            for run in self._running.values()
        ]
        self._display.show(self._batch.statuses(), progress)

    def _read_messages(self, now: float) -> None:
        """Read the messages of the current attempts, and write their checkpoints."""
        messages = self._ray.get(self._mailbox.take.remote())
        for run in self._running.values():
            if run.key not in messages:
                continue
            run.round, saved = messages[run.key]
            run.received_at = now
            self._nodes.suspected.pop(run.node_id, None)
            # if files are lost with the node or another process has the run, the previous
            # checkpoint remains valid
            with suppress(self._ray.exceptions.RayError, NotWritten):
                for reference in saved:
                    run.write(self._ray.get(reference, timeout=SILENT_SECONDS))

    def _collect(self, reference: Any) -> None:
        """Process the result and the files of a task that has ended."""
        run = self._running.pop(reference)
        errors = self._ray.exceptions
        files: Files = {}
        try:
            result, files = self._ray.get(reference)
        except errors.RayTaskError as error:  # a fault of the node; errors of runs are in results
            reason = str(error.cause).partition("\n")[0]
            self._nodes.excluded[run.node_id] = reason
            print(f"fedbench: node {run.node_name} is left out: {reason}", file=sys.stderr)
            self._waiting.appendleft(run)
            return
        except errors.TaskCancelledError:
            result = run.result("interrupted")
        except errors.RayError as error:
            loss = f"has lost its process ({str(error).partition('.')[0]})"
            self._retry(run, loss, SUSPECT_SECONDS)
            return
        try:
            run.write(files)
        except NotWritten as error:
            result = run.result("failed", str(error))
        if result.status in ("done", "diverged"):
            outcome = Outcome(read_run(run.config.path), fresh=True)
            result = replace(result, outcome=outcome)
        self._finish(run, result)

    def _retry(
        self,
        run: _Run,
        loss: str,
        suspect_seconds: float,
    ) -> None:
        """Queue a run for another attempt, or give it up if it was lost too often."""
        self._nodes.suspected[run.node_id] = time.monotonic() + suspect_seconds
        if run.attempts >= ATTEMPTS:
            self._finish(run, run.result("failed", f"it {loss}, for the {ATTEMPTS}rd time"))
            return
        name = " ".join(run.config.overrides)
        print(f"fedbench: {name} {loss} on {run.node_name}: again", file=sys.stderr)
        self._waiting.appendleft(run)

    def _finish(self, run: _Run, result: RunResult) -> None:
        """Release the lock of a run and add its result to the batch."""
        assert run.recorder is not None
        run.recorder.close()
        self._batch.add(replace(result, path=begun(run.config)))

    def _stop(self) -> None:
        """Let all runs finish and send their round; a second Ctrl-C ends them at once."""
        references = list(self._running)
        if not references:
            return
        for reference in references:
            self._ray.cancel(reference)
        everyone = len(references)
        ended, _ = self._ray.wait(references, num_returns=everyone, timeout=PATIENCE)
        self._read_messages(time.monotonic())
        for reference in ended:
            self._collect(reference)


# ---- between the processes


class Mailbox:
    """An actor that collects the messages of all tasks, on the node of the driver."""

    def __init__(self) -> None:
        self._messages: dict[int, tuple[int, Sequence[Any]]] = {}

    def send(
        self,
        key: int,
        round: int,
        saved: Sequence[Any],
    ) -> None:
        """Receive the round of an attempt and, after a checkpoint, a reference to its files.

        The files stay on their node until they are read, because the files of a thousand runs would
        not fit here.
        """
        _, earlier = self._messages.get(key, (0, ()))
        # a new checkpoint supersedes the previous one
        self._messages[key] = round, saved or earlier

    def take(self) -> dict[int, tuple[int, Sequence[Any]]]:
        """Return the messages since the last call, by key of the attempt."""
        messages = self._messages
        self._messages = {}
        return messages


def run_task(
    shared: Shared,
    config: RunConfig,
    key: int,
    files: Files,
    mailbox: Any,
    put: Callable[[Files], Any],
) -> tuple[RunResult, Files]:
    """Execute a run as a Ray task that sends its messages to a mailbox; see ``run_on_node``."""

    def send(round: int, *saved: Any) -> None:
        mailbox.send.remote(key, round, saved)

    return run_on_node(shared, config, files, send, put)

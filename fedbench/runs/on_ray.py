"""Runs on a Ray cluster: a task per run, in a scratch directory of its node; this process alone writes the results.

A task gets the files of the run that are here already, and sends its own after every checkpoint and at its end. So
nodes need not see the results directory, no lock crosses machines, and a node that was given up can write nothing when
it wakes: what comes from an attempt that is over is dropped. A run that is lost with its node, or is silent, goes on
elsewhere from the last checkpoint that came.
"""

from __future__ import annotations

import math
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from fedbench.config.schema import RunConfig
from fedbench.core.atomic_files import NotWritten
from fedbench.core.errors import RequestError, install_hint
from fedbench.runs.cached_run import Outcome, continue_shorter
from fedbench.runs.pool import PATIENCE, RunBatch, RunResult, attempt, execute, note
from fedbench.runs.process import Interrupted, answered_by, available_cores, raise_interrupted
from fedbench.runs.progress import Going, PoolView
from fedbench.runs.ray_task import Key, Mailbox, packed, sent, unpack, work
from fedbench.runs.run import CHECKPOINT, LOCK, NODE, is_done, read_run

if TYPE_CHECKING:
    from fedbench.runs.recorder import Recorder

ATTEMPTS = 3  # of a run that loses its process or is silent
SILENT_SECONDS = 60.0  # without a message, which come every two seconds from a process that is not frozen
STALLED_SECONDS = 900.0  # for a round at least, and for the first one with the data and the compiler
STALLED_TIMES = 20.0  # the longest round of a run, if that is more
QUEUED_SECONDS = 60.0  # for a task to start while its resources are free; more at each attempt, if imports are slow
DOUBT_SECONDS = 60.0  # in which a node that has lost a process gets no run; Ray notices within them whether it is dead
_LOOK = 1.0  # seconds between two looks at what has come


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster.

    Attributes:
        address: ``HOST:PORT`` of the head, or None for a cluster of this machine alone.
        cpus: Number of cores of a run.
        gpus: Number of GPUs of a run, also a part of one; None is one if the cluster has any.
    """

    address: str | None = None
    cpus: float = 1.0
    gpus: float | None = None


@dataclass
class _Flight:
    """One attempt at a run."""

    number: int
    config: RunConfig
    overrides: Sequence[str]
    lock: FileLock
    recorder: Recorder
    attempt: int = 0
    losses: int = 0  # attempts that ended without a result
    heard: float = 0.0  # when its last message came
    since: float = 0.0  # when it had reached its round, or was sent
    round: int | None = None  # the last one that is known to be over; None before the task has started
    target: str = ""  # identity of the node
    node: str = ""  # its name
    slowest: float = 0.0  # seconds of a round

    @property
    def key(self) -> Key:
        """What messages of this attempt are called."""
        return self.number, self.attempt

    def hear(self, now: float, round: int, node: str) -> None:
        """Take note of a message."""
        if round != self.round:
            if self.round:  # the first round has the data and the compiler before it
                self.slowest = max(self.slowest, now - self.since)
            self.since = now
        self.heard, self.round, self.node = now, round, node

    def stalled(self, now: float) -> bool:
        """Return whether it is to be given up."""
        if self.round is None:
            return now - self.since > QUEUED_SECONDS * self.attempt
        limit = max(STALLED_SECONDS, STALLED_TIMES * self.slowest)
        return now - self.heard > SILENT_SECONDS or now - self.since > limit


class OnRay:
    """The runs that a Ray cluster carries out.

    Args:
        runs: The runs.
        cluster: The cluster.
        found: The list that results are added to.

    Raises:
        RequestError: If Ray is not installed, the cluster cannot be reached, or no node can carry out a run.
    """

    def __init__(self, runs: RunBatch, cluster: Cluster, found: list[RunResult]) -> None:
        self._runs, self._found = runs, found
        self._view = PoolView(len(runs.overrides))
        self._ray = _connected(cluster)
        here = self._ray.get_runtime_context().get_node_id()
        self._on = partial(self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy, soft=False)
        self._mailbox = self._ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=self._on(here)).remote()
        gpus = float("GPU" in self._ray.cluster_resources()) if cluster.gpus is None else cluster.gpus
        self._wanted = {"CPU": cluster.cpus, "GPU": gpus}
        # where a task has GPUs, Ray ends its process with it: another task would have others
        self._task = self._ray.remote(num_cpus=cluster.cpus, num_gpus=gpus, max_retries=0)(work)
        self._sent = self._ray.put(sent(runs, max(1, int(cluster.cpus))))
        self._flying: dict[Any, _Flight] = {}  # by the reference of the task's result
        self._lost: deque[_Flight] = deque()  # to be started again
        self._waiting = deque(enumerate(runs.overrides))
        self._busy: set[int] = set()  # numbers of runs that another process works on
        self._doubted: dict[str, float] = {}  # until when nodes get no run, as long as there are others
        self._unfit: dict[str, str] = {}  # why nodes cannot carry out runs

    def work_through(self) -> None:
        """Carry out all runs.

        Raises:
            Interrupted: If a signal asked this process to end.
        """
        came: list[int] = []

        def end(number: int, frame: FrameType | None) -> None:
            came.append(number)
            raise Interrupted(number)

        try:
            with self._view.bars, answered_by(end):
                while self._waiting or self._lost or self._flying:
                    self._fill()
                    self._await()
        except BaseException as error:
            self._stop()
            if came:  # Ray raises a KeyboardInterrupt of its own over it
                raise Interrupted(came[0]) from error
            raise
        finally:
            for flight in (*self._flying.values(), *self._lost):
                flight.lock.release()
            self._ray.shutdown()

    def _fill(self) -> None:
        """Start runs while there is a node for them: first those that were lost, then others in their order.

        Tasks are sent to a node by name: where Ray chooses, all tasks wait behind one for a node that is frozen.
        """
        room, now = self._room(), time.monotonic()
        room = {node: free for node, free in room.items() if self._doubted.get(node, 0.0) < now} or room
        busy = 0  # runs that another process is working on: they wait, and the others go first
        while any(free > 0 for free in room.values()) and (self._lost or busy < len(self._waiting)):
            if self._lost:
                flight: _Flight | None = self._lost.popleft()
            else:
                number, overrides = self._waiting.popleft()
                flight = self._begun(number, overrides)
                if number in self._busy:
                    busy += 1
                    self._waiting.append((number, overrides))
            if flight is not None:
                node = max(room, key=lambda node: room[node])
                room[node] -= 1
                self._launch(flight, node)

    def _room(self) -> dict[str, int]:
        """Return for how many more runs the nodes have room.

        Raises:
            RequestError: If no node can ever carry out one.
        """
        room = {}
        for node in self._ray.nodes():
            there = node["Resources"]
            slots = int(min(there.get(name, 0.0) / number for name, number in self._wanted.items() if number))
            if node["Alive"] and slots and node["NodeID"] not in self._unfit:
                room[node["NodeID"]] = slots - sum(f.target == node["NodeID"] for f in self._flying.values())
        if not room and (self._unfit or not self._doubted):  # where all nodes have died, others may come
            cores, gpus = self._wanted.values()
            why = next(iter(self._unfit.values()), f"none has {cores:g} cores and {gpus:g} GPUs for a run")
            raise RequestError(f"no node of the Ray cluster can carry out runs: {why}")
        return room

    def _begun(self, number: int, overrides: Sequence[str]) -> _Flight | None:
        """Return a run that is to be carried out, with its lock; None if it is over, or another process is at it."""
        self._busy.discard(number)
        config = attempt(overrides, self._runs.config_dir, partial(self._runs.compose, overrides))
        if isinstance(config, RunResult):
            note(self._runs, config, self._found)
            return None
        if is_done(config.path) and not config.force and not (config.path / CHECKPOINT).exists():
            note(self._runs, execute(self._runs, config, overrides), self._found)
            return None
        from fedbench.runs.recorder import Recorder  # imports torch, which takes seconds

        recorder = Recorder(config.path)
        lock = FileLock(config.path / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            self._busy.add(number)
            return None
        recorder.guard(config.path / LOCK)
        if config.force:
            recorder.clear()
        continue_shorter(config, recorder)
        return _Flight(number, config, overrides, lock, recorder)

    def _launch(self, flight: _Flight, node: str) -> None:
        """Start the next attempt at a run on a node."""
        flight.attempt, flight.round, flight.since = flight.attempt + 1, None, time.monotonic()
        flight.target, flight.slowest = node, 0.0  # another node may be slower
        task, files = self._task.options(scheduling_strategy=self._on(node)), packed(flight.config.path)
        given = flight.config, flight.overrides, flight.key, files, self._mailbox, self._ray.put
        self._flying[task.remote(self._sent, *given)] = flight

    def _await(self) -> None:
        """Wait for a moment, take what has come, and give up what does not move."""
        ready: Sequence[Any] = ()
        if self._flying:
            ready, _ = self._ray.wait(list(self._flying), num_returns=1, timeout=_LOOK)
        else:
            time.sleep(_LOOK)
        now = time.monotonic()  # what is read may take longer than a stall
        self._read(now)
        for ref in ready:
            self._end(self._flying.pop(ref), ref)
        for ref, flight in list(self._flying.items()):
            if flight.stalled(now):
                del self._flying[ref]
                self._ray.cancel(ref, force=True)
                self._again(flight, "is silent" if flight.round is not None else "", math.inf)
        going = [Going(f.round or 0, f.config.rounds, f.node) for f in self._flying.values()]
        self._view.look([e.status for e in self._found], going)

    def _read(self, now: float) -> None:
        """Take the messages of the attempts that go on; checkpoints are written to the results directory."""
        rounds, saved = self._ray.get(self._mailbox.take.remote())
        for flight in self._flying.values():
            if flight.key in rounds:
                if flight.round is None:
                    (flight.config.path / NODE).write_text(rounds[flight.key][1])  # for fedbench status
                flight.hear(now, *rounds[flight.key])
                self._doubted.pop(flight.target, None)
        for flight in self._flying.values():
            if flight.key in saved:
                # lost with its node, or another process has the run: the checkpoint before it counts
                with suppress(self._ray.exceptions.RayError, NotWritten):
                    flight.recorder.check_lock()
                    unpack(self._ray.get(saved[flight.key][0], timeout=SILENT_SECONDS), flight.config.path)

    def _end(self, flight: _Flight, ref: Any) -> None:
        """Take the result of a task."""
        errors = self._ray.exceptions
        try:
            ended, files = self._ray.get(ref)
        except errors.RayTaskError as error:  # of the node: those of the run are in its result
            self._unfit[flight.target] = why = str(error.cause).partition("\n")[0]
            print(f"fedbench: node {flight.node} is left out: {why}", file=sys.stderr)
            self._lost.append(flight)
            return
        except errors.TaskCancelledError:
            ended, files = RunResult(tuple(flight.overrides), "interrupted"), {}
        except errors.RayError as error:
            self._again(flight, f"has lost its process ({str(error).partition('.')[0]})", DOUBT_SECONDS)
            return
        try:
            flight.recorder.check_lock()
            unpack(files, flight.config.path)
        except NotWritten as error:
            ended = RunResult(tuple(flight.overrides), "failed", error=str(error))
        if ended.status in ("done", "diverged"):
            ended = replace(ended, outcome=Outcome(read_run(flight.config.path), fresh=True))
        self._close(flight, ended)

    def _again(self, flight: _Flight, why: str, doubt: float) -> None:
        """Let a run start again elsewhere, or give it up if it was lost too often; without a reason it never began."""
        self._doubted[flight.target] = time.monotonic() + doubt
        flight.losses += bool(why)
        if flight.losses < ATTEMPTS:
            if why:
                print(f"fedbench: {' '.join(flight.overrides)} {why} on {flight.node}: again", file=sys.stderr)
            self._lost.append(flight)
        else:
            self._close(
                flight, RunResult(tuple(flight.overrides), "failed", error=f"it {why}, for the {ATTEMPTS}rd time")
            )

    def _close(self, flight: _Flight, ended: RunResult) -> None:
        """Let go of a run and note its result."""
        if is_done(flight.config.path):  # a process that waits creates it again, and finds DONE
            (flight.config.path / LOCK).unlink(missing_ok=True)
        (flight.config.path / NODE).unlink(missing_ok=True)
        flight.lock.release()
        left = (flight.config.path / "meta.json").exists()
        note(self._runs, replace(ended, path=flight.config.path if left else None), self._found)

    def _stop(self) -> None:
        """Let all runs finish their round and send it; a second Ctrl-C ends them at once."""
        for ref in self._flying:
            self._ray.cancel(ref)
        refs = list(self._flying)
        ready, _ = self._ray.wait(refs, num_returns=len(refs), timeout=PATIENCE) if refs else ((), ())
        self._read(time.monotonic())
        for ref in ready:
            self._end(self._flying.pop(ref), ref)


def _connected(cluster: Cluster) -> Any:
    """Return Ray, connected to a cluster."""
    try:
        import ray
        import ray.exceptions
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise RequestError(f"--on ray needs Ray; {install_hint('ray')}") from error
    address, cores = (cluster.address, None) if cluster.address else ("local", available_cores())
    host, _, port = address.rpartition(":")
    try:
        if host:
            socket.create_connection((host, int(port)), timeout=10).close()  # Ray tries for minutes
        with answered_by(raise_interrupted):  # which removes Ray's handler of SIGTERM again
            ray.init(address, num_cpus=cores, log_to_driver=False, configure_logging=False)
    except (OSError, RuntimeError, ValueError) as error:
        why = str(error).splitlines()[0]
        hint = "ray start --head begins one; set RAY_AUTH_MODE=token if it has a token"
        raise RequestError(f"there is no Ray cluster at {address}: {why}; {hint}") from error
    return ray

"""Runs on a Ray cluster: a task per run, in a scratch directory of its node; this process alone writes the results.

A task gets the files of the run that are here already, and sends its own after every checkpoint and at its end. So
nodes need not see the results directory, no lock crosses machines, and a node that was given up can write nothing when
it wakes: what comes from an attempt that is over is dropped. A run that is lost with its node, or does not move any
more, goes on elsewhere from the last checkpoint that came.
"""

from __future__ import annotations

import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError, install_hint
from fedbench.runs.cached_run import Outcome
from fedbench.runs.pool import PATIENCE, Ended, Runs, attempt, carry_out, note
from fedbench.runs.process import available_cores
from fedbench.runs.progress import Going, PoolView
from fedbench.runs.ray_task import Key, Mailbox, packed, sent, unpack, work
from fedbench.runs.run import CHECKPOINT, is_done, read_run

ATTEMPTS = 3  # of a run that loses its process or does not move
STALLED_TIMES = 20.0  # the longest time between two messages of a run, after which it is started elsewhere
STALLED_SECONDS = 60.0  # but no sooner than this
START_SECONDS = 900.0  # for the first round, with the data and the compiler
QUEUED_SECONDS = 60.0  # for a task to start while its resources are free
_LOOK = 1.0  # seconds between two looks at what has come


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster.

    Attributes:
        address: ``HOST:PORT`` of the head, or None for a cluster of this machine alone.
        cpus: Number of cores of a run.
        gpus: Number of GPUs of a run, also a part of one.
    """

    address: str | None = None
    cpus: float = 1.0
    gpus: float = 0.0


@dataclass
class _Flight:
    """One attempt at a run."""

    number: int
    config: RunConfig
    overrides: Sequence[str]
    lock: FileLock
    attempt: int = 0
    losses: int = 0  # attempts that ended without a result
    since: float = field(default_factory=time.monotonic)  # of the last message
    round: int | None = None  # the last one that is known to be over; None before the task has started
    target: str = ""  # identity of the node
    node: str = ""  # its name
    slowest: float = 0.0  # seconds from one message to the next

    @property
    def key(self) -> Key:
        """What messages of this attempt are called."""
        return self.number, self.attempt

    def moved(self, round: int, node: str) -> None:
        """Take note of a message."""
        now = time.monotonic()
        if self.round:  # the first round has the data and the compiler before it
            self.slowest = max(self.slowest, now - self.since)
        self.since, self.round, self.node = now, round, node

    def limit(self) -> float:
        """Return after how many seconds without a message it is given up."""
        if self.round is None:
            return QUEUED_SECONDS
        return max(STALLED_SECONDS, STALLED_TIMES * self.slowest) if self.slowest else START_SECONDS


class OnRay:
    """The runs that a Ray cluster carries out.

    Args:
        runs: The runs.
        cluster: The cluster.
        found: The list that results are added to.

    Raises:
        RequestError: If Ray is not installed, or the cluster cannot be reached.
    """

    def __init__(self, runs: Runs, cluster: Cluster, found: list[Ended]) -> None:
        self._runs, self._cluster, self._found = runs, cluster, found
        self._view = PoolView(len(runs.overrides))
        self._ray = _connected(cluster)
        here = self._ray.get_runtime_context().get_node_id()
        near = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        self._mailbox = self._ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=near).remote()
        self._task = self._ray.remote(work)
        self._resources = {"num_cpus": cluster.cpus, "num_gpus": cluster.gpus, "max_retries": 0}
        self._sent = self._ray.put(sent(runs, max(1, int(cluster.cpus))))
        self._flying: dict[Any, _Flight] = {}  # by the reference of the task's result
        self._lost: deque[_Flight] = deque()  # to be started again
        self._waiting = deque(enumerate(runs.overrides))
        self._busy: set[int] = set()  # numbers of runs that another process works on
        self._doubted: set[str] = set()  # nodes on which something does not move

    def work_through(self) -> None:
        """Carry out all runs."""
        try:
            with self._view.bars:
                while self._waiting or self._lost or self._flying:
                    self._fill()
                    self._await()
        except BaseException:
            self._stop()
            raise
        finally:
            for flight in (*self._flying.values(), *self._lost):
                flight.lock.release()
            self._ray.shutdown()

    def _fill(self) -> None:
        """Start runs while there is a node for them: first those that were lost, then others in their order."""
        busy = 0  # runs that another process is working on: they wait, and the others go first
        while (node := self._free_node()) is not None and (self._lost or busy < len(self._waiting)):
            if self._lost:
                self._launch(self._lost.popleft(), node)
                continue
            number, overrides = self._waiting.popleft()
            flight = self._begun(number, overrides)
            if flight is not None:
                self._launch(flight, node)
            elif number in self._busy:
                busy += 1
                self._waiting.append((number, overrides))

    def _free_node(self) -> str | None:
        """Return the node with most room for a run, of those in no doubt if there is one; None if none has room.

        Tasks are sent to a node by name: where Ray chooses, all tasks wait behind one for a node that is frozen.
        """
        wanted = {"CPU": self._cluster.cpus, "GPU": self._cluster.gpus}
        room: dict[str, int] = {}
        for node in self._ray.nodes():
            if node["Alive"]:
                there = node["Resources"]
                slots = int(min(there.get(name, 0.0) / number for name, number in wanted.items() if number))
                room[node["NodeID"]] = slots - sum(f.target == node["NodeID"] for f in self._flying.values())
        trusted = {node: free for node, free in room.items() if node not in self._doubted}
        best = max(trusted or room, key=lambda node: room[node], default=None)
        return best if best is not None and room[best] > 0 else None

    def _begun(self, number: int, overrides: Sequence[str]) -> _Flight | None:
        """Return a run that is to be carried out, with its lock; None if it is over, or another process is at it."""
        self._busy.discard(number)
        config = attempt(overrides, self._runs.own, partial(self._runs.compose, overrides))
        if isinstance(config, Ended):
            note(self._runs, config, self._found)
            return None
        if is_done(config.path) and not config.force and not (config.path / CHECKPOINT).exists():
            note(self._runs, carry_out(self._runs, config, overrides), self._found)
            return None
        config.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(config.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            self._busy.add(number)
            return None
        if config.force:
            from fedbench.runs.recorder import Recorder  # imports torch, which takes seconds

            Recorder(config.path).clear()
        return _Flight(number, config, overrides, lock)

    def _launch(self, flight: _Flight, node: str) -> None:
        """Start the next attempt at a run on a node."""
        flight.attempt, flight.round, flight.since = flight.attempt + 1, None, time.monotonic()
        flight.target, flight.slowest = node, 0.0  # another node may be slower
        files = packed(flight.config.path)
        there = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        task = self._task.options(**self._resources, scheduling_strategy=there)
        ref = task.remote(self._sent, flight.config, flight.overrides, flight.key, files, self._mailbox)
        self._flying[ref] = flight

    def _await(self) -> None:
        """Wait for a moment, take what has come, and give up what does not move."""
        ready: Sequence[Any] = ()
        if self._flying:
            ready, _ = self._ray.wait(list(self._flying), num_returns=1, timeout=_LOOK)
        else:
            time.sleep(_LOOK)
        self._read()
        for ref in ready:
            self._end(self._flying.pop(ref), ref)
        for ref, flight in list(self._flying.items()):
            if time.monotonic() - flight.since > flight.limit():
                del self._flying[ref]
                self._ray.cancel(ref, force=True)
                self._doubted.add(flight.target)
                self._again(flight, "does not move" if flight.round is not None else "")
        going = [Going(f.round or 0, f.config.rounds, f.node) for f in self._flying.values()]
        self._view.look([e.status for e in self._found], going)

    def _read(self) -> None:
        """Take the messages of the attempts that go on; checkpoints are written to the results directory."""
        rounds, saved = self._ray.get(self._mailbox.take.remote())
        for flight in self._flying.values():
            if flight.key in rounds:
                flight.moved(*rounds[flight.key])
                self._doubted.discard(flight.target)
            if flight.key in saved:
                unpack(saved[flight.key], flight.config.path)

    def _end(self, flight: _Flight, ref: Any) -> None:
        """Take the result of a task."""
        errors = self._ray.exceptions
        try:
            ended, files = self._ray.get(ref)
        except errors.RayTaskError as error:
            ended, files = Ended(tuple(flight.overrides), "failed", error=str(error.cause)), {}
        except errors.TaskCancelledError:
            ended, files = Ended(tuple(flight.overrides), "interrupted", flight.config.path), {}
        except errors.RayError as error:
            self._again(flight, f"has lost its process ({str(error).partition('.')[0]})")
            return
        if files:
            unpack(files, flight.config.path)
        if ended.status in ("done", "diverged"):
            ended = replace(ended, outcome=Outcome(read_run(flight.config.path), fresh=True))
        self._release(flight)
        left = (flight.config.path / "meta.json").exists()
        note(self._runs, replace(ended, path=flight.config.path if left else None), self._found)

    def _again(self, flight: _Flight, why: str) -> None:
        """Let a run start again elsewhere, or give it up if it was lost too often; without a reason it never began."""
        flight.losses += bool(why)
        if flight.losses < ATTEMPTS:
            if why:
                print(f"fedbench: {' '.join(flight.overrides)} {why} on {flight.node}: again", file=sys.stderr)
            self._lost.append(flight)
            return
        self._release(flight)
        left = (flight.config.path / "meta.json").exists()
        path, error = flight.config.path if left else None, f"it {why}, for the {ATTEMPTS}rd time"
        note(self._runs, Ended(tuple(flight.overrides), "failed", path, error), self._found)

    def _release(self, flight: _Flight) -> None:
        if is_done(flight.config.path):  # a process that waits holds this very file, and finds DONE
            Path(flight.lock.lock_file).unlink(missing_ok=True)
        flight.lock.release()

    def _stop(self) -> None:
        """Let all runs finish their round and send it; a second Ctrl-C ends them at once."""
        for ref in self._flying:
            self._ray.cancel(ref)
        ready, _ = self._ray.wait(list(self._flying), num_returns=len(self._flying), timeout=PATIENCE)
        self._read()
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
    quiet = {"log_to_driver": False, "configure_logging": False}
    if cluster.address is None:
        ray.init("local", num_cpus=available_cores(), include_dashboard=False, **quiet)
        return ray
    host, _, port = cluster.address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()  # Ray tries for minutes
        ray.init(cluster.address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise RequestError(
            f"there is no Ray cluster at {cluster.address}: {why}; ray start --head begins one"
        ) from error
    return ray

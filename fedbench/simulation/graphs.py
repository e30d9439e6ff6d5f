"""Local steps replayed from CUDA graphs.

A local step is a function of tensors: the broadcast, the local variables, the batch and the facts of the clients. Here
one call of it is captured into a graph that reads these from memory of its own and writes the new local variables back
there. A step then is one launch, after the batch has been copied in, instead of hundreds.

A graph has fixed shapes. Where fewer clients are at work, or batches are narrower, than the graph has room for, the
remaining rows have weight 0; what they compute is not read. Numbers of clients and widths are rounded up as ``rounded``
says, so that a thread captures at most (log2 C + 2)(log2 B + 2) graphs for each step function, C clients of a chunk and
B examples of a batch, for each C and B that ``rounded`` leaves; the oldest is dropped above ``MOST``. The sizes depend
on the chunk alone, not on what was captured before, so that a resumed run repeats the same bits.

The docstrings of ``torch.cuda.graph`` and ``CUDAGraph`` say what a capture requires.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from math import prod
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fedbench.core.algorithm import Step
from fedbench.core.errors import RequestError
from fedbench.core.types import Batch, ClientInfo, Oracle, State
from fedbench.simulation.memory import allocation_failed
from fedbench.simulation.steps import descend_, in_place

MOST = 128  # captures of a thread
_WARM_UP = 3  # calls before a capture, in which libraries choose kernels and allocate workspaces

_Spec: TypeAlias = tuple[tuple[str, torch.Size, torch.dtype], ...]  # name, shape of a client's part, type

# Only one capture may be under way in a process. Held by warm-ups too: a kernel that is loaded at its first launch may
# need the whole device, which a capture of another thread does not stand.
_CAPTURING = threading.RLock()


def rounded(count: int, most: int, bound: int | None = None) -> int:
    """Return the next power of two from ``count`` on, but not more than what ``most`` is rounded up to.

    The largest size is rounded up in steps of a quarter of a power of two, since most of the work is done there.

    Args:
        count: Number of clients, or of examples.
        most: The largest such number of the same chunk.
        bound: The largest possible such number, which is not exceeded; None is no bound.
    """
    unit = 1 << max(0, most.bit_length() - 3)
    size = min(1 << (count - 1).bit_length(), -(-most // unit) * unit)
    return size if bound is None else min(size, bound)


class Graphs:
    """The captured steps of an engine, by worker thread.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._threads: dict[int, StepGraphs] = {}

    def of_thread(self) -> StepGraphs:
        """Return the captures of the calling thread."""
        return self._threads.setdefault(threading.get_ident(), StepGraphs(self._device))

    def clear(self) -> None:
        """Drop all captures and their memory; no thread may be at work."""
        for captures in self._threads.values():
            captures.clear()


@dataclass(frozen=True)
class Phase:
    """A local phase of one chunk.

    Attributes:
        step: The local step.
        oracle: Computes losses and gradients.
        msg: The broadcast.
        info: Facts of the clients, leaves [C, 1].
        width: Largest number of examples of a batch.
        bound: The number of examples of a full batch; None if it is all examples of a client.
    """

    step: Step
    oracle: Oracle
    msg: State
    info: ClientInfo
    width: int
    bound: int | None


@dataclass(frozen=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    after: _Spec  # of the local variables that the step leaves
    step: Step  # held, so that no other function takes its identity


class StepGraphs:
    """The captured steps of one thread, and the memory that they read and write.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream | None = None
        self.clear()

    def clear(self) -> None:
        """Drop all captures and their memory."""
        if self._stream is not None:
            torch.cuda.synchronize(self._device)  # replays may be under way
        self._memory: dict[tuple[str, str, torch.dtype, torch.Size], Tensor] = {}
        self._captures: dict[object, _Captured] = {}
        self._pool: Any = None  # a pool whose graphs are gone cannot be used again

    def train(self, phase: Phase, local: State, batches: Iterable[tuple[Batch, int]]) -> State:
        """Return the local variables [C, ...] after all steps.

        Args:
            phase: The local phase.
            local: The local variables before the first step, [C, ...].
            batches: (batch, A) per step; the first A clients are still at work.

        Raises:
            RequestError: If the step cannot be captured.
        """
        active = count = len(phase.info.id)
        room, facts = rounded(count, count), _facts(phase.info)
        finished: State = {}
        spec, known = _spec(local), (_spec(facts), _spec(phase.msg, 0), id(phase.step), id(phase.oracle))
        msg = {k: self._view("msg", k, v.dtype, (), v.shape, 1).copy_(v) for k, v in phase.msg.items()}
        for kind, values in (("local", local), ("info", facts)):
            for name, v in self._rows(kind, _spec(values), count, room).items():
                v.copy_(values[name])
        for batch, k in batches:
            if k < active:
                self._take_out(finished, spec, k, active, count, room)
                active = k
            a, b = rounded(k, count), rounded(batch.y.shape[1], phase.width, phase.bound)
            still = self._fill(batch, a, b, room * rounded(phase.width, phase.width, phase.bound))
            key = (a, b, spec, known, *((v.shape[2:], v.dtype) for v in batch[:2]), batch.key is None)
            if key not in self._captures:
                info = _info(self._rows("info", _spec(facts), a, room))
                self._captures[key] = self._capture(phase, msg, spec, still, info, a, room)
            captured = self._captures[key]
            captured.graph.replay()
            spec = captured.after
        self._take_out(finished, spec, 0, active, count, room)
        return finished

    def _view(
        self, kind: str, name: str, dtype: torch.dtype, lead: tuple[int, ...], tail: torch.Size, room: int
    ) -> Tensor:
        """Return a tensor [*lead, *tail] at the beginning of the memory of this name, which has ``room`` tails."""
        memory = self._memory.get((kind, name, dtype, tail))
        if memory is None or len(memory) < room * tail.numel():
            if memory is not None:
                self._forget()  # what is captured reads the old memory
            memory = torch.zeros(room * tail.numel(), dtype=dtype, device=self._device)
            self._memory[kind, name, dtype, tail] = memory
        return memory[: prod(lead) * tail.numel()].view(*lead, *tail)

    def _rows(self, kind: str, spec: _Spec, count: int, room: int) -> State:
        """Return the memory of the first ``count`` of ``room`` clients."""
        return {k: self._view(kind, k, dtype, (count,), tail, room) for k, tail, dtype in spec}

    def _fill(self, batch: Batch, a: int, b: int, room: int) -> Batch:
        """Copy a batch in, and return its memory: a clients with b examples, of weight 0 where there are none.

        What other memory holds there are earlier examples, labels and keys, or zeros: always valid ones.
        """
        k, width = batch.weight.shape
        x, y, weight = (
            self._view("batch", name, v.dtype, (a, b), v.shape[2:], room)
            for name, v in zip(("x", "y", "weight"), batch[:3], strict=True)
        )
        if (a, b) != (k, width):
            weight.zero_()
        for target, v in zip((x, y, weight), batch[:3], strict=True):
            target[:k, :width].copy_(v)
        if batch.key is None:
            return Batch(x, y, weight)
        keys = self._view("batch", "key", batch.key.dtype, (a,), torch.Size(), room)
        keys[:k].copy_(batch.key)
        return Batch(x, y, weight, keys)

    def _take_out(self, finished: State, spec: _Spec, start: int, stop: int, count: int, room: int) -> None:
        """Copy the clients start..stop out."""
        for name, v in self._rows("local", spec, stop, room).items():
            if name not in finished:
                finished[name] = v.new_empty(count, *v.shape[1:])
            finished[name][start:stop] = v[start:]

    def _capture(
        self, phase: Phase, msg: State, spec: _Spec, batch: Batch, info: ClientInfo, a: int, room: int
    ) -> _Captured:
        """Capture a step of ``a`` clients on the memory of this thread, which it leaves as it is."""
        local = self._rows("local", spec, a, room)
        plain = in_place(phase.step, phase.oracle)

        def take(local: State) -> State:
            if plain:
                descend_(phase.step, phase.oracle, msg, local, batch, info)
                return local
            return phase.step(phase.oracle, msg, local, batch, info)

        with _CAPTURING:
            after = self._warmed_up(lambda: take({k: v.clone() for k, v in local.items()}))
            while len(self._captures) >= MOST:
                self._settle()
                del self._captures[next(iter(self._captures))]
            target = self._rows("local", after, a, room)
            target |= {k: local[k] for k, tail, dtype in after if (k, tail, dtype) in spec}
            return _Captured(self._record(lambda: _write(take(local), target)), after, phase.step)

    def _warmed_up(self, work: Callable[[], State]) -> _Spec:
        """Do ``work`` on the stream of captures until it is ready to be captured, and return what it results in."""
        here = torch.cuda.current_stream(self._device)
        if self._stream is None:  # that of a worker thread is its own; the default stream cannot be captured
            own = here != torch.cuda.default_stream(self._device)
            self._stream = here if own else torch.cuda.Stream(self._device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            for _ in range(_WARM_UP):
                after = _spec(work())
        here.wait_stream(self._stream)
        return after

    def _record(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Return ``work`` as a graph; it is not carried out.

        Raises:
            RequestError: If it cannot be captured.
        """
        graph, here = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        try:
            with (
                torch.cuda.stream(here),  # restored even if the capture cannot end
                # other threads may allocate memory meanwhile; graphs of a thread share a pool, since nothing stays in
                # it from one replay to the next
                torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"),
            ):
                work()
        except RuntimeError as error:
            before = error.__context__  # what went wrong first, if the capture could not be ended either
            first = before if isinstance(before, RuntimeError) else error
            del graph
            self._forget()
            if allocation_failed(first):
                raise first from None
            raise RequestError(
                f"a local step cannot be captured in a CUDA graph ({str(first).splitlines()[0]}); use "
                "engine.graphs=false"
            ) from first
        return graph

    def _forget(self) -> None:
        """Drop all captures."""
        with _CAPTURING:
            self._settle()
            self._captures.clear()
            self._pool = None

    def _settle(self) -> None:
        """Wait for the replays of this thread; a wait for the whole device would break a capture of another thread."""
        torch.cuda.current_stream(self._device).synchronize()
        if self._stream is not None:
            self._stream.synchronize()


def _write(new: State, target: State) -> None:
    """Copy the new local variables to their memory; one may be the old value of another."""
    places = {v.untyped_storage().data_ptr() for v in target.values()}
    moved = {k: v for k, v in new.items() if v is not target[k]}
    moved = {k: v.clone() if v.untyped_storage().data_ptr() in places else v for k, v in moved.items()}
    for name, v in moved.items():
        target[name].copy_(v)


def _spec(state: State, lead: int = 1) -> _Spec:
    return tuple((k, v.shape[lead:], v.dtype) for k, v in sorted(state.items()))


def _facts(info: ClientInfo) -> State:
    """Return the leaves by name; those of ``probe`` as "probe.name"."""
    leaves = {f.name: getattr(info, f.name) for f in fields(info) if f.name != "probe"}
    return leaves | {f"probe.{k}": v for k, v in info.probe.items()}


def _info(facts: State) -> ClientInfo:
    """Return the inverse of ``_facts``."""
    probe = {k.removeprefix("probe."): v for k, v in facts.items() if k.startswith("probe.")}
    return ClientInfo(**{k: v for k, v in facts.items() if not k.startswith("probe.")}, probe=probe)

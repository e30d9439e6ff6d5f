"""How a simulation is carried out: clients side by side or one after another, in chunks, on threads."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar

import numpy as np
import torch

from fedbench.core.types import Oracle
from fedbench.simulation.compiled.dense import DenseKernel
from fedbench.simulation.memory import OutOfMemory, allocation_failed

T = TypeVar("T")
U = TypeVar("U")

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # from glibc's malloc.h
_SIMILAR, _SLACK = 1.25, 8  # a chunk's batches differ in size by at most this factor, plus this many examples


def flush_subnormals(on: bool = True) -> None:
    """Treat numbers below the normal range (1e-38 in float32) as 0 in the calling thread, if the CPU can."""
    torch.set_flush_denormal(on)


def keep_memory() -> None:
    """Keep freed memory in this process instead of returning it to the system, if the allocator is glibc's.

    Buffers of a few MB, of which a training step allocates dozens, are otherwise mapped and cleared every time;
    docs/performance.md has measurements. Settings in MALLOC_* environment variables take precedence.
    """
    if sys.platform != "linux" or any(k.startswith("MALLOC_") for k in os.environ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return
    for option, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 64 * 2**20)):
        mallopt(option, value)


def _prepare_thread() -> None:
    """Set a worker thread up, once for all its work: what a thread decides for itself."""
    flush_subnormals()  # they take a CPU several times as long, and decaying moments are full of them
    torch.set_grad_enabled(False)  # as in the threads that hand out the work


Unit: TypeAlias = Literal["clients", "examples"]


@dataclass(frozen=True)
class Limits:
    """What allocation errors have left of the work that is done at once; they hold for the rest of a run.

    Attributes:
        clients: Largest number of clients that a worker trains side by side; None is no limit.
        examples: Largest number of examples in a block that a worker measures; None is no limit.
        workers: Largest number of threads; None is no limit.
        errors: Number of allocation errors so far.
    """

    clients: int | None = None
    examples: int | None = None
    workers: int | None = None
    errors: int = 0


class Engine:
    """How the simulation is carried out; nothing here changes the result beyond rounding.

    Args:
        oracle: Computes losses and gradients.
        mode: "loop", "stacked" or "compiled", for the record of the run.
        cohort_size: Number of clients trained side by side.
        workers: Number of threads that work on chunks.
        kernel: Compiled code for what it can express; None for none.
        automatic: Whether ``cohort_size`` was chosen for the machine and not by the user.

    Attributes:
        limits: What allocation errors have left of these numbers.
        notify: Called with a sentence when an allocation error changes the limits.
    """

    def __init__(
        self,
        oracle: Oracle,
        mode: str,
        cohort_size: int,
        workers: int = 1,
        kernel: DenseKernel | None = None,
        automatic: bool = False,
    ) -> None:
        self.oracle, self.mode, self.kernel = oracle, mode, kernel
        self._cohort_size, self._workers, self._automatic = cohort_size, workers, automatic
        self.limits = Limits()
        self.notify: Callable[[str], None] = lambda sentence: None
        self._pool = self._threads()

    @property
    def cohort_size(self) -> int:
        """Number of clients trained side by side."""
        return self.at_once("clients", self._cohort_size)

    @property
    def workers(self) -> int:
        """Number of threads that work on chunks."""
        return _lower(self._workers, self.limits.workers)

    def at_once(self, unit: Unit, most: int) -> int:
        """Return ``most``, a number of clients or examples, or fewer where memory is short."""
        return _lower(most, self.limits.clients if unit == "clients" else self.limits.examples)

    def resume(self, limits: Limits, cohort_size: int | None) -> None:
        """Go on as an interrupted run did: its limits, and its chunks unless the user has chosen others.

        Args:
            limits: The limits of the run.
            cohort_size: Its number of clients side by side, on which sums depend by rounding; None if not known.
        """
        self.restrict(limits)
        if self._automatic and cohort_size is not None:
            self._cohort_size = cohort_size

    def restrict(self, limits: Limits) -> None:
        """Work within ``limits`` from now on."""
        before, self.limits = self.workers, limits
        if self.workers != before:
            self.close()
            self._pool = self._threads()

    def map(self, f: Callable[[T], U], items: Iterable[T]) -> list[U]:
        """Apply ``f`` to every item, on the worker threads if there are several, and keep the order.

        Worker threads record no gradients; the caller switches them off for the case that there are none. When an error
        is raised, no thread is at work any more.
        """
        items = list(items)
        if self._pool is None or len(items) == 1:
            return [f(item) for item in items]
        futures = [self._pool.submit(f, item) for item in items]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()
            wait(futures)

    def within_memory(self, work: Callable[[], T], unit: Unit, used: Callable[[], int], alone: str) -> T:
        """Return ``work()``; if memory runs out, do half as much at once from now on, and start ``work`` again.

        What is done at once is halved down to one client or example per thread, then the threads are halved.

        Args:
            work: A function that follows the limits and can be called again: what it has finished it does not repeat,
                and what it has not finished it has not changed.
            unit: What it does several of at once.
            used: Returns how many of them a thread does at once.
            alone: What remains to be done at once in the end, and how to make it smaller, for the message.

        Raises:
            OutOfMemory: If one client or example does not fit on a single thread.
        """
        while True:
            try:
                return work()
            except (MemoryError, RuntimeError) as error:
                if not allocation_failed(error):
                    raise
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            gc.collect()  # the frames of the failed attempt hold its tensors
            self._halve(unit, used(), alone, reason)
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()  # torch would keep blocks of other sizes

    def _halve(self, unit: Unit, used: int, alone: str, reason: str) -> None:
        errors, half = self.limits.errors + 1, -(-used // 2)
        if used == 1 and self.workers == 1:
            raise OutOfMemory(f"{alone} ({reason})")
        if used == 1:
            limits = replace(self.limits, workers=self.workers // 2, errors=errors)
        elif unit == "clients":
            limits = replace(self.limits, clients=half, errors=errors)
        else:
            limits = replace(self.limits, examples=half, errors=errors)
        self.restrict(limits)
        changed = f"{self.workers} threads" if used == 1 else f"{half} {unit} per thread"
        self.notify(f"memory ran out; this part of the round is repeated with at most {changed} at a time ({reason})")

    def _threads(self) -> ThreadPoolExecutor | None:
        return ThreadPoolExecutor(self.workers, initializer=_prepare_thread) if self.workers > 1 else None

    def close(self) -> None:
        """End the worker threads."""
        if self._pool is not None:
            self._pool.shutdown()


def chunks(ids: np.ndarray, tau: np.ndarray, widths: np.ndarray, size: int) -> list[np.ndarray]:
    """Cut a cohort into chunks of at most ``size`` clients that have similar work.

    Clients are ordered by falling steps, then by falling batch width, so that those that finish leave the batch of
    their chunk; a chunk ends early where padding to its widest batch would waste more than a quarter.

    Args:
        ids: The clients [C].
        tau: Their numbers of local steps [C].
        widths: Sizes of their largest batches [C].
        size: Maximum number of clients of a chunk.

    Returns:
        Positions in ``ids``, each exactly once.
    """
    order = np.lexsort((ids, -widths, -tau))
    sorted_widths = widths[order]
    runs = np.flatnonzero(np.diff(sorted_widths, prepend=-1))  # a loop over widths, not over clients
    cuts: list[int] = []
    low = high = 0
    for start, width in zip(runs.tolist(), sorted_widths[runs].tolist(), strict=True):
        low, high = min(low, width), max(high, width)
        if not cuts or high > _SIMILAR * low + _SLACK:
            cuts.append(start)
            low = high = width
    groups = np.split(order, cuts[1:])
    return [part for g in groups if len(g) for part in np.array_split(g, -(-len(g) // size))]


def _lower(most: int, limit: int | None) -> int:
    return most if limit is None else max(1, min(most, limit))


def balanced(cost: np.ndarray, parts: int, most: int | None = None) -> list[np.ndarray]:
    """Divide items among at most ``parts`` threads so that the sums of their costs are similar.

    The items in order of falling cost are cut where the sum of the costs passes the next equal share.

    Args:
        cost: Costs [C], whole numbers of 0 or more.
        parts: Number of parts.
        most: Largest number of items of a part, of which there are then more; None is no limit.

    Returns:
        The items of each part that has any, ascending; each item exactly once.
    """
    order = np.argsort(-cost, kind="stable")
    middle = np.cumsum(cost[order]) - cost[order] / 2
    part = (middle * parts / max(1, cost.sum())).astype(np.int64)
    part = part.clip(max=parts - 1)  # the last items may cost nothing
    members = (np.sort(order[part == k]) for k in range(parts))
    return [piece for m in members if len(m) for piece in np.array_split(m, -(-len(m) // (most or len(m))))]

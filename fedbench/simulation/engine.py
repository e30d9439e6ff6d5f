"""How a simulation is carried out: clients side by side or one after another, in chunks, on threads."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch

from fedbench.core.types import Oracle
from fedbench.simulation.compiled.dense import DenseKernel

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


class Engine:
    """How the simulation is carried out; nothing here changes the result beyond rounding.

    Args:
        oracle: Computes losses and gradients.
        mode: "loop", "stacked" or "compiled", for the record of the run.
        cohort_size: Number of clients trained side by side.
        workers: Number of threads that work on chunks.
        kernel: Compiled code for what it can express; None for none.
        why_no_kernel: The reason why there is none, for the record of the run.
        layers: Whether layers of the model are computed in compiled code, for the record of the run.
    """

    def __init__(
        self,
        oracle: Oracle,
        mode: str,
        cohort_size: int,
        workers: int = 1,
        kernel: DenseKernel | None = None,
        why_no_kernel: str = "",
        layers: bool = False,
    ) -> None:
        self.oracle, self.mode, self.cohort_size, self.workers = oracle, mode, cohort_size, workers
        self.kernel, self.why_no_kernel, self.layers = kernel, why_no_kernel, layers
        # subnormal numbers take a CPU several times as long; decaying moments are full of them
        self._pool = ThreadPoolExecutor(workers, initializer=flush_subnormals) if workers > 1 else None

    def map(self, f: Callable[[T], U], items: Iterable[T]) -> list[U]:
        """Apply ``f`` to every item, on the worker threads if there are several, and keep the order."""
        if self._pool is None:
            return [f(item) for item in items]
        return list(self._pool.map(f, items))

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
    groups: list[list[int]] = []
    low = high = 0
    for k, width in zip(order.tolist(), widths[order].tolist(), strict=True):
        low, high = min(low, width), max(high, width)
        if not groups or high > _SIMILAR * low + _SLACK:
            groups.append([])
            low = high = width
        groups[-1].append(k)
    return [part for g in groups for part in np.array_split(np.array(g), -(-len(g) // size))]


def balanced(cost: np.ndarray, parts: int) -> list[np.ndarray]:
    """Divide items among at most ``parts`` threads so that the sums of their costs are similar.

    The items in order of falling cost are cut where the sum of the costs passes the next equal share.

    Args:
        cost: Positive costs [C].
        parts: Number of parts.

    Returns:
        The items of each part that has any, ascending; each item exactly once.
    """
    order = np.argsort(-cost, kind="stable")
    middle = np.cumsum(cost[order]) - cost[order] / 2
    part = (middle * parts / cost.sum()).astype(np.int64)  # below ``parts``, since the costs are positive
    members = (np.sort(order[part == k]) for k in range(parts))
    return [m for m in members if len(m)]

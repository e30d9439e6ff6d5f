"""How a simulation is carried out: clients side by side or one after another, on threads, within memory.

The states of all clients, [N, ...], live on the device, in host memory or in a file, by size.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import mmap
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import psutil
import torch
from torch import Tensor

from fedbench.core.atomic_files import replacing, writing
from fedbench.core.types import Oracle, State, nbytes
from fedbench.simulation.captured import CapturedOracle
from fedbench.simulation.compiled.dense import DenseKernel
from fedbench.simulation.ranks import ALONE, Ranks

T = TypeVar("T")
U = TypeVar("U")
Place: TypeAlias = Literal["device", "host", "file"]

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # from glibc's malloc.h
_SHARE = 0.5  # share of the free memory that the states of clients may take
_NO_LIMIT = 2**53
_BLOCK = 2**20  # values of states that are compared at once
_SIGNS = (  # in torch's RuntimeErrors
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "std::bad_alloc",
    "status_alloc_failed",  # of cuBLAS, cuDNN and others
    "unable to find an engine",  # of cuDNN, when no kernel's workspace fits
)


class OutOfMemory(Exception):
    """What has to be in memory at once does not fit; the message says what that is and how to make it smaller."""


@dataclass(frozen=True)
class Limits:
    """What allocation errors have left of the work that is done at once; they hold for the rest of a run.

    Attributes:
        clients: Largest number of clients that a worker trains side by side.
        examples: Largest number of examples in a block that a worker measures.
        workers: Largest number of threads.
        errors: Number of allocation errors so far.
    """

    clients: int = _NO_LIMIT
    examples: int = _NO_LIMIT
    workers: int = _NO_LIMIT
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
        ranks: The processes that share the work.

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
        ranks: Ranks = ALONE,
    ) -> None:
        self.oracle, self.mode, self.kernel, self.ranks = oracle, mode, kernel, ranks
        self._cohort_size, self._workers, self._automatic = cohort_size, workers, automatic
        self.limits = Limits()
        self.notify: Callable[[str], None] = lambda sentence: None
        self._pool: ThreadPoolExecutor | None = None

    @property
    def cohort_size(self) -> int:
        """Number of clients trained side by side."""
        return min(self._cohort_size, self.limits.clients)

    @property
    def workers(self) -> int:
        """Number of threads that work on chunks."""
        return min(self._workers, self.limits.workers)

    def resume(self, limits: Limits, cohort_size: int) -> None:
        """Go on as an interrupted run did: its limits, and its chunks unless the user has chosen others.

        Args:
            limits: The limits of the run.
            cohort_size: Its number of clients side by side, on which sums depend by rounding.
        """
        self.limits = limits
        if self._automatic:
            self._cohort_size = cohort_size

    def map(
        self,
        f: Callable[[T], U],
        items: Iterable[T],
        take: Callable[[T, U], object] | None = None,
        alone: bool = False,
    ) -> list[U]:
        """Apply ``f`` to every item, on all worker threads of all processes, and keep the order.

        Worker threads record no gradients; the caller switches them off for the case that there are none. When an error
        is raised, no thread is at work any more.

        Args:
            f: What is applied.
            items: The items; the longest work first.
            take: Takes in the outcome of an item as soon as it is there, on any thread; the outcomes are not returned.
            alone: Whether all of it is done by this process.
        """
        items = list(items)
        if self.ranks.world_size > 1 and not alone:
            return self.ranks.map(partial(self.map, alone=True), f, items, take, self.workers, allocation_failed)
        work: Callable[[T], Any] = f if take is None else lambda item: take(item, f(item))
        if self.workers == 1 or len(items) == 1:
            return [work(item) for item in items]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.workers, initializer=_prepare_thread)
        futures = [self._pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()
            wait(futures)

    def within_memory(
        self, work: Callable[[], T], unit: Literal["clients", "examples"], used: Callable[[], int], alone: str
    ) -> T:
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
                if not allocation_failed(error) or (self.ranks.world_size > 1 and error is not self.ranks.raised):
                    raise  # of several processes all do less at once, or all end
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            gc.collect()  # the frames of the failed attempt hold its tensors
            self._halve(unit, used(), f"{alone} ({reason})")
            self.notify(f"memory ran out; less is done at once from now on ({reason})")
            if isinstance(self.oracle, CapturedOracle):
                self.oracle.forget()
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()  # torch would keep blocks of other sizes

    def _halve(self, unit: Literal["clients", "examples"], used: int, alone: str) -> None:
        if used == 1 and self.workers == 1:
            raise OutOfMemory(alone)
        half: dict[str, int] = {unit: -(-used // 2)} if used > 1 else {"workers": self.workers // 2}
        self.close()
        self.limits = replace(self.limits, errors=self.limits.errors + 1, **half)

    def close(self) -> None:
        """End the worker threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def _prepare_thread() -> None:
    """Set a worker thread up, once for all its work: what a thread decides for itself."""
    torch.set_flush_denormal(True)  # they take a CPU several times as long, and decaying moments are full of them
    torch.set_grad_enabled(False)  # as in the threads that hand out the work


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


def allocation_failed(error: BaseException) -> bool:
    """Return whether an error is that memory could not be allocated: by torch, NumPy, compiled code or the system."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in _SIGNS)


def free_bytes(device: torch.device) -> int:
    """Number of bytes that tensors on a device can take: free memory of the GPU, or main memory without swapping."""
    if device.type != "cuda":
        return int(psutil.virtual_memory().available)
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


class StateAllocator:
    """Allocates the states that clients keep between rounds.

    Args:
        device: The device of the computation.
        place: "device", "host" (main memory), "file" (memory-mapped), or "auto": the first of these
            in which the states take at most half of the free space.
        folder: The folder for files; created when it is needed.
        processes: Number of processes that share the main memory, each with states of its own.

    Attributes:
        place: The place of the last allocation; None if there was nothing to allocate.
        bytes: The size of the last allocation.
        first: The state that all clients have in it at first.
    """

    def __init__(
        self,
        device: torch.device,
        place: Place | Literal["auto"] = "auto",
        folder: Path | None = None,
        processes: int = 1,
    ) -> None:
        self.wanted, self.folder, self._processes = place, folder, processes
        self.devices: dict[Place, torch.device] = {"device": device, "host": torch.device("cpu")}
        self.place: Place | None = None
        self.bytes = 0
        self.first: State = {}

    def allocate(self, one: State, count: int) -> State:
        """The states of ``count`` clients that all start with the state ``one``.

        Raises:
            NotWritten: If there is no space for a file.
        """
        self.bytes, self.first = count * nbytes(one), one
        wanted = {p: self.bytes * (1 if d.type == "cuda" else self._processes) for p, d in self.devices.items()}
        fits = (place for place, device in self.devices.items() if wanted[place] <= _SHARE * free_bytes(device))
        place: Place = next(fits, "file") if self.wanted == "auto" else self.wanted
        self.place = place if self.bytes else None
        if self.place == "file":
            assert self.folder is not None
            return {name: _in_file(self.folder / f"{name}.bin", v, count) for name, v in one.items()}
        device = self.devices.get(place, self.devices["device"])
        return {name: _in_memory(v.to(device), count) for name, v in one.items()}

    def packed(self, states: State) -> State:
        """The states [N, ...] as a checkpoint has them: those that are not the first, if these are at most half.

        ``NAME`` then has their rows, ``NAME/rows`` the clients, and ``NAME/first`` the state of the others.
        """
        found = dict(states)
        for name, first in self.first.items():
            rows = _changed(states[name], first.to(states[name].device))
            if 2 * len(rows) <= len(states[name]):
                found |= {name: states[name][rows], f"{name}/rows": rows, f"{name}/first": first}
        return found

    def unpacked(self, packed: State, fresh: State, count: int) -> State:
        """The states of ``count`` clients that have the entries of ``fresh``, from what ``packed`` returned."""
        states = self.allocate({name: packed.get(f"{name}/first", v) for name, v in fresh.items()}, count)
        for name, v in states.items():
            rows = packed.get(f"{name}/rows", torch.arange(count))
            v.index_copy_(0, rows.to(v.device), packed[name].to(v.device))
        return states


def _changed(states: Tensor, first: Tensor) -> Tensor:
    """The clients whose states [N, ...] differ from ``first`` in any bit, ascending, without a copy of all states."""
    bits = (torch.uint8, torch.int16, torch.int32, torch.int64)[states.element_size().bit_length() - 1]
    one = first.reshape(1, -1).view(bits)
    blocks = states.reshape(len(states), -1).view(bits).split(max(1, _BLOCK // max(1, one.numel())))
    return torch.cat([(block != one).any(1) for block in blocks]).nonzero().squeeze(1)


def _in_memory(v: Tensor, count: int) -> Tensor:
    if v.is_cuda or not count * v.nbytes or v.any():
        return v.expand(count, *v.shape).clone()
    # zeros: the system gives a page when it is first changed
    pages = mmap.mmap(-1, count * v.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=v.dtype).view(count, *v.shape)


def _in_file(path: Path, v: Tensor, count: int) -> Tensor:
    """States in a file, written without mapping it: pages that no client changes take no memory."""
    row = v.cpu().numpy()
    with replacing(path) as part:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            for _ in range(count):
                file.write(row.tobytes())
    with writing(path):
        return torch.from_numpy(np.memmap(path, row.dtype, "r+", shape=(count, *row.shape)))

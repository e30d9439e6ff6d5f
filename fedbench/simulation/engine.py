"""The engine of a simulation: how many clients side by side, on how many threads, within memory."""

import gc
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

import torch

from fedbench.core.types import Oracle
from fedbench.simulation.captured import CapturedOracle
from fedbench.simulation.compiled.dense import DenseKernel
from fedbench.simulation.memory import OutOfMemory, allocation_failed
from fedbench.simulation.ranks import ALONE, Ranks

T = TypeVar("T")
U = TypeVar("U")

_NO_LIMIT = 2**53


@dataclass(frozen=True)
class Limits:
    """Limits on simultaneous work, lowered after an allocation error for the rest of a run.

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
        self.oracle = oracle
        self.mode = mode
        self.kernel = kernel
        self.ranks = ranks
        self._cohort_size = cohort_size
        self._workers = workers
        self._automatic = automatic
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

    @property
    def all_workers(self) -> int:
        """Number of threads of all processes."""
        return self.workers * self.ranks.world_size

    def resume(self, limits: Limits, cohort_size: int) -> None:
        """Go on with the limits of an interrupted run, and its chunks unless the user chose others.

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
        store: Callable[[T, U], object] | None = None,
        threads: bool = True,
    ) -> list[U]:
        """Apply ``f`` to every item, on all worker threads of all processes, and keep the order.

        Worker threads record no gradients; the caller switches them off for the case that there are
        none. When an error is raised, no thread is at work any more.

        Args:
            f: What is applied.
            items: The items; the longest work first.
            store: Stores the result of an item as soon as it is there, on any thread; results are
                not returned then.
            threads: Whether to use other threads and processes, which a worker thread must not.
        """
        ranks = self.ranks if threads else ALONE
        workers = self.workers if threads else 1
        return ranks.map(
            partial(self._map_here, workers),
            f,
            list(items),
            store,
            workers,
        )

    def _map_here(
        self,
        workers: int,
        f: Callable[[T], Any],
        items: list[T],
    ) -> list[Any]:
        if workers == 1 or len(items) == 1:
            return [f(item) for item in items]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.workers, initializer=_prepare_thread)
        futures = [self._pool.submit(f, item) for item in items]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()
            wait(futures)

    def within_memory(
        self,
        work: Callable[[], T],
        unit: Literal["clients", "examples"],
        used: Callable[[], int],
        smallest: str,
    ) -> T:
        """Return ``work()``; if memory runs out, do half as much at once and start it again.

        The clients or examples of a thread are halved down to one, then the threads are halved. The
        limits hold for the rest of the run.

        Args:
            work: A function that follows the limits and can be called again: what it has finished
                it does not repeat, and what it has not finished it has not changed.
            unit: What it does several of at once.
            used: Returns how many of them a thread does at once.
            smallest: What remains to be done at once in the end, and how to make it smaller, for
                the message.

        Raises:
            OutOfMemory: If one client or example does not fit on a single thread.
        """
        while True:
            try:
                return work()
            except (MemoryError, RuntimeError) as error:
                # several processes all do less at once, or all end
                local = self.ranks.world_size > 1 and error is not self.ranks.raised
                if local or not allocation_failed(error):
                    raise
                text = str(error).strip() or type(error).__name__
                reason = text.splitlines()[0]

            gc.collect()  # the frames of the failed attempt hold its tensors
            self._halve(unit, used(), f"{smallest} ({reason})")
            self.notify(f"memory ran out; less is done at once from now on ({reason})")
            if isinstance(self.oracle, CapturedOracle):
                self.oracle.forget()
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()  # torch would keep blocks of other sizes

    def _halve(
        self,
        unit: Literal["clients", "examples"],
        used: int,
        smallest: str,
    ) -> None:
        if used > 1:
            half: dict[str, int] = {unit: -(-used // 2)}
        elif self.workers > 1:
            half = {"workers": self.workers // 2}
        else:
            raise OutOfMemory(smallest)
        self.close()
        self.limits = replace(self.limits, errors=self.limits.errors + 1, **half)

    def close(self) -> None:
        """End the worker threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def _prepare_thread() -> None:
    """Set a worker thread up as the main thread is: these settings belong to a thread."""
    # they take a CPU several times as long, and decaying moments are full of them
    torch.set_flush_denormal(True)
    torch.set_grad_enabled(False)

"""The engine of a simulation: cohort size, worker threads and memory limits."""

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
    """Execution of a simulation; its settings affect results only through rounding.

    Args:
        oracle: Oracle that computes losses and gradients.
        mode: "loop", "stacked" or "compiled", for the record of the run.
        cohort_size: Number of clients trained side by side.
        workers: Number of threads that work on chunks.
        kernel: Compiled code for the models and steps that it supports, or None.
        automatic: Whether ``cohort_size`` was chosen for the machine rather than by the user.
        ranks: The processes that share the work.

    Attributes:
        limits: Limits on simultaneous work, lowered after allocation errors.
        notify: Function called with a sentence when an allocation error changes the limits.
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
        """Adopt an interrupted run's limits and, unless the user set one, its cohort size.

        Args:
            limits: Limits of the interrupted run.
            cohort_size: Number of clients that the run trained side by side, which affects sums by
                rounding.
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

        Worker threads record no gradients; the caller must disable gradients, in case there are no
        worker threads. When an error is raised, all threads have stopped working, unless a signal
        has ended the run.

        Args:
            f: Function to apply.
            items: The items, longest work first.
            store: Function that stores the result of an item as soon as it is available, on any
                thread. If given, results are not returned.
            threads: Whether to use other threads and processes; must be false on a worker thread.
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
        except KeyboardInterrupt:
            # a signal ends at once: it does not wait for the threads
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
            raise
        except Exception:
            for future in futures:
                future.cancel()
            wait(futures)
            raise

    def within_memory(
        self,
        work: Callable[[], T],
        unit: Literal["clients", "examples"],
        used: Callable[[], int],
        smallest: str,
    ) -> T:
        """Return ``work()``; if memory runs out, halve the simultaneous work and call it again.

        The number of clients or examples per thread is halved down to one, then the number of
        threads is halved. The limits hold for the rest of the run.

        Args:
            work: Function that follows the limits and can be called again: it does not repeat
                finished parts and leaves unfinished parts unchanged.
            unit: Unit of the simultaneous work.
            used: Function that returns the number of units that a thread processes at once.
            smallest: Description of the smallest possible work, and advice on reducing it, for the
                message.

        Raises:
            OutOfMemory: If one client or example does not fit on a single thread.
        """
        while True:
            try:
                return work()
            except (MemoryError, RuntimeError) as error:
                # several processes must all lower their limits, or all end
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
    """Set up a worker thread like the main thread, since these settings apply per thread."""
    # denormal numbers take a CPU several times as long, and decaying moments are full of them
    torch.set_flush_denormal(True)
    torch.set_grad_enabled(False)

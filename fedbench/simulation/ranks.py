"""A run in several processes, which all run the same loop and share the work of each round.

Every process draws the same cohorts and takes the same server steps, so that only results of local
work and of measurements are exchanged. The parts of the work, and the order in which their results
are added up, do not depend on the number of processes; neither do the results of the run.
"""

import atexit
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import BytesIO
from itertools import cycle
from typing import Any, NamedTuple, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from fedbench.core.errors import FailedElsewhere, LostProcess
from fedbench.simulation.memory import allocation_failed

T = TypeVar("T")
U = TypeVar("U")

# results held per thread before they are exchanged, if not all of them are kept
_HELD = 4


class Failure(NamedTuple):
    """The first error of a process in a batch of items."""

    out_of_memory: bool
    message: str


class Ranks:
    """The processes that share a run: all those started by torchrun, or this one alone.

    Args:
        device: Device of this process, whose tensors are exchanged by NCCL on a GPU and by gloo
            otherwise. If None, the process is alone and exchanges nothing.

    Attributes:
        world_size: Number of processes.
        rank: Number of this process, from 0; process 0 writes the files of the run.
        sent: Bytes of tensors that this process has sent to each other process.
        raised: The last allocation error that ``map`` has raised in all processes.

    Raises:
        LostProcess: From any method, if another process cannot be reached.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self.world_size = 1
        self.rank = 0
        self.device = device
        self.sent = 0
        self.raised: MemoryError | None = None
        if device is None:
            return

        if not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
            # loading data or a round may take any time; lost connections reveal an ended process
            dist.init_process_group(backend, timeout=timedelta(days=7))
            atexit.register(dist.destroy_process_group)
        self.world_size = dist.get_world_size()
        self.rank = dist.get_rank()

    def map(
        self,
        run: Callable[[Callable[[T], Any], list[T]], list[Any]],
        f: Callable[[T], U],
        items: list[T],
        store: Callable[[T, U], object] | None,
        at_once: int,
    ) -> list[U]:
        """Return ``f`` of every item; the items are dealt to the processes back and forth.

        An error in one process is raised in all of them, once all have stored the same results.

        Args:
            run: Function that applies a function to items in this process.
            f: Function to apply.
            items: The items, the same in all processes, longest work first.
            store: Function that stores the result of an item, which is then not kept. If None, all
                results are returned.
            at_once: Number of items that a process works on at once.

        Raises:
            MemoryError: If memory ran out in one of the processes.
            FailedElsewhere: If a different error was raised in another process.
        """
        if self.world_size == 1:
            if store is None:
                return run(f, items)
            return run(lambda item: store(item, f(item)), items)

        errors: list[Exception] = []

        def attempt(item: T) -> U | None:
            try:
                result = f(item)
                if store is not None:
                    store(item, result)
            except Exception as error:
                errors.append(error)
                return None
            return result

        ranks = range(self.world_size)
        there_and_back = cycle([*ranks, *reversed(ranks)])
        dealt = list(zip(there_and_back, items, strict=False))
        size = max(1, len(items))
        if store is not None:
            size = _HELD * self.world_size * at_once

        results: list[Any] = []
        for start in range(0, len(items), size):
            batch = dealt[start : start + size]
            own = [item for rank, item in batch if rank == self.rank]
            local = run(attempt, own)

            gathered = self._exchange((local, _failure(errors)))
            queues = [iter(part) for part, _ in gathered]
            ordered = [next(queues[rank]) for rank, _ in batch]
            if store is None:
                results += ordered
            else:
                self._store_others(batch, ordered, store)
            self._raise_first([failure for _, failure in gathered], errors)
        return results

    def _store_others(
        self,
        batch: list[tuple[int, T]],
        results: list[U | None],
        store: Callable[[T, U], object],
    ) -> None:
        """Store the results of items that other processes have finished."""
        for (rank, item), result in zip(batch, results, strict=True):
            if result is not None and rank != self.rank:
                store(item, result)

    def _raise_first(
        self,
        failures: list[Failure | None],
        errors: list[Exception],
    ) -> None:
        """Raise the first error of any process, if there is one.

        Args:
            failures: The failure of each process, or None.
            errors: The errors of this process.
        """
        for rank, failure in enumerate(failures):
            if failure is None:
                continue
            if failure.out_of_memory:
                self.raised = MemoryError(failure.message)
                raise self.raised
            if errors:
                raise errors[0]
            raise FailedElsewhere(f"process {rank} of {self.world_size}: {failure.message}")

    def broadcast(self, value: T) -> T:
        """Return the first process's value, in every process."""
        if self.world_size == 1:
            return value
        values: list[T] = [value]
        with _reached():
            dist.broadcast_object_list(values)
        return values[0]

    def from_first(self, function: Callable[[], T]) -> T:
        """Return a function's result in every process; only the first process calls it."""
        return self.broadcast(function() if self.rank == 0 else cast(T, None))

    def after_first(self, function: Callable[[], T]) -> T:
        """Return a function's result; the first process calls it before the others."""
        if self.rank > 0:
            self.broadcast(None)
        value = function()
        if self.rank == 0:
            self.broadcast(None)
        return value

    def facts(self) -> dict[str, int]:
        """Return the number of processes and the bytes sent by this one; empty if it is alone."""
        if self.world_size == 1:
            return {}
        return {"processes": self.world_size, "bytes_sent": self.sent}

    def all_gather(self, value: T) -> list[T]:
        """Return the values of all processes, in the order of their ranks."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        with _reached():
            dist.all_gather_object(values, value)
        return values

    def agreed(
        self,
        round: int,
        w: Tensor,
        signal: int | None,
    ) -> int | None:
        """Return a signal that any of the processes has received by the end of a round, or None.

        Args:
            round: Number of the round.
            w: The model [P] after the round.
            signal: Signal that this process has received, or None.

        Raises:
            RuntimeError: If the models of the processes differ.
        """
        if self.world_size == 1:
            return signal
        total = float(w.sum(dtype=torch.float64))
        state = round, repr(total)  # the text of NaN is equal to itself
        reports = self.all_gather((state, signal))
        if len({state for state, _ in reports}) > 1:
            raise RuntimeError(
                f"the processes have come to different models in round {round}; they need devices "
                "of the same kind, and methods that draw random numbers from the keys that they "
                "are given"
            )
        signals = (number for _, number in reports if number is not None)
        return next(signals, None)

    def _exchange(self, value: T) -> list[T]:
        """Return the values of all processes, by rank; tensors in them are not pickled."""
        file = BytesIO()
        packer = _Packer(file)
        packer.dump(value)
        local = [v.contiguous() for v in packer.tensors]
        self.sent += sum(v.nbytes for v in local)

        values: list[T] = []
        header = file.getvalue(), [(v.shape, v.dtype) for v in local]
        for rank, (pickled, forms) in enumerate(self.all_gather(header)):
            own = rank == self.rank
            tensors = local
            if not own:
                tensors = [
                    torch.empty(shape, dtype=dtype, device=self.device) for shape, dtype in forms
                ]
            for v in tensors:
                if v.nbytes:
                    with _reached():
                        dist.broadcast(v.view(-1).view(torch.uint8), rank)
            unpacker = _Unpacker(BytesIO(pickled), tensors)
            values.append(value if own else unpacker.load())
        return values


ALONE = Ranks()


def _failure(errors: list[Exception]) -> Failure | None:
    """Return the first error of this process, in the form that is sent to the others."""
    if not errors:
        return None
    error = errors[0]
    message = f"{type(error).__name__}: {error}"
    return Failure(allocation_failed(error), message)


class _Packer(pickle.Pickler):
    """Pickler that collects tensors in a list and pickles everything else."""

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file)
        self.tensors: list[Tensor] = []

    def persistent_id(self, obj: object) -> int | None:
        """Return the position of a tensor in the list; None for anything else."""
        if not isinstance(obj, Tensor):
            return None
        self.tensors.append(obj)
        return len(self.tensors) - 1


class _Unpacker(pickle.Unpickler):
    """Unpickler that puts the listed tensors back in their places."""

    def __init__(self, file: BytesIO, tensors: list[Tensor]) -> None:
        super().__init__(file)
        self.tensors = tensors

    def persistent_load(self, pid: int) -> Tensor:
        """Return the tensor at a position in the list."""
        return self.tensors[pid]


@contextmanager
def _reached() -> Iterator[None]:
    """Report in one sentence that another process is gone."""
    try:
        yield
    except RuntimeError as error:
        text = re.sub(r"^\[\S*\] ", "", str(error).strip())
        reason = text.partition(". ")[0]
        raise LostProcess(
            f"another process of this run is gone ({reason}); run the same command again to resume"
        ) from error

"""One run in several processes: all run the same loop, and what is worked out for a part of it is shared out.

Every process draws the same cohorts and takes the same steps of the server, so that only outcomes of local work and of
measurements travel. What the parts are, and in which order they are added up, does not depend on the number of
processes: neither do the results.
"""

from __future__ import annotations

import atexit
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from io import BytesIO
from itertools import cycle
from math import prod
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from fedbench.core.errors import FailedElsewhere, LostProcess

T = TypeVar("T")
U = TypeVar("U")

_ALIGNED = 16  # bytes; where tensors begin in what is sent
_HELD = 4  # outcomes that are held for each thread before they are exchanged, where they are not all kept


class Ranks:
    """The processes that share a run, of which this is one: those that torchrun has started, or this one alone.

    Args:
        device: The device of this process; tensors on it are exchanged by NCCL if it is a GPU, and by gloo if not. None
            if it is alone: then nothing is exchanged.

    Attributes:
        world_size: Number of processes.
        rank: The number of this one, from 0; the first writes the files of the run.
        sent: Bytes of tensors that this process has sent to each of the others.
        raised: The last error that ``map`` has raised, in all processes.

    Raises:
        LostProcess: By every method, if another process cannot be reached.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self.world_size, self.rank, self.device, self.sent = 1, 0, device, 0
        self.raised: Exception | None = None
        if device is None:
            return
        if not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
            # data or a round may take any time; a process that has ended is noticed by its connections
            dist.init_process_group(backend, timeout=timedelta(days=7))
            atexit.register(dist.destroy_process_group)
        self.world_size, self.rank = dist.get_world_size(), dist.get_rank()

    def map(
        self,
        each: Callable[[Callable[[T], Any], Sequence[T]], list[Any]],
        f: Callable[[T], U],
        items: Sequence[T],
        take: Callable[[T, U], object] | None,
        at_once: int,
        allocation_failed: Callable[[BaseException], bool],
    ) -> list[U]:
        """Return ``f`` of every item; the items are dealt out to the processes in their order, there and back.

        An error of one process is raised in all, once they have taken in the same outcomes.

        Args:
            each: Applies a function to items in this process.
            f: What is applied.
            items: The items, the same in all processes, the longest work first.
            take: Takes in the outcome of an item, which is not kept then; None returns them all.
            at_once: Number of items that a process works on at once.
            allocation_failed: Returns whether an error is that memory ran out.

        Raises:
            MemoryError: If memory ran out in one of the processes.
            FailedElsewhere: If another error came up in another one.
        """
        there = range(self.world_size)
        dealt = list(zip(cycle([*there, *reversed(there)]), items, strict=False))
        width = _HELD * self.world_size * at_once if take is not None else max(1, len(items))
        outcomes: list[U] = []
        for start in range(0, len(items), width):
            found = self._outcomes(each, f, dealt[start : start + width], take, allocation_failed)
            outcomes += found if take is None else []
        return outcomes

    def _outcomes(
        self,
        each: Callable[[Callable[[T], Any], Sequence[T]], list[Any]],
        f: Callable[[T], U],
        items: Sequence[tuple[int, T]],
        take: Callable[[T, U], object] | None,
        allocation_failed: Callable[[BaseException], bool],
    ) -> list[U]:
        errors: list[Exception] = []

        def attempt(item: T) -> U | None:
            try:
                found = f(item)
                if take is not None:
                    take(item, found)
            except Exception as error:
                errors.append(error)
                return None
            return found

        mine = each(attempt, [item for owner, item in items if owner == self.rank])
        said = [(allocation_failed(e), f"{type(e).__name__}: {e}") for e in errors[:1]]
        everyone = self._exchange((mine, said))
        of = [iter(found) for found, _ in everyone]
        outcomes: list[Any] = [next(of[owner]) for owner, _ in items]
        for (owner, item), outcome in zip(items, outcomes, strict=True):
            if take is not None and outcome is not None and owner != self.rank:
                take(item, outcome)
        trouble = [(rank, *why) for rank, (_, said) in enumerate(everyone) for why in said]
        if trouble:
            rank, memory, text = trouble[0]
            self.raised = (
                MemoryError(text) if memory else FailedElsewhere(f"process {rank} of {self.world_size}: {text}")
            )
            raise self.raised if memory or not errors else errors[0]
        return outcomes

    def broadcast(self, value: T) -> T:
        """Return in every process what the first gives."""
        if self.world_size == 1:
            return value
        found: list[Any] = [value]
        with _reached():
            dist.broadcast_object_list(found)
        first: T = found[0]
        return first

    def all_gather(self, value: T) -> list[T]:
        """Return what the processes give, in their order."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        with _reached():
            dist.all_gather_object(values, value)
        return values

    def agreed(self, round: int, w: Tensor, signal: int | None) -> int | None:
        """Return a signal that has come to any of the processes after a round, or None.

        Args:
            round: The number of the round.
            w: The model [P] after it.
            signal: The signal that has come to this process, or None.

        Raises:
            RuntimeError: If the processes have come to different models.
        """
        if self.world_size == 1:
            return signal
        given = self.all_gather(((round, repr(float(w.sum(dtype=torch.float64)))), signal))
        if len({state for state, _ in given}) > 1:
            raise RuntimeError(
                f"the processes have come to different models in round {round}; they need devices of the same kind, "
                "and methods that draw random numbers from the keys that they are given"
            )
        return next((number for _, number in given if number is not None), None)

    def _exchange(self, mine: T) -> list[T]:
        """Return what every process gives, in their order; the tensors in it travel as they are."""
        file = BytesIO()
        packer = _Packer(file)
        packer.dump(mine)
        mine_as_sent = file.getvalue(), [(v.shape, v.dtype) for v in packer.tensors]
        everything: list[T] = []
        for rank, (head, forms) in enumerate(self.all_gather(mine_as_sent)):
            sizes = [prod(shape) * dtype.itemsize for shape, dtype in forms]
            places = [size + -size % _ALIGNED for size in sizes]
            body = torch.empty(sum(places), dtype=torch.uint8, device=self.device)
            parts = body.split(places)
            if rank == self.rank:
                for part, size, v in zip(parts, sizes, packer.tensors, strict=True):
                    part[:size] = v.contiguous().reshape(-1).view(torch.uint8)
                self.sent += sum(sizes)
            if len(body):
                with _reached():
                    dist.broadcast(body, rank)
            if rank == self.rank:
                everything.append(mine)
                continue
            tensors = [p[:n].view(t).view(s) for p, n, (s, t) in zip(parts, sizes, forms, strict=True)]
            everything.append(_Unpacker(BytesIO(head), tensors).load())
        return everything


ALONE = Ranks()


class _Packer(pickle.Pickler):
    """Pickles everything but tensors, which it lists."""

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file)
        self.tensors: list[Tensor] = []

    def persistent_id(self, obj: object) -> int | None:
        """The place of a tensor in the list; None for anything else."""
        if not isinstance(obj, Tensor):
            return None
        self.tensors.append(obj)
        return len(self.tensors) - 1


class _Unpacker(pickle.Unpickler):
    """Puts tensors to the places from which they were listed."""

    def __init__(self, file: BytesIO, tensors: list[Tensor]) -> None:
        super().__init__(file)
        self.tensors = tensors

    def persistent_load(self, pid: int) -> Tensor:
        """The tensor at a place of the list."""
        return self.tensors[pid]


@contextmanager
def _reached() -> Iterator[None]:
    """Say in one sentence that another process is gone."""
    try:
        yield
    except RuntimeError as error:
        reason = re.sub(r"^\[\S*\] ", "", str(error).strip()).partition(". ")[0]
        raise LostProcess(
            f"another process of this run is gone ({reason}); run the same command again to resume"
        ) from error

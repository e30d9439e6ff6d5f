"""The states that clients keep between rounds, [N, ...]: on the device, in host memory or in a file, by size."""

import mmap
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedbench.core.atomic_files import replacing, writing
from fedbench.core.types import State, nbytes
from fedbench.simulation.memory import free_bytes

Place = Literal["device", "host", "file"]

_SHARE = 0.5  # share of the free memory that the states may take
_BLOCK = 2**20  # values of states that are compared at once
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of an element


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
        self._device, self._wanted, self._folder, self._processes = device, place, folder, processes
        self.place: Place | None = None
        self.bytes = 0
        self.first: State = {}

    def allocate(self, one: State, count: int) -> State:
        """Return the states of ``count`` clients that all start with the state ``one``.

        Raises:
            NotWritten: If there is no space for a file.
        """
        self.bytes, self.first = count * nbytes(one), one
        self.place = self._choose() if self.bytes else None
        if self.place == "file":
            assert self._folder is not None
            return {
                name: _in_file(self._folder / f"{name}.bin", v, count) for name, v in one.items()
            }
        device = torch.device("cpu") if self.place == "host" else self._device
        return {name: _in_memory(v.to(device), count) for name, v in one.items()}

    def _choose(self) -> Place:
        if self._wanted != "auto":
            return self._wanted
        if self._fits(self._device):
            return "device"
        return "host" if self._fits(torch.device("cpu")) else "file"

    def _fits(self, device: torch.device) -> bool:
        processes = 1 if device.type == "cuda" else self._processes
        return self.bytes * processes <= _SHARE * free_bytes(device)

    def packed(self, states: State) -> State:
        """Return the states [N, ...] as a checkpoint has them: those that are not the first, if these are at most half.

        ``NAME`` then has their rows, ``NAME/rows`` the clients, and ``NAME/first`` the state of the
        others.
        """
        packed = dict(states)
        for name, first in self.first.items():
            v = states[name]
            rows = _changed(v, first.to(v.device))
            if 2 * len(rows) <= len(v):
                packed |= {name: v[rows], f"{name}/rows": rows, f"{name}/first": first}
        return packed

    def unpacked(self, packed: State, fresh: State, count: int) -> State:
        """Return the states of ``count`` clients with the entries of ``fresh``, from what ``packed`` returned."""
        first = {name: packed.get(f"{name}/first", v) for name, v in fresh.items()}
        states = self.allocate(first, count)
        for name, v in states.items():
            rows = packed.get(f"{name}/rows", torch.arange(count))
            v.index_copy_(0, rows.to(v.device), packed[name].to(v.device))
        return states


def _changed(states: Tensor, first: Tensor) -> Tensor:
    """Return the clients whose states [N, ...] differ from ``first`` in any bit, ascending, block by block."""
    bits = _BITS[states.element_size()]
    first = first.reshape(1, -1).view(bits)
    clients = max(1, _BLOCK // max(1, first.numel()))  # of a block
    blocks = states.reshape(len(states), -1).view(bits).split(clients)
    changed = torch.cat([(block != first).any(1) for block in blocks])
    return changed.nonzero().squeeze(1)


def _in_memory(v: Tensor, count: int) -> Tensor:
    size = count * v.nbytes
    if v.is_cuda or not size or v.any():
        return v.expand(count, *v.shape).clone()
    # zeros: the system gives a page when it is first changed
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=v.dtype).view(count, *v.shape)


def _in_file(path: Path, v: Tensor, count: int) -> Tensor:
    """Return states in a file, written without mapping it: pages that no client changes take no memory."""
    row = v.cpu().numpy()
    with replacing(path) as part:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            for _ in range(count):
                file.write(row.tobytes())
    with writing(path):
        return torch.from_numpy(np.memmap(path, row.dtype, "r+", shape=(count, *row.shape)))

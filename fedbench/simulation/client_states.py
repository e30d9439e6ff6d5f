"""Client states, [N, ...], which persist between rounds.

Depending on their size, they are kept on the device, in host memory or in a file.
"""

import mmap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedbench.core.atomic_files import replacing, writing
from fedbench.core.types import State, nbytes
from fedbench.simulation.memory import free_bytes

Place = Literal["device", "host", "file"]

_HOST = torch.device("cpu")
_SHARE = 0.5  # share of the free memory that the states may take
_BLOCK = 2**20  # number of state values compared at once
_BITS = {  # by bytes per element
    1: torch.uint8,
    2: torch.int16,
    4: torch.int32,
    8: torch.int64,
}


@dataclass
class StateAllocator:
    """Allocator of the client states that persist between rounds.

    Attributes:
        device: The device of the computation.
        wanted: Requested place: "device", "host" (main memory), "file" (memory-mapped), or "auto":
            the first of these in which the states take at most half of the free space.
        folder: Folder for files, created when needed.
        processes: Number of processes that share the main memory, each with its own states.
        place: Place of the last allocation; None if there was nothing to allocate.
        bytes: Size of the last allocation in bytes.
        first: Initial state of every client in the last allocation.
    """

    device: torch.device
    wanted: Place | Literal["auto"] = "auto"
    folder: Path | None = None
    processes: int = 1
    place: Place | None = None
    bytes: int = 0
    first: State = field(default_factory=dict)

    def allocate(self, one: State, count: int) -> State:
        """Return the states of ``count`` clients, which all start with the state ``one``.

        Raises:
            NotWritten: If there is no space for a file.
        """
        self.bytes = count * nbytes(one)
        self.first = one
        self.place = self._choose() if self.bytes else None
        device = _HOST if self.place == "host" else self.device

        states = {}
        for name, v in one.items():
            if self.place == "file":
                assert self.folder is not None
                path = self.folder / f"{name}.bin"
                states[name] = _in_file(path, v, count)
            else:
                states[name] = _in_memory(v.to(device), count)
        return states

    def _choose(self) -> Place:
        if self.wanted != "auto":
            return self.wanted
        if self._fits(self.device):
            return "device"
        return "host" if self._fits(_HOST) else "file"

    def _fits(self, device: torch.device) -> bool:
        processes = 1 if device.type == "cuda" else self.processes
        return self.bytes * processes <= _SHARE * free_bytes(device)

    def packed(self, states: State) -> State:
        """Return the states [N, ...] in the form stored in a checkpoint.

        If at most half of the clients have left their initial state, only their states are stored:
        ``NAME`` contains their rows, ``NAME/rows`` their ids, and ``NAME/first`` the state of the
        other clients.
        """
        packed = dict(states)
        for name, first in self.first.items():
            v = states[name]
            rows = _changed(v, first.to(v.device))
            if 2 * len(rows) <= len(v):
                packed[name] = v[rows]
                packed[f"{name}/rows"] = rows
                packed[f"{name}/first"] = first
        return packed

    def unpacked(
        self,
        packed: State,
        fresh: State,
        count: int,
    ) -> State:
        """Return the states of ``count`` clients from the form stored in a checkpoint.

        Args:
            packed: The result of ``packed``.
            fresh: State of a client that has not been trained, with the same entries.
            count: Number of clients.
        """
        first = {}
        for name, v in fresh.items():
            first[name] = packed.get(f"{name}/first", v)
        states = self.allocate(first, count)
        for name, v in states.items():
            rows = packed.get(f"{name}/rows", torch.arange(count))
            changed = packed[name].to(v.device)
            v.index_copy_(0, rows.to(v.device), changed)
        return states


def _changed(states: Tensor, first: Tensor) -> Tensor:
    """Return the ids, ascending, of clients whose states differ from ``first`` in any bit."""
    bits = _BITS[states.element_size()]
    first = first.reshape(1, -1).view(bits)
    rows = states.reshape(len(states), -1).view(bits)

    block_size = max(1, _BLOCK // max(1, first.numel()))
    blocks = rows.split(block_size)
    changed = torch.cat([(block != first).any(1) for block in blocks])
    return changed.nonzero().squeeze(1)


def _in_memory(v: Tensor, count: int) -> Tensor:
    """Return ``count`` copies of a state."""
    size = count * v.nbytes
    if v.is_cuda or not size or v.any():
        return v.expand(count, *v.shape).clone()
    # zeros: the system allocates a page only when it is first changed
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=v.dtype).view(count, *v.shape)


def _in_file(path: Path, v: Tensor, count: int) -> Tensor:
    """Return ``count`` copies of a state in a memory-mapped file.

    The file is not mapped while it is written, so that pages that no client changes take no memory.
    """
    row = v.cpu().numpy()
    with replacing(path) as part:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            for _ in range(count):
                file.write(row.tobytes())
    with writing(path):
        shape = (count, *row.shape)
        states = np.memmap(path, row.dtype, "r+", shape=shape)
        return torch.from_numpy(states)

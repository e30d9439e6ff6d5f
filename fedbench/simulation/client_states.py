"""Where the states of all clients live, [N, ...]: on the device, in host memory or in a file, by size."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fedbench.core.files import replacing, writing
from fedbench.core.types import State, nbytes
from fedbench.simulation.engine import free_bytes

Place: TypeAlias = Literal["device", "host", "file"]
_SHARE = 0.5  # share of the free memory that the states may take
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}  # not on Windows


class StateAllocator:
    """Allocates the states that clients keep between rounds.

    Args:
        device: The device of the computation.
        place: "device", "host" (main memory), "file" (memory-mapped), or "auto": the first of these
            in which the states take at most half of the free space.
        folder: The folder for files; created when it is needed.

    Attributes:
        place: The place of the last allocation; None if there was nothing to allocate.
        bytes: The size of the last allocation.
        files: The files that hold the states, by name; empty if they are in memory.
    """

    def __init__(
        self, device: torch.device, place: Place | Literal["auto"] = "auto", folder: Path | None = None
    ) -> None:
        self.wanted, self.folder = place, folder
        self.devices: dict[Place, torch.device] = {"device": device, "host": torch.device("cpu")}
        self.place: Place | None = None
        self.bytes = 0
        self.files: dict[str, Path] = {}

    def allocate(self, one: State, count: int) -> State:
        """The states of ``count`` clients that all start with the state ``one``.

        Raises:
            NotWritten: If there is no space for a file.
        """
        self.bytes = count * nbytes(one)
        fits = (place for place, device in self.devices.items() if self.bytes <= _SHARE * free_bytes(device))
        place: Place = next(fits, "file") if self.wanted == "auto" else self.wanted
        self.place, self.files = (place if self.bytes else None), {}
        if self.place == "file":
            assert self.folder is not None
            self.files = {name: self.folder / f"{name}.bin" for name in one}
            return {name: _in_file(self.files[name], v, count) for name, v in one.items()}
        device = self.devices.get(place, self.devices["device"])
        return {name: _in_memory(v.to(device), count) for name, v in one.items()}

    @staticmethod
    def read(room: Tensor, source: Path) -> None:
        """Read the states ``room`` from a copy of their file.

        Raises:
            ValueError: If the copy has another size.
        """
        if source.stat().st_size != room.nbytes:
            raise ValueError(f"{source} has {source.stat().st_size} bytes, not {room.nbytes}")
        room.copy_(torch.from_file(str(source), shared=False, size=room.numel(), dtype=room.dtype).view_as(room))


def _in_memory(v: Tensor, count: int) -> Tensor:
    if v.is_cuda or not count * v.nbytes or v.any():
        return v.expand(count, *v.shape).clone()
    pages = mmap.mmap(-1, count * v.nbytes, **_PRIVATE)  # zeros: the system gives a page when it is first changed
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


def client_rows(states: State, ids: Tensor) -> State:
    """States [c, ...] of the clients ``ids`` [c], on the device of the ids, from those of all clients [N, ...]."""
    return {k: v.index_select(0, ids.to(v.device)).to(ids.device) for k, v in states.items()}


def write_rows(states: State, ids: Tensor, new: State) -> None:
    """Replace the states of the clients ``ids`` [c] in those of all clients [N, ...], wherever these are."""
    for name, v in states.items():
        v.index_copy_(0, ids.to(v.device), new[name].to(v.device))

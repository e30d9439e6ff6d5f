"""Where the states of all clients live, [N, ...]: on the device, in host memory or in a file, by size."""

from __future__ import annotations

import mmap
import re
import shutil
from math import prod
from pathlib import Path
from typing import Literal, TypeAlias

import psutil
import torch

from fedbench.core.errors import RequestError
from fedbench.core.files import NotWritten, replacing, writing
from fedbench.core.types import State, nbytes

Place: TypeAlias = Literal["device", "host", "file"]
_SHARE = 0.5  # share of the free memory that the states may take
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}  # not on Windows
_PIECE = 2**24  # bytes that are written to a file at once


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
    """

    def __init__(
        self, device: torch.device, place: Place | Literal["auto"] = "auto", folder: Path | None = None
    ) -> None:
        self.device, self.wanted, self.folder = device, place, folder
        self.place: Place | None = None
        self.bytes = 0
        self._names: list[str] = []

    def allocate(self, one: State, count: int) -> State:
        """Return the states of ``count`` clients that all start with the state ``one``.

        Raises:
            RequestError: If the states have to be kept in a file and no folder was given.
            NotWritten: If there is no space for the file.
        """
        self.bytes, self._names = count * nbytes(one), list(one)
        if not one or not self.bytes:
            self.place = None
            return {k: v.expand(count, *v.shape).clone() for k, v in one.items()}
        self.place = self._choose() if self.wanted == "auto" else self.wanted
        return {k: self._allocate(k, v, count) for k, v in one.items()}

    def files(self) -> dict[str, Path]:
        """Return the files that hold states, by name; empty if the states are in memory."""
        if self.place != "file" or self.folder is None:
            return {}
        return {name: self.folder / f"{name}.bin" for name in self._names}

    def read(self, name: str, room: torch.Tensor, source: Path) -> None:
        """Read the states ``room`` that were last allocated under ``name`` from a copy of their file.

        Raises:
            ValueError: If the copy has another size.
        """
        if source.stat().st_size != room.nbytes:
            raise ValueError(f"{source} has {source.stat().st_size} bytes, not {room.nbytes}")
        files = self.files()
        if name in files:  # file to file, which maps nothing
            with writing(files[name]), source.open("rb") as old, files[name].open("r+b") as new:
                shutil.copyfileobj(old, new, _PIECE)
        else:
            room.copy_(torch.from_file(str(source), shared=False, size=room.numel(), dtype=room.dtype).view_as(room))

    def _choose(self) -> Place:
        host = psutil.virtual_memory().available
        if self.device.type == "cuda":
            if self.bytes <= _SHARE * torch.cuda.mem_get_info(self.device)[0]:
                return "device"
            return "host" if self.bytes <= _SHARE * host else "file"
        return "device" if self.bytes <= _SHARE * host else "file"

    def _allocate(self, name: str, v: torch.Tensor, count: int) -> torch.Tensor:
        shape = (count, *v.shape)
        if self.place == "file":
            return self._in_file(name, v, shape)
        device = v.device if self.place == "device" else torch.device("cpu")
        if device.type == "cpu" and not v.any():  # zeros: the system gives a page when it is first changed
            pages = mmap.mmap(-1, count * v.nbytes, **_PRIVATE)
            return torch.frombuffer(pages, dtype=v.dtype).view(shape)
        return v.to(device).expand(shape).clone()

    def _in_file(self, name: str, v: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        """Return states in a file, written without mapping it: pages that no client changes take no memory."""
        if self.folder is None:
            raise RequestError(f"the client states take {self.bytes / 1e9:.1f} GB and no folder for them was given")
        path = self.folder / f"{name}.bin"
        with writing(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
        rows = max(1, _PIECE // max(1, v.nbytes))
        piece = v.cpu().expand(rows, *v.shape).contiguous().flatten().view(torch.uint8).numpy().data
        left = prod(shape) * v.element_size()
        with replacing(path) as part, part.open("wb") as file:
            while left:
                left -= file.write(piece[:left])
        return _mapped(path, prod(shape), v.dtype).view(shape)


def client_rows(states: State, ids: torch.Tensor) -> State:
    """States [c, ...] of the clients ``ids`` [c], on the device of the ids, from those of all clients [N, ...]."""
    return {k: v.index_select(0, ids.to(v.device)).to(ids.device) for k, v in states.items()}


def write_rows(states: State, ids: torch.Tensor, new: State) -> None:
    """Replace the states of the clients ``ids`` [c] in those of all clients [N, ...], wherever these are.

    Raises:
        KeyError: If there is no new state under a name; nothing is replaced then.
    """
    moved = {name: new[name] for name in states}
    for name, v in states.items():
        v.index_copy_(0, ids.to(v.device), moved[name].to(v.device))


def _mapped(path: Path, size: int, dtype: torch.dtype) -> torch.Tensor:
    """Map a file; PyTorch has an error of its own in place of the system's, whose number is at its end."""
    try:
        return torch.from_file(str(path), shared=True, size=size, dtype=dtype)
    except RuntimeError as error:
        found = re.search(r": ([^:]*) \((\d+)\)$", str(error))
        if found is None:
            raise
        raise NotWritten(path, OSError(int(found[2]), found[1])) from error

"""Where the states of all clients live, [N, ...]: on the device, in host memory or in a file, by size."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Literal, TypeAlias

import psutil
import torch

from fedbench.core.errors import RequestError
from fedbench.core.types import State, nbytes

Place: TypeAlias = Literal["device", "host", "file"]
_SHARE = 0.5  # share of the free memory that the states may take


class StateAllocator:
    """Allocates the states that clients keep between rounds.

    Args:
        device: The device of the computation.
        place: "device", "host" (pinned if the device is a GPU), "file" (memory-mapped), or "auto": the first of these
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

    def _choose(self) -> Place:
        host = psutil.virtual_memory().available
        if self.device.type == "cuda":
            if self.bytes <= _SHARE * torch.cuda.mem_get_info(self.device)[0]:
                return "device"
            return "host" if self.bytes <= _SHARE * host else "file"
        return "device" if self.bytes <= _SHARE * host else "file"

    def _allocate(self, name: str, v: torch.Tensor, count: int) -> torch.Tensor:
        shape = (count, *v.shape)
        if self.place == "device":
            return v.expand(shape).clone()
        if self.place == "host":
            room = torch.empty(shape, dtype=v.dtype, pin_memory=self.device.type == "cuda")
        else:
            if self.folder is None:
                raise RequestError(f"the client states take {self.bytes / 1e9:.1f} GB and no folder for them was given")
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{name}.bin"
            path.unlink(missing_ok=True)
            room = torch.from_file(str(path), shared=True, size=prod(shape), dtype=v.dtype).view(shape)
        for part in room.split(max(1, 2**24 // max(1, v.numel()))):
            part.copy_(v.expand_as(part))
        return room


def read_file(path: Path, like: torch.Tensor) -> torch.Tensor:
    """Return the tensor in a file of states, memory-mapped, with the shape and type of ``like``."""
    return torch.from_file(str(path), shared=False, size=like.numel(), dtype=like.dtype).view(like.shape)

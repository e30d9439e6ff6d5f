"""Rows of client states [N, ...], read and written wherever the states are.

States in host memory pass through pinned memory on streams of their own, so that the copies of one part of a cohort
overlap with the local phase of another: a part is copied to the GPU while that of the part before is still computed,
and what a part has left is written to its place when the next part of the same thread has been handed out, or at the
end of the round.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.core.types import State


class _Write(NamedTuple):
    """New states on their way to the host."""

    places: State  # of all clients, [N, ...]
    rows: Tensor  # [c] on the host
    staged: State  # pinned, [c, ...]; complete after the event
    sources: State  # on the GPU; held, since their memory may not be used again before that
    arrived: torch.cuda.Event


class _Lane(NamedTuple):
    """What one thread copies with: a stream for each direction, so that neither waits for the other."""

    up: torch.cuda.Stream
    down: torch.cuda.Stream
    writes: list[_Write]


class StateRows:
    """Reads and writes the client states of the parts of a cohort; the methods may be called by several threads.

    Args:
        device: Device of the computation.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._lanes: dict[int, _Lane] = {}

    def read(self, states: State, ids: np.ndarray, on_device: Tensor) -> State:
        """Return the states of some clients on the device, [c, ...].

        Args:
            states: The states of all clients, [N, ...].
            ids: The clients [c].
            on_device: The same, on the device.
        """
        far = [name for name, v in states.items() if self._far(v)]
        found = {k: v.index_select(0, on_device) for k, v in states.items() if k not in far}
        if not far:
            return found
        rows, up = torch.from_numpy(ids), self._lane().up
        compute = torch.cuda.current_stream(self._device)
        for name in far:
            staged = _pinned(states[name], len(ids))
            torch.index_select(states[name], 0, rows, out=staged)
            with torch.cuda.stream(up):  # torch does not use pinned memory again before copies from it have ended
                found[name] = staged.to(self._device, non_blocking=True)
        compute.wait_stream(up)
        for name in far:
            found[name].record_stream(compute)  # its memory belongs to the other stream
        return {name: found[name] for name in states}

    def write(self, states: State, ids: np.ndarray, on_device: Tensor, new: State) -> None:
        """Write the new states of some clients to their places; in host memory they are there after ``flush``.

        Args:
            states: The states of all clients, [N, ...].
            ids: The clients [c].
            on_device: The same, on the device.
            new: Their new states on the device, [c, ...].

        Raises:
            KeyError: If there is no new state under a name.
        """
        moved = {name: new[name] for name in states}  # what can fail comes first
        far = {name: v for name, v in states.items() if self._far(v)}
        if far:
            self._send(far, ids, {name: moved[name] for name in far})
        for name, v in states.items():
            if name not in far:
                v.index_copy_(0, on_device, moved[name])

    def flush(self) -> None:
        """Write everything that is still on its way; no other thread may be at work."""
        for lane in self._lanes.values():
            _finish(lane.writes, 0)

    def _far(self, states: Tensor) -> bool:
        """Return whether states are on the host and the computation is not."""
        return self._device.type == "cuda" and not states.is_cuda

    def _send(self, places: State, ids: np.ndarray, new: State) -> None:
        """Begin to copy new states to the host, and finish what this thread has begun before that."""
        lane = self._lane()
        staged = {name: _pinned(v, len(ids)) for name, v in places.items()}
        lane.down.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(lane.down):
            for name, v in new.items():
                staged[name].copy_(v, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record(lane.down)
        lane.writes.append(_Write(places, torch.from_numpy(ids), staged, new, arrived))
        _finish(lane.writes, 1)

    def _lane(self) -> _Lane:
        thread = threading.get_ident()
        if thread not in self._lanes:
            self._lanes[thread] = _Lane(torch.cuda.Stream(self._device), torch.cuda.Stream(self._device), [])
        return self._lanes[thread]


def _pinned(states: Tensor, count: int) -> Tensor:
    """Return pinned memory for the states of ``count`` clients."""
    return torch.empty((count, *states.shape[1:]), dtype=states.dtype, pin_memory=True)


def _finish(writes: list[_Write], left: int) -> None:
    """Write what has arrived to its places, the oldest first, until ``left`` are on their way."""
    while len(writes) > left:
        first = writes[0]
        first.arrived.synchronize()
        for name, v in first.places.items():
            v.index_copy_(0, first.rows, first.staged[name])
        del writes[0]

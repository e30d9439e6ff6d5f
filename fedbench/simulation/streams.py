"""CUDA streams of worker threads.

Every worker thread gives its work to a stream of its own, which first waits for the stream of the thread that hands the
work out; that one waits for all of them before ``Engine.map`` returns. With this order memory needs no
``Tensor.record_stream`` on the way in or out: what the caller has allocated is freed by the caller, after its stream
has waited for every use; what a worker has allocated is freed by the worker, or by the caller after that wait, and is
used again by the worker only after its stream has waited for the caller's. Only what
passes between streams during the work is recorded: the sums of ``Gathered``, and the states that ``StateRows.read``
copies from the host.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
U = TypeVar("U")


class Streams:
    """The streams of the worker threads of one pool.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._thread = device, threading.local()
        self._all: list[torch.cuda.Stream] = []

    def after_caller(self, f: Callable[[T], U]) -> Callable[[T], U]:
        """Return ``f`` as worker threads carry it out: on their own streams, after what the caller's stream holds."""
        begun = torch.cuda.current_stream(self._device).record_event()

        def on_own_stream(item: T) -> U:
            if not hasattr(self._thread, "stream"):
                self._thread.stream = torch.cuda.Stream(self._device)
                self._all.append(self._thread.stream)
            self._thread.stream.wait_event(begun)
            with torch.cuda.stream(self._thread.stream):
                return f(item)

        return on_own_stream

    def join(self) -> None:
        """Let the caller's stream wait for everything that worker threads have given to theirs."""
        caller = torch.cuda.current_stream(self._device)
        for stream in self._all:
            caller.wait_stream(stream)


class Home:
    """The stream of the thread that makes this, for tensors that several worker threads write to; nothing on a CPU.

    Args:
        device: Device of the tensors.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.current_stream(device) if device.type == "cuda" else None

    def here(self) -> AbstractContextManager[object]:
        """Give work to this stream, and take memory from it: nothing that is pending uses that memory."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def event(self) -> torch.cuda.Event | None:
        """Return an event that follows the work of the calling thread so far."""
        return None if self._stream is None else torch.cuda.current_stream(self._stream.device).record_event()

    def take_over(self, tensors: list[Tensor], event: torch.cuda.Event | None) -> None:
        """Let this stream use tensors of another thread that are complete after ``event``."""
        if self._stream is None or event is None:
            return
        self._stream.wait_event(event)
        for v in tensors:
            v.record_stream(self._stream)  # the other thread's stream must not use the memory again too early

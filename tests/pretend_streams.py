"""Streams and events of a pretended GPU: which operations are ordered, and memory that one stream takes too early.

Everything is carried out at once and in the order of the calls. What is followed is which order CUDA would guarantee:
every stream counts its operations, and knows how far it has waited for the others. A tensor that was written, or read,
further than that by another stream is a fault, as is memory that was freed while another stream may still use it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


class PretendEvent:
    """A place in the work of a stream.

    Attributes:
        synchronized: Called with an event for which the host waits.
    """

    synchronized: Callable[[PretendEvent], None]

    def __init__(self, **options: Any) -> None:
        self.after: dict[PretendStream, int] = {}

    def record(self, stream: PretendStream) -> None:
        """Take the place after everything that the stream has been given."""
        self.after = {**stream.seen, stream: stream.done}

    def synchronize(self) -> None:
        """Let the host wait for this place."""
        self.synchronized(self)


class PretendStream:
    """A stream of the pretended GPU."""

    def __init__(self, device: Any = None) -> None:
        self.device = torch.device("cuda:0")
        self.done = 0  # operations
        self.seen: dict[PretendStream, int] = {}  # operations of others that have ended before the next one here begins

    def record_event(self, event: PretendEvent | None = None) -> PretendEvent:
        """Return an event after everything that this stream has been given."""
        event = event or PretendEvent()
        event.record(self)
        return event

    def wait_event(self, event: PretendEvent) -> None:
        """Let what follows here wait for an event."""
        for stream, done in event.after.items():
            if stream is not self:
                self.seen[stream] = max(done, self.seen.get(stream, 0))

    def wait_stream(self, stream: PretendStream) -> None:
        """Let what follows here wait for what a stream has been given."""
        self.wait_event(stream.record_event())

    def synchronize(self) -> None:
        """Let the host wait for what this stream has been given."""
        self.record_event().synchronize()

    def after(self, stream: PretendStream, done: int) -> bool:
        """Return whether what follows here comes after operation ``done`` of a stream."""
        return stream is self or self.seen.get(stream, 0) >= done


_ALLOCATING = ("::empty", "::new_empty", "::empty_like", "::empty_strided")  # which start no kernel


@dataclass
class _Use:
    memory: StorageWeakRef
    home: PretendStream  # that it was allocated on
    begun: tuple[PretendStream, int]  # when
    writers: dict[PretendStream, int]
    readers: dict[PretendStream, int] = field(default_factory=dict)


class Order:
    """Which stream each thread uses, and which has used which memory.

    Args:
        found: Called with a sentence for each fault.
    """

    def __init__(self, found: Callable[[str], None]) -> None:
        self._found, self._lock = found, threading.Lock()
        self.default = PretendStream()
        self.current: dict[int, PretendStream] = {}  # by thread
        self.made = [self.default]
        self._uses: dict[int, _Use] = {}

    def new(self, device: Any = None) -> PretendStream:
        """Return a new stream."""
        self.made.append(PretendStream(device))
        return self.made[-1]

    def operation(
        self,
        name: str,
        stream: PretendStream,
        read: Iterable[Tensor],
        wrote: Iterable[Tensor],
        made: Iterable[Tensor] = (),
        own_rows: bool = False,
    ) -> None:
        """Follow an operation with the tensors that it reads, writes and allocates.

        With ``own_rows``, other streams may use other rows of the same tensors at the same time.
        """
        if len(self.made) == 1:
            return
        with self._lock:
            if name.endswith(_ALLOCATING):
                read = ()
            else:
                stream.done += 1
            readable = {v.untyped_storage()._cdata: v for v in read}
            for at in readable:
                self._read(name, stream, at, own_rows)
            for v in wrote:
                at = v.untyped_storage()._cdata
                use = self._uses.get(at)
                if use is None or use.memory.expired():  # from before there were streams
                    memory = StorageWeakRef(v.untyped_storage())
                    use = self._uses[at] = _Use(memory, self.default, (self.default, 0), {})
                self._written(name, stream, use, own_rows)
            for v in made:
                self._allocate(name, stream, v)

    def recorded(self, v: Tensor, stream: PretendStream) -> None:
        """Keep memory from being used again before ``stream`` has done what it has been given: ``record_stream``."""
        use = self._uses.get(v.untyped_storage()._cdata)
        if use is not None and use.home is not stream:
            del self._uses[v.untyped_storage()._cdata]

    def synchronize(self) -> None:
        """Let all streams wait for all others."""
        for stream in self.made:
            for other in self.made:
                stream.wait_stream(other)

    def _allocate(self, name: str, stream: PretendStream, v: Tensor) -> None:
        for at, use in list(self._uses.items()):  # memory that has come back to this stream
            if use.home is not stream or not use.memory.expired():
                continue
            del self._uses[at]
            if any(not stream.after(*used) for used in (*use.readers.items(), *use.writers.items())):
                self._found(f"{name} in memory that was freed while another stream may use it")
        memory, now = StorageWeakRef(v.untyped_storage()), stream.done
        self._uses[memory.cdata] = _Use(memory, stream, (stream, now), {stream: now})

    def _read(self, name: str, stream: PretendStream, at: int, own_rows: bool) -> None:
        use = self._uses.get(at)
        if use is not None and not use.memory.expired():
            if any(not stream.after(*used) for used in ([use.begun] if own_rows else use.writers.items())):
                self._found(f"{name} of a tensor that another stream writes, without waiting for it")
            use.readers[stream] = stream.done

    def _written(self, name: str, stream: PretendStream, use: _Use, own_rows: bool) -> None:
        users = [use.begun] if own_rows else [*use.readers.items(), *use.writers.items()]
        if any(not stream.after(*used) for used in users):
            self._found(f"{name} into a tensor that another stream uses, without waiting for it")
        if own_rows:
            use.writers[stream] = stream.done
        else:
            use.writers, use.readers = {stream: stream.done}, {}

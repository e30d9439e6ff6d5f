"""CUDA graphs of a pretended GPU: a capture notes the operations, a replay carries them out in the same memory.

As on CUDA, nothing has happened when a capture ends, numbers of Python are what they were in the capture, and memory
from outside of the capture is read and written where it was. What a capture has computed is NaN until a replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._mode_utils import no_dispatch


@dataclass(frozen=True)
class _Outside:
    """A tensor in memory that was there before the capture, which this does not keep."""

    memory: StorageWeakRef
    size: torch.Size
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype

    def tensor(self) -> Tensor:
        storage = torch.UntypedStorage._new_with_weak_ptr(self.memory.cdata)
        if storage is None:
            raise GraphError("a graph reads or writes memory that has been freed")
        return torch.empty(0, dtype=self.dtype).set_(storage, self.offset, self.size, self.stride)


class GraphError(RuntimeError):
    """A graph that would not work on CUDA."""


class PretendGraph:
    """A graph of the pretended GPU."""

    replays = 0

    def __init__(self) -> None:
        self._steps: list[tuple[Any, Any, Any, list[Tensor]]] = []
        self._made: dict[int, Tensor] = {}  # a tensor in each memory that the capture has allocated
        self._saved: dict[int, tuple[Tensor, Tensor]] = {}  # whole memory from outside that is written, and its values
        self._read: dict[int, _Outside] = {}
        self._complete = False
        self.replayed: Callable[[list[Tensor], list[Tensor]], None] = lambda read, written: None

    def before(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Note the tensors that an operation is about to use, and return its arguments in a form to keep."""
        for v in (v.raw for v in written(func, args, kwargs)):
            at = v.untyped_storage()._cdata
            if at not in self._made and at not in self._saved:
                whole = v.new_empty(0).set_(v.untyped_storage())
                self._saved[at] = whole, whole.clone()
        return _each(self._kept, args), _each(self._kept, kwargs)

    def add(self, func: Any, kept: tuple[Any, Any], used: list[Tensor], out: Any) -> None:
        """Note an operation that has been carried out, with its outcome."""
        memory = {v.untyped_storage()._cdata for v in used}
        fresh = [v for v in leaves(out) if v.untyped_storage()._cdata not in memory]
        self._made |= {v.untyped_storage()._cdata: v for v in fresh}
        if fresh or func._schema.is_mutable:
            self._steps.append((func, *kept, fresh))

    def end(self) -> None:
        """Take back what the capture has done."""
        for whole, values in self._saved.values():
            whole.copy_(values)
        self._written = [self._kept_outside(whole) for whole, _ in self._saved.values()]
        self._saved.clear()
        for v in self._made.values():
            if v.is_floating_point():
                v.fill_(float("nan"))
        self._complete = True

    def replay(self) -> None:
        """Carry out the operations."""
        if not self._complete:
            raise GraphError("the graph has not been captured")
        PretendGraph.replays += 1
        with no_dispatch(), torch.no_grad():
            self.replayed([v.tensor() for v in self._read.values()], [v.tensor() for v in self._written])
            for func, args, kwargs, fresh in self._steps:
                memory = {v.untyped_storage()._cdata for v in leaves((args, kwargs))}
                out = func(*_each(_restored, args), **_each(_restored, kwargs))
                new = [v for v in leaves(out) if v.untyped_storage()._cdata not in memory] if fresh else []
                for place, v in zip(fresh, new, strict=True):
                    place.copy_(v)

    def _kept(self, v: Any) -> Any:
        if not isinstance(v, Tensor):
            return v
        raw: Tensor | None = getattr(v, "raw", None)
        if raw is None:
            return v.clone()  # a number, which is what it was in the capture
        at = raw.untyped_storage()._cdata
        if at in self._made:
            return raw
        outside = self._kept_outside(raw)
        self._read.setdefault(at, outside)
        return outside

    @staticmethod
    def _kept_outside(v: Tensor) -> _Outside:
        return _Outside(StorageWeakRef(v.untyped_storage()), v.shape, v.stride(), v.storage_offset(), v.dtype)


def written(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Return the tensors that an operation changes."""
    if not func._schema.is_mutable:
        return []
    found = []
    for k, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = kwargs.get(argument.name) if argument.kwarg_only or k >= len(args) else args[k]
            found += list(leaves(value))
    return found


def leaves(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in a value."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for v in value:
            yield from leaves(v)
    elif isinstance(value, dict):
        yield from leaves(list(value.values()))


def _each(f: Callable[[Any], Any], value: Any) -> Any:
    if type(value) in (list, tuple):
        return type(value)(_each(f, v) for v in value)
    return {k: _each(f, v) for k, v in value.items()} if type(value) is dict else f(value)


def _restored(v: Any) -> Any:
    return v.tensor() if isinstance(v, _Outside) else v

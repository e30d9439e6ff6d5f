"""Tensors that pretend to be on a GPU, for a rehearsal without one: finds what CUDA refuses and what makes it wait.

A ``PretendTensor`` holds a tensor on the CPU and computes with it. To Python it says that it is on ``cuda:0``, so that
code takes its branches for GPUs; inside torch it is on a device of a backend of its own, so that autograd, vmap and the
checks of devices work. Streams and graphs have stand-ins (``pretend_streams``, ``pretend_graphs``). Not covered: the
kernels themselves (cuDNN, TF32, orders of sums), memory and speed.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pretend_graphs import PretendGraph, leaves, written
from pretend_streams import Order, PretendEvent, PretendStream
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

import fedbench
from fedbench.core.transfers import upload
from fedbench.simulation import engine as engine_module

backend_registration._setup_privateuseone_for_python_backend("pretend")

CUDA, _INSIDE, _HOST = torch.device("cuda:0"), torch.device("pretend:0"), torch.device("cpu")
_PACKAGE = str(Path(fedbench.__file__).parent)
_WAITING = {  # operations whose result, or its shape, the host has to know
    f"aten::{name}"
    for name in (
        "_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2", "unique_dim",
        "unique_consecutive", "bincount", "repeat_interleave", "allclose", "_linalg_check_errors",
    )
}  # fmt: skip
# functions in which threads read or write rows of their own of the same tensors
_OWN_ROWS = ("store", "Gathered.put", "StateRows.", "Cohort.train.<locals>.work")
_INDEXING = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}


class PretendError(RuntimeError):
    """What CUDA would refuse: tensors of two devices in one operation, or a generator of another device."""


class PretendTensor(torch.Tensor):
    """A tensor that pretends to be on a GPU.

    Attributes:
        raw: The tensor on the CPU that holds its values.
    """

    raw: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, raw: Tensor) -> PretendTensor:
        kind = {"strides": raw.stride(), "storage_offset": raw.storage_offset(), "dtype": raw.dtype, "device": _INSIDE}
        made: PretendTensor = torch.Tensor._make_wrapper_subclass(cls, raw.size(), **kind)
        made.raw = raw
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert PretendGpu.current is not None, f"{func} outside of the rehearsal"
        return PretendGpu.current.carry_out(func, args, kwargs or {})  # in a thread of autograd, which has no modes


class _Calls(TorchFunctionMode):
    """Translates between the device that Python sees and the one that torch sees."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func == Tensor.device.__get__:  # an object of its own in every access
            device = func(*args)
            return CUDA if device.type == "pretend" else device
        if func == Tensor.is_cuda.__get__:
            return Tensor.device.__get__(*args).type == "pretend"
        if func is Tensor.numpy and isinstance(args[0], PretendTensor):
            if not kwargs.get("force"):
                raise TypeError(f"numpy() of a tensor on the GPU, {_line()}")
            args, kwargs = (args[0].to(_HOST),), {}
        if func is torch._VF.lstm:
            return _lstm(*args)
        if func is Tensor.untyped_storage and isinstance(args[0], PretendTensor):
            return args[0].raw.untyped_storage()
        if "device" in kwargs:
            kwargs["device"] = _inside(kwargs["device"])
        if func is Tensor.to:
            args = [_inside(a) for a in args]
        kwargs.pop("pin_memory", None)  # memory on the host, which needs a driver
        return func(*args, **kwargs)


class _Operations(TorchDispatchMode):
    """Carries out the operations that touch the pretended GPU."""

    def __init__(self, gpu: PretendGpu) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.gpu.carry_out(func, args, kwargs or {})


class PretendGpu:
    """A GPU that does not exist; a context manager inside which tensors can be on ``cuda``.

    Args:
        copying: Functions of fedbench, by qualified name, in which a round may copy to the device without waiting for
            it, and the reasons.
        waiting: Those in which it may wait for the device.

    Attributes:
        faults: What a round must not do, with the operation and the line in fedbench, in the order found.
        excused: Number of waits and copies in rounds, by the name of the allowed function.
        launches: Number of operations in rounds that would start a kernel, views left out.
    """

    current: PretendGpu | None = None

    def __init__(self, copying: Mapping[str, str], waiting: Mapping[str, str]) -> None:
        self.copying, self.waiting = copying, waiting
        self.faults: list[str] = []
        self.excused: Counter[str] = Counter()
        self.launches = 0
        self._in_round = False
        self._modes = (_Calls(), _Operations(self))
        self._patch = pytest.MonkeyPatch()
        self.order = Order(lambda fault: self.faults.append(f"{fault}, {_line()}"))
        self._threads = {threading.get_ident()}  # all but those of autograd
        self._backward = threading.RLock()  # torch calls what the name stands for again
        self._caller = threading.get_ident()  # of the backward pass under way
        self._captures: dict[int, PretendGraph] = {}  # by thread
        self._arriving: list[tuple[PretendStream, int, Tensor, Tensor]] = []  # copies to the host that are under way

    def __enter__(self) -> PretendGpu:
        stand_ins: dict[str, Any] = {"is_available": lambda: True, "device_count": lambda: 1}
        stand_ins |= {"mem_get_info": lambda device=None: (2**36, 2**36), "max_memory_allocated": lambda device=None: 1}
        stand_ins |= {"memory_allocated": lambda device=None: 0, "memory_reserved": lambda device=None: 0}
        stand_ins |= {"reset_peak_memory_stats": lambda device=None: None, "empty_cache": lambda: None}
        stand_ins |= {"get_device_properties": lambda device=None: SimpleNamespace(uuid="GPU-0")}
        stand_ins |= {"get_device_name": lambda device=None: "a pretended GPU", "synchronize": self._synchronize}
        stand_ins |= {"Stream": self.order.new, "Event": PretendEvent, "stream": self._on, "graph": self._capture}
        stand_ins |= {"current_stream": lambda device=None: self.stream()}
        stand_ins |= {"default_stream": lambda device=None: self.order.default}
        stand_ins |= {"is_current_stream_capturing": lambda: threading.get_ident() in self._captures}
        stand_ins |= {"CUDAGraph": PretendGraph, "graph_pool_handle": object}
        for name, stand_in in stand_ins.items():
            self._patch.setattr(torch.cuda, name, stand_in)
        self._patch.setattr(torch.backends.cudnn, "is_acceptable", lambda tensor: False)  # weights stay where they are
        self._patch.setattr(Tensor, "record_stream", lambda v, stream: self.order.recorded(v.raw, stream))
        self._patch.setattr(torch.autograd, "grad", self._grad(torch.autograd.grad))
        self._patch.setattr(engine_module, "_prepare_thread", self._prepared(engine_module._prepare_thread))
        self._patch.setattr(PretendEvent, "synchronized", staticmethod(self._arrived), raising=False)
        PretendGpu.current = self
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)
        PretendGpu.current = None
        self._patch.undo()

    @contextmanager
    def round(self) -> Iterator[None]:
        """A round of training, in which nothing may wait for the device."""
        self._in_round = True
        try:
            yield
        finally:
            self._in_round = False

    def thread(self) -> int:
        """Return the thread that has called for what is done now: of the backward pass, if autograd does it."""
        own = threading.get_ident()
        return own if own in self._threads else self._caller

    def stream(self) -> PretendStream:
        """Return the current stream."""
        return self.order.current.get(self.thread(), self.order.default)

    def _prepared(self, prepare: Callable[[], None]) -> Callable[[], None]:
        """Return the start of a worker thread, to which tensors are on a GPU too."""

        def start() -> None:
            prepare()
            self._threads.add(threading.get_ident())
            for mode in (_Calls(), _Operations(self)):
                mode.__enter__()

        return start

    def _grad(self, grad: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``torch.autograd.grad`` for one thread at a time, which the operations then belong to."""

        def one_by_one(*args: Any, **kwargs: Any) -> Any:
            with self._backward:
                self._caller = threading.get_ident()
                return grad(*args, **kwargs)

        return one_by_one

    @contextmanager
    def _on(self, stream: PretendStream) -> Iterator[None]:
        thread, before = self.thread(), self.stream()
        self.order.current[thread] = stream
        try:
            yield
        finally:
            self.order.current[thread] = before

    def _leave(self, target: Tensor, source: Tensor) -> Tensor:
        """Begin a copy to the host; until somebody waits for it, the host finds nothing of use there."""
        self.order.operation("a copy to the host", self.stream(), [source], [])
        self._arriving.append((self.stream(), self.stream().done, target, source.clone()))
        return target.fill_(torch.nan if target.is_floating_point() else -1)

    def _arrived(self, event: PretendEvent) -> None:
        """Wait for an event, with the copies to the host that it follows."""
        self._wait("a wait for an event")
        for stream in self.order.made:  # what the host hands out from now on comes later
            stream.wait_event(event)
        self._deliver(lambda stream, done: event.after.get(stream, 0) >= done)

    def _deliver(self, there: Callable[[PretendStream, int], bool]) -> None:
        for entry in [e for e in self._arriving if there(e[0], e[1])]:
            entry[2].copy_(entry[3])
            self._arriving.remove(entry)

    def _synchronize(self, device: Any = None) -> None:
        if self._captures:  # of any thread
            raise PretendError(f"a wait for the device during a capture, {_line()}")
        self.order.synchronize()
        self._deliver(lambda stream, done: True)

    @contextmanager
    def _capture(
        self, graph: PretendGraph, pool: Any, stream: PretendStream, capture_error_mode: str
    ) -> Iterator[None]:
        if self._captures:
            raise PretendError(f"a second capture at the same time, {_line()}")
        if stream is self.order.default:
            raise PretendError(f"a capture of the default stream, {_line()}")
        self._synchronize()
        graph.replayed = lambda read, wrote: self.order.operation("a replay", self.stream(), read, wrote)
        self._captures[self.thread()] = graph
        with self._on(stream):
            try:
                yield
            finally:
                del self._captures[self.thread()]
                graph.end()

    def carry_out(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the outcome of an operation of torch, on the CPU or on the pretended GPU."""
        flat = [v for a in (*args, *kwargs.values()) for v in (a if isinstance(a, list | tuple) else (a,))]
        mine = [v for v in flat if isinstance(v, PretendTensor)]
        target = kwargs.get("device")
        if not mine and (target is None or target.type != "pretend"):
            return func(*args, **kwargs)
        self._check(func, args, kwargs, flat)
        if func._schema.name == "aten::copy_" and mine[0] is not args[0] and args[2:] and args[2]:
            return self._leave(args[0], mine[0].raw)
        if target is not None:
            kwargs = {**kwargs, "device": _HOST}
        out = self._carried_out(func, args, kwargs, [v.raw for v in mine])
        if func._schema.is_mutable:
            if torch.Tag.inplace_view in func.tags:  # another shape, which the tensor shown to Python needs too
                with no_dispatch():
                    func(*args, **kwargs)
            return kwargs.get("out", args[0] if args else None)
        if self._in_round and not any(r.alias_info for r in func._schema.returns):
            self.launches += 1
        if target is not None and target.type == "cpu":
            return out
        return _mapped(lambda v: PretendTensor(v) if isinstance(v, Tensor) else v, out)

    def _carried_out(self, func: Any, args: Any, kwargs: dict[str, Any], used: list[Tensor]) -> Any:
        """Return the outcome on the CPU, which a capture notes; otherwise the order of the streams is followed."""
        graph = self._captures.get(self.thread())
        kept = None if graph is None else graph.before(func, args, kwargs)
        out = func(*_mapped(_raw, args), **{k: _mapped(_raw, v) for k, v in kwargs.items()})
        if graph is not None:
            graph.add(func, kept, used, out)
            return out
        changed = [v.raw for v in written(func, args, kwargs) if isinstance(v, PretendTensor)]
        memory = {v.untyped_storage()._cdata for v in used}
        fresh = [v for v in leaves(out) if v.untyped_storage()._cdata not in memory]
        if changed or fresh or kwargs.get("device") is not None:  # all but views
            read = [v for v in used if not any(v is c for c in changed)]
            own_rows = next(_functions(), "").startswith(_OWN_ROWS)
            self.order.operation(func._schema.name, self.stream(), read, changed, fresh, own_rows)
        return out

    def _check(self, func: Any, args: Any, kwargs: dict[str, Any], leaves: list[Any]) -> None:
        """Find what CUDA refuses, and what a round must not do."""
        name, target = func._schema.name, kwargs.get("device")
        if any(isinstance(v, torch.Generator) for v in leaves):
            raise PretendError(f"{name} on the GPU with a generator of the CPU, {_line()}")
        host = [v for v in leaves if isinstance(v, Tensor) and not isinstance(v, PretendTensor)]
        if name in ("aten::_to_copy", "aten::copy_"):
            copied = name == "aten::copy_"
            down = not isinstance(args[0], PretendTensor) if copied else target is not None and target.type == "cpu"
            blocking = not (args[2:] and args[2] if copied else kwargs.get("non_blocking"))
            if down and not (copied and not blocking):  # into pinned memory nothing waits, until somebody reads it
                self._wait(f"{name} to the host")
            elif down:
                return
            elif host and blocking:
                self._wait(f"{name} to the device that waits for it")
            elif host:
                self._find(f"{name} to the device", self.copying)
            return
        if name in _INDEXING:
            masks = [i for i in args[1] if i is not None and i.dtype in (torch.bool, torch.uint8)]
            if masks:
                self._wait(f"{name} by a mask")
            if any(i is not None and not isinstance(i, PretendTensor) for i in args[1]):
                self._wait(f"{name} by an index on the host")
            host = [v for v in (args[0], *args[2:3]) if isinstance(v, Tensor) and not isinstance(v, PretendTensor)]
        if name in _WAITING:
            self._wait(name)
        written = func._schema.is_mutable and not isinstance(args[0], PretendTensor)
        if written or any(v.dim() for v in host):
            raise PretendError(f"{name} with tensors on the GPU and on the CPU, {_line()}")

    def _wait(self, what: str) -> None:
        self._find(what, self.waiting)

    def _find(self, what: str, allowed: Mapping[str, str]) -> None:
        """Note what a round does, as a fault unless a function that it is in is allowed to."""
        if self._captures.get(self.thread()):
            raise PretendError(f"{what} during a capture, {_line()}")
        if not self._in_round:
            return
        excuse = next((f for f in _functions() if f in allowed), None)
        if excuse is None:
            self.faults.append(f"{what}, {_line()}")
        else:
            self.excused[excuse] += 1


def _lstm(x: Tensor, state: Any, weights: Any, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    """One layer [B, L, inputs] by its definition: torch has fused kernels for CUDA and others for the CPU."""
    w_in, w_out, b_in, b_out = weights
    (h, c), outputs = (v[0] for v in state), []
    for t in range(x.shape[1]):
        i, f, g, o = (x[:, t] @ w_in.T + b_in + h @ w_out.T + b_out).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outputs.append(h)
    return torch.stack(outputs, 1), h[None], c[None]


def _raw(value: Any) -> Any:
    return value.raw if isinstance(value, PretendTensor) else value


def _mapped(f: Callable[[Any], Any], value: Any) -> Any:
    """Return ``f`` of a value, or of each in a list or tuple."""
    return type(value)(_mapped(f, v) for v in value) if type(value) in (list, tuple) else f(value)


def _inside(device: Any) -> Any:
    if isinstance(device, torch.device) or (isinstance(device, str) and device.startswith("cuda")):
        return _INSIDE if torch.device(device).type == "cuda" else device
    return device


def _frames() -> Iterator[Any]:
    """Yield the frames of fedbench, from the innermost; where autograd has a thread of its own, of the main thread."""
    gpu = PretendGpu.current
    frame = sys._current_frames().get(threading.get_ident() if gpu is None else gpu.thread())
    while frame is not None:
        if frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_code is not upload.__code__:
            yield frame
        frame = frame.f_back


def _functions() -> Iterator[str]:
    for frame in _frames():
        yield frame.f_code.co_qualname


def _line() -> str:
    frame = next(_frames(), None)
    if frame is None:
        return "not called by fedbench"
    return f"{Path(frame.f_code.co_filename).relative_to(Path(_PACKAGE).parent)}:{frame.f_lineno}"

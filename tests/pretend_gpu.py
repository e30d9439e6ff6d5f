"""Tensors that pretend to be on a GPU, for a rehearsal without one: finds what CUDA refuses and what makes it wait.

A ``PretendTensor`` holds a tensor on the CPU and computes with it. To Python it says that it is on ``cuda:0``, so that
code takes its branches for GPUs; inside torch it is on a device of a backend of its own, so that autograd, vmap and the
checks of devices work. Not covered: the kernels themselves (cuDNN, TF32, orders of sums), streams, memory and speed.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

import fedbench
from fedbench.core.transfers import upload

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
        if func is Tensor.device.__get__:
            device = func(*args)
            return CUDA if device.type == "pretend" else device
        if func is Tensor.is_cuda.__get__:
            return Tensor.device.__get__(*args).type == "pretend"
        if func is Tensor.numpy and isinstance(args[0], PretendTensor):
            if not kwargs.get("force"):
                raise TypeError(f"numpy() of a tensor on the GPU, {_line()}")
            args, kwargs = (args[0].to(_HOST),), {}
        if func is torch._VF.lstm:
            return _lstm(*args)
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

    def __enter__(self) -> PretendGpu:
        stand_ins = {"is_available": lambda: True, "device_count": lambda: 1, "synchronize": lambda device=None: None}
        stand_ins |= {"mem_get_info": lambda device=None: (2**36, 2**36), "max_memory_allocated": lambda device=None: 1}
        stand_ins |= {"get_device_name": lambda device=None: "a pretended GPU"}
        stand_ins |= {"memory_allocated": lambda device=None: 0, "memory_reserved": lambda device=None: 0}
        stand_ins |= {"reset_peak_memory_stats": lambda device=None: None, "empty_cache": lambda: None}
        for name, stand_in in stand_ins.items():
            self._patch.setattr(torch.cuda, name, stand_in)
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

    def carry_out(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the outcome of an operation of torch, on the CPU or on the pretended GPU."""
        leaves = [v for a in (*args, *kwargs.values()) for v in (a if isinstance(a, list | tuple) else (a,))]
        mine = any(isinstance(v, PretendTensor) for v in leaves)
        target = kwargs.get("device")
        if not mine and (target is None or target.type != "pretend"):
            return func(*args, **kwargs)
        self._check(func, args, kwargs, leaves)
        raw_args, raw_kwargs = _mapped(_raw, args), {k: _mapped(_raw, v) for k, v in kwargs.items()}
        if target is not None:
            raw_kwargs["device"] = _HOST
        out = func(*raw_args, **raw_kwargs)
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

    def _check(self, func: Any, args: Any, kwargs: dict[str, Any], leaves: list[Any]) -> None:
        """Find what CUDA refuses, and what a round must not do."""
        name, target = func._schema.name, kwargs.get("device")
        if any(isinstance(v, torch.Generator) for v in leaves):
            raise PretendError(f"{name} on the GPU with a generator of the CPU, {_line()}")
        host = [v for v in leaves if isinstance(v, Tensor) and not isinstance(v, PretendTensor)]
        if name in ("aten::_to_copy", "aten::copy_"):
            copied = name == "aten::copy_"
            copied = name == "aten::copy_"
            down = not isinstance(args[0], PretendTensor) if copied else target is not None and target.type == "cpu"
            blocking = not (args[2:] and args[2] if copied else kwargs.get("non_blocking"))
            if down:
                self._wait(f"{name} to the host")
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
    main = threading.main_thread().ident
    own = threading.get_ident()
    frame = sys._current_frames()[own if own == main or main is None else main]
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

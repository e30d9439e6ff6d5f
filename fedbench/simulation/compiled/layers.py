"""Layers in compiled code, for models that are trained one client at a time on a CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedbench.models.base import CompiledLayer
from fedbench.models.cnn import PooledConv
from fedbench.models.lstm import Layer

_INT, _POINTER = ctypes.c_int64, ctypes.c_void_p

_FEW_EXAMPLES = 16  # up to which an LSTM layer is faster here than through torch


class _Pooling(ctypes.Structure):
    _fields_ = [
        ("images", _INT), ("height", _INT), ("width", _INT), ("channels", _INT), ("x", _POINTER), ("y", _POINTER),
        ("choice", _POINTER), ("d_y", _POINTER), ("d_x", _POINTER), ("sums", _POINTER), ("part", _POINTER),
    ]  # fmt: skip


class _Pass(ctypes.Structure):
    _fields_ = [
        ("examples", _INT), ("tokens", _INT), ("inputs", _INT), ("hidden", _INT), ("x", _POINTER), ("w_in", _POINTER),
        ("w_out", _POINTER), ("bias", _POINTER), ("state", _POINTER), ("out", _POINTER),
    ]  # fmt: skip


class _Derivatives(ctypes.Structure):
    _fields_ = [("out", _POINTER), ("x", _POINTER), ("w_in", _POINTER), ("w_out", _POINTER), ("bias", _POINTER)]


class LayerKernels:
    """The compiled layers for models of one type of numbers.

    Args:
        kernels: The loaded library.
        dtype: float32 or float64.
    """

    def __init__(self, kernels: ctypes.CDLL, dtype: torch.dtype) -> None:
        kind = "float" if dtype == torch.float32 else "double"
        self.pool: Callable[..., None] = getattr(kernels, f"pool_{kind}")
        self.pool_back: Callable[..., None] = getattr(kernels, f"pool_back_{kind}")
        self.lstm: Callable[..., int] = getattr(kernels, f"lstm_{kind}")
        self.lstm_back: Callable[..., int] = getattr(kernels, f"lstm_back_{kind}")

    def install(self, model: nn.Module) -> None:
        """Let the layers of a model that have a compiled form use it."""
        for module in model.modules():
            if isinstance(module, PooledConv):
                module.compiled = self._pooled_conv
            elif isinstance(module, Layer):
                module.compiled = self._lstm

    def _pooled_conv(self, layer: nn.Module, x: Tensor) -> Tensor:
        assert isinstance(layer, PooledConv)
        y: Tensor = _PooledConv.apply(x, layer.weight, layer.bias, layer.padding, self)  # type: ignore[no-untyped-call]
        return y

    def _lstm(self, layer: nn.Module, x: Tensor) -> Tensor:
        assert isinstance(layer, Layer)
        if len(x) > _FEW_EXAMPLES:
            y: Tensor = nn.LSTM.forward(layer, x)[0]
            return y
        bias = layer.bias_ih_l0 + layer.bias_hh_l0
        y = _LSTM.apply(x, layer.weight_ih_l0, layer.weight_hh_l0, bias, self)  # type: ignore[no-untyped-call]
        return y


def has_compiled_layers(model: nn.Module) -> bool:
    """Return whether a layer of a model has a compiled form."""
    return any(isinstance(module, CompiledLayer) for module in model.modules())


class _PooledConv(torch.autograd.Function):
    """A convolution, 2x2 max pooling and ReLU, channels last."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, padding: tuple[int, int], kernels: LayerKernels
    ) -> Tensor:
        z = F.conv2d(x, weight, bias, padding=padding).contiguous(memory_format=torch.channels_last)
        images, channels, height, width = z.shape
        y = z.new_empty(images, height // 2, width // 2, channels)
        choice = torch.empty(y.shape, dtype=torch.uint8) if any(ctx.needs_input_grad) else None
        call = _Pooling(images, height, width, channels, z.data_ptr(), y.data_ptr(), _at(choice))
        kernels.pool(ctypes.byref(call))
        ctx.save_for_backward(x, weight, choice)
        ctx.shape, ctx.padding, ctx.kernels = z.shape, padding, kernels
        return y.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, choice = ctx.saved_tensors
        images, channels, height, width = ctx.shape
        d_y = d_y.contiguous(memory_format=torch.channels_last)
        d_z = d_y.new_empty(images, height, width, channels)
        d_bias, part = d_y.new_empty(2, channels)
        call = _Pooling(
            images, height, width, channels, None, None, choice.data_ptr(), d_y.data_ptr(), d_z.data_ptr(),
            d_bias.data_ptr(), part.data_ptr(),
        )  # fmt: skip
        ctx.kernels.pool_back(ctypes.byref(call))
        wanted = [ctx.needs_input_grad[0], True, False]
        d_x, d_weight, _ = torch.ops.aten.convolution_backward(
            d_z.permute(0, 3, 1, 2), x, weight, None, (1, 1), ctx.padding, (1, 1), False, (0, 0), 1, wanted
        )
        return d_x, d_weight, d_bias, None, None


class _LSTM(torch.autograd.Function):
    """One LSTM layer, [B, L, inputs] -> [B, L, hidden]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w_in: Tensor, w_out: Tensor, bias: Tensor, kernels: LayerKernels) -> Tensor:
        x, w_in, w_out = x.contiguous(), w_in.contiguous(), w_out.contiguous()
        out = x.new_empty(*x.shape[:2], w_out.shape[1])
        values = 64 // x.itemsize
        units = -(-w_out.shape[1] // values) * values
        state = x.new_empty(*x.shape[:2], 6 * units) if any(ctx.needs_input_grad) else None
        saved = (x, w_in, w_out, bias, state, out)
        _call(kernels.lstm, _pass(*saved))
        ctx.save_for_backward(*saved)
        ctx.kernels = kernels
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        d_out = d_out.contiguous()
        found = [torch.empty_like(v) for v in ctx.saved_tensors[:4]]
        d_x = found[0] if ctx.needs_input_grad[0] else None
        derivatives = _Derivatives(d_out.data_ptr(), _at(d_x), *(v.data_ptr() for v in found[1:]))
        _call(ctx.kernels.lstm_back, _pass(*ctx.saved_tensors), derivatives)
        return d_x, *found[1:], None


def _pass(x: Tensor, w_in: Tensor, w_out: Tensor, bias: Tensor, *rest: Tensor | None) -> _Pass:
    tensors = (x, w_in, w_out, bias, *rest)
    return _Pass(*x.shape, w_out.shape[1], *map(_at, tensors))


def _call(function: Callable[..., int], *requests: ctypes.Structure) -> None:
    """Call a kernel, which lets other threads of Python run meanwhile.

    Raises:
        MemoryError: If there is no memory for its working copies.
    """
    if function(*map(ctypes.byref, requests)):
        raise MemoryError("no memory for the working copies of a layer")


def _at(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()

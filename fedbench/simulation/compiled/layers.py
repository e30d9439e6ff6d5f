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

_INT, _POINTER = ctypes.c_int64, ctypes.c_void_p


class _Pooling(ctypes.Structure):
    _fields_ = [
        ("images", _INT), ("height", _INT), ("width", _INT), ("channels", _INT), ("x", _POINTER), ("y", _POINTER),
        ("choice", _POINTER), ("d_y", _POINTER), ("d_x", _POINTER), ("sums", _POINTER), ("part", _POINTER),
    ]  # fmt: skip


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

    def install(self, model: nn.Module) -> None:
        """Let the layers of a model that have a compiled form use it."""
        for module in model.modules():
            if isinstance(module, PooledConv):
                module.compiled = self._pooled_conv

    def _pooled_conv(self, layer: nn.Module, x: Tensor) -> Tensor:
        assert isinstance(layer, PooledConv)
        y: Tensor = _PooledConv.apply(x, layer.weight, layer.bias, layer.padding, self)  # type: ignore[no-untyped-call]
        return y


def has_compiled_layers(model: nn.Module) -> bool:
    """Return whether a layer of a model has a compiled form."""
    return any(isinstance(module, CompiledLayer) for module in model.modules())


class _PooledConv(torch.autograd.Function):
    """A convolution, 2x2 max pooling and ReLU, channels last."""

    @staticmethod
    def forward(  # type: ignore[override]
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
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
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


def _at(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()

"""Convolutions as matrix products, for layers with few output pixels.

Vectorised over clients, a convolution becomes one with a group for every client, whose kernels are not made for many
groups. As columns times weights it is one batched product forward and two backward, whatever the number of clients.
Columns take as many times the memory of the input as the kernel has places, so that only small outputs are unfolded.
"""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

FEW_PIXELS = 64  # of an output image: the layers of VGG-11 and ResNet-18 on images of 8 x 8 and less


def unfoldable(model: nn.Module) -> bool:
    """Return whether a model has convolutions that can be unfolded."""
    return any(_can_unfold(module) for module in model.modules())


def unfold_small(model: nn.Module) -> None:
    """Compute the convolutions of ``model`` as matrix products from now on where the output has few pixels."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and _can_unfold(module):
            # what Conv2d.forward calls, so that subclasses keep what they do before and after it
            module._conv_forward = partial(_convolve, module)  # type: ignore[method-assign]


def _can_unfold(module: nn.Module) -> bool:
    """Return whether a layer is a convolution that ``_convolve`` can carry out; others stay as they are."""
    return (
        isinstance(module, nn.Conv2d)
        and type(module)._conv_forward is nn.Conv2d._conv_forward
        and module.groups == 1
        and module.padding_mode == "zeros"
        and not isinstance(module.padding, str)
    )


def _convolve(conv: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the convolution of x [B, C, H, W], [B, C', h, w]."""
    assert not isinstance(conv.padding, str)
    if x.dim() != 4:
        return F.conv2d(x, weight, bias, conv.stride, conv.padding, conv.dilation)
    reach = [d * (k - 1) + 1 for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
    padded = [n + 2 * p for n, p in zip(x.shape[2:], conv.padding, strict=True)]
    h, w = ((n - r) // s + 1 for n, r, s in zip(padded, reach, conv.stride, strict=True))
    if h * w > FEW_PIXELS:
        return F.conv2d(x, weight, bias, conv.stride, conv.padding, conv.dilation)
    if any(conv.padding):
        x = F.pad(x, (conv.padding[1], conv.padding[1], conv.padding[0], conv.padding[0]))
    for side in (0, 1):  # views [B, C, h, w, kh, kw]; F.unfold starts a kernel for every image of the batch on a GPU
        x = x.unfold(2 + side, reach[side], conv.stride[side])
    x = x[..., :: conv.dilation[0], :: conv.dilation[1]]
    columns = x.permute(1, 4, 5, 0, 2, 3).reshape(weight[0].numel(), -1)  # [C kh kw, B h w]
    out = weight.flatten(1) @ columns
    if bias is not None:
        out = out + bias.unsqueeze(1)
    return out.view(len(weight), -1, h, w).transpose(0, 1)

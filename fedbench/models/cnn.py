"""Small convolutional networks. Pooling comes before ReLU: the same function, on a quarter of the values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedbench.core.errors import RequestError, integer, sizes
from fedbench.models.base import require_images


class PooledConv(nn.Conv2d):
    """Convolution, 2x2 max pooling and ReLU, [B, channels, height, width] -> [B, channels', height / 2, width / 2].

    Args:
        inputs: Input channels.
        outputs: Output channels.
        kernel: Side of the kernel; odd where the image is padded, so that the convolution keeps the size.
        padded: Whether the image is padded with zeros; without padding the convolution takes kernel - 1 pixels off.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, padded: bool = True) -> None:
        super().__init__(inputs, outputs, kernel, padding=kernel // 2 if padded else 0)

    def forward(self, x: Tensor) -> Tensor:
        """Return the pooled images."""
        return torch.relu(F.max_pool2d(super().forward(x), 2))


class ConvNet(nn.Module):
    """Blocks of convolution (same size), 2x2 max pooling and ReLU, then one hidden linear layer.

    Args:
        input_shape: Shape of one image, (channels, height, width).
        classes: Number of classes.
        channels: Output channels of each block.
        kernel: Side of the convolution kernels; odd.
        hidden: Size of the hidden linear layer.

    Raises:
        RequestError: If the examples are not images, the images are too small to pool, or a size is out of range.
    """

    def __init__(
        self, input_shape: Sequence[int], classes: int, channels: Sequence[int], kernel: int, hidden: int
    ) -> None:
        super().__init__()
        require_images(input_shape)
        if integer("kernel", kernel, at_least=1) % 2 == 0:
            raise RequestError(f"model.kernel must be odd, got {kernel}; an odd kernel keeps the image size")
        widths = [input_shape[0], *sizes("channels", channels)]
        side = [s >> len(channels) for s in input_shape[1:]]
        if min(side) < 1:
            raise RequestError(
                f"{len(channels)} poolings need images of at least {2 ** len(channels)} pixels a side, "
                f"got {input_shape[1]} x {input_shape[2]}; give model.channels fewer entries"
            )
        self.convs = nn.ModuleList(PooledConv(a, b, kernel) for a, b in pairwise(widths))
        self.hidden = nn.Linear(widths[-1] * side[0] * side[1], integer("hidden", hidden, at_least=1))
        self.out = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, channels, height, width] to logits [B, classes]."""
        for conv in self.convs:
            x = conv(x)
        logits: Tensor = self.out(torch.relu(self.hidden(x.flatten(1))))
        return logits

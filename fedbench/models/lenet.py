"""LeNet-5 as in NIID-Bench: convolutions without padding, and two hidden linear layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from fedbench.core.errors import RequestError, integer, sizes
from fedbench.models.base import require_images
from fedbench.models.cnn import PooledConv


class LeNet(nn.Module):
    """Blocks of convolution without padding, 2x2 max pooling and ReLU, then hidden linear layers with ReLU.

    The layers of LeNet-5 (LeCun et al., 1998) with ReLU and max pooling. On images of 28 x 28 pixels the defaults of
    ``model=lenet`` leave 4 x 4 of 16 channels: 44 426 parameters for one channel and 10 classes.

    Args:
        input_shape: Shape of one image, (channels, height, width).
        classes: Number of classes.
        channels: Output channels of each block.
        kernel: Side of the convolution kernels.
        hidden: Sizes of the hidden linear layers.

    Raises:
        RequestError: If the examples are not images, the images are too small, or a size is out of range.
    """

    def __init__(
        self, input_shape: Sequence[int], classes: int, channels: Sequence[int], kernel: int, hidden: Sequence[int]
    ) -> None:
        super().__init__()
        require_images(input_shape)
        integer("kernel", kernel, at_least=1)
        widths, (height, width) = [input_shape[0], *sizes("channels", channels)], input_shape[1:]
        for block in range(len(channels)):
            height, width = (height - kernel + 1) // 2, (width - kernel + 1) // 2
            if min(height, width) < 1:
                raise RequestError(
                    f"convolution {block + 1} without padding and its pooling leave nothing of images of "
                    f"{input_shape[1]} x {input_shape[2]} pixels; use a smaller model.kernel or fewer model.channels"
                )
        linear = [widths[-1] * height * width, *sizes("hidden", hidden)]
        self.convs = nn.ModuleList(PooledConv(a, b, kernel, padded=False) for a, b in pairwise(widths))
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(linear))
        self.out = nn.Linear(linear[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, channels, height, width] to logits [B, classes]."""
        for conv in self.convs:
            x = conv(x)
        x = x.flatten(1)
        for layer in self.hidden:
            x = torch.relu(layer(x))
        logits: Tensor = self.out(x)
        return logits

"""Small convolutional networks.

Pooling comes before ReLU: the result is the same, but ReLU processes a quarter of the values.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedbench.core.errors import RequestError
from fedbench.core.options import Count
from fedbench.models.base import require_images
from fedbench.models.convolution import VisibleConv2d
from fedbench.models.dense import apply_layers, linear_layers


class Conv(VisibleConv2d):
    """Convolution, 2x2 max pooling and ReLU.

    It maps [B, channels, height, width] to [B, channels', height / 2, width / 2].

    Args:
        inputs: Input channels.
        outputs: Output channels.
        kernel: Side of the kernel; odd if the image is padded, so that the convolution keeps the
            size.
        padded: Whether the image is padded with zeros; without padding, the convolution shrinks
            each side by kernel - 1 pixels.
        pooled: Whether to apply pooling.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        padded: bool = True,
        pooled: bool = True,
    ) -> None:
        padding = kernel // 2 if padded else 0
        super().__init__(inputs, outputs, kernel, padding=padding)
        self.pooled = pooled

    def forward(self, x: Tensor) -> Tensor:
        """Return the feature maps after ReLU."""
        y = super().forward(x)
        if self.pooled:
            y = F.max_pool2d(y, 2)
        return torch.relu(y)


def _blocks(
    input_shape: Sequence[int],
    channels: Sequence[Count],
    kernel: int,
    padded: bool = True,
) -> tuple[nn.ModuleList, int]:
    """Return blocks of convolution and pooling, and the number of features that they output.

    Raises:
        RequestError: If the examples are not images or are too small, or a size is out of range.
    """
    require_images(input_shape)
    widths = [input_shape[0], *channels]
    lost = 0 if padded else kernel - 1  # pixels that a convolution removes per side
    sides = np.array(input_shape[1:])
    for _ in channels:
        sides = (sides - lost) // 2
    if sides.min() < 1:
        raise RequestError(
            f"{len(channels)} convolutions and poolings leave nothing of images of "
            f"{input_shape[1]} x {input_shape[2]} pixels; give model.channels fewer entries, "
            "or use a smaller model.kernel"
        )
    blocks = nn.ModuleList()
    for inputs, outputs in pairwise(widths):
        blocks.append(Conv(inputs, outputs, kernel, padded))
    return blocks, widths[-1] * int(sides.prod())


def _classify(
    convs: Iterable[nn.Module],
    linear: list[nn.Module],
    x: Tensor,
) -> Tensor:
    """Return the logits [B, classes] of images."""
    for conv in convs:
        x = conv(x)
    return apply_layers(linear, x.flatten(1))


class ConvNet(nn.Module):
    """Blocks of padded convolution, 2x2 max pooling and ReLU, then one hidden linear layer.

    Args:
        input_shape: Shape of one image, (channels, height, width).
        classes: Number of classes.
        channels: Output channels of each block.
        kernel: Side of the convolution kernels; odd.
        hidden: Size of the hidden linear layer.

    Raises:
        RequestError: If the examples are not images, the images are too small to pool, or a size is
            out of range.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        classes: int,
        channels: Sequence[Count],
        kernel: Count,
        hidden: Count,
    ) -> None:
        super().__init__()
        self.convs, features = _blocks(input_shape, channels, kernel)
        if kernel % 2 == 0:
            raise RequestError(
                f"model.kernel must be odd, got {kernel}; an odd kernel keeps the image size"
            )
        self.hidden = nn.Linear(features, hidden)
        self.out = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, channels, height, width] to logits [B, classes]."""
        return _classify(self.convs, [self.hidden, self.out], x)


class LeNet(nn.Module):
    """Blocks of unpadded convolution, 2x2 max pooling and ReLU, then hidden linear layers.

    LeNet-5 (LeCun et al., 1998) with ReLU and max pooling, as in NIID-Bench. For 28 x 28 images,
    the default blocks of ``model=lenet`` output 16 channels of 4 x 4; with one input channel and 10
    classes, the model has 44 426 parameters.

    Args:
        input_shape: Shape of one image, (channels, height, width).
        classes: Number of classes.
        channels: Output channels of each block.
        kernel: Side of the convolution kernels.
        hidden: Sizes of the hidden linear layers.

    Raises:
        RequestError: If the examples are not images, the images are too small, or a size is out of
            range.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        classes: int,
        channels: Sequence[Count],
        kernel: Count,
        hidden: Sequence[Count],
    ) -> None:
        super().__init__()
        self.convs, features = _blocks(input_shape, channels, kernel, padded=False)
        widths = [features, *hidden]
        self.hidden = linear_layers(widths)
        self.out = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, channels, height, width] to logits [B, classes]."""
        return _classify(self.convs, [*self.hidden, self.out], x)

"""A convolution that skips products with padding."""

import torch.nn.functional as F
from torch import Tensor, nn


class VisibleConv2d(nn.Conv2d):
    """A convolution that skips the taps of its kernel that see only padding.

    It skips them if it outputs a single pixel, as in the last layers of a deep network on small
    images: with its 7x7 stem, ResNet reduces images of 32 x 32 pixels to 1 x 1, where one tap in
    nine of a 3x3 kernel sees the image. Outputs and gradients are those of ``nn.Conv2d`` up to
    rounding, and the gradient of a hidden tap is 0.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the feature maps [B, channels', height', width'] of x [B, channels, ...]."""
        if not self._hides_taps(x):
            return super().forward(x)

        # the first tap that sees the image sees its first pixel
        top, left = map(int, self.padding)
        bottom = top + x.shape[2]
        right = left + x.shape[3]
        weight = self.weight[..., top:bottom, left:right]
        height, width = weight.shape[2:]
        pixels = x[..., :height, :width]
        maps = F.linear(
            pixels.flatten(1),
            weight.flatten(1),
            self.bias,
        )
        return maps[..., None, None]

    def _hides_taps(self, x: Tensor) -> bool:
        """Return whether the output is a single pixel, and some taps see only padding."""
        is_plain = self.groups == 1 and self.dilation == (1, 1) and self.padding_mode == "zeros"
        if not is_plain or isinstance(self.padding, str) or x.dim() != 4:
            return False
        hidden = False
        sizes = zip(
            x.shape[2:],
            self.kernel_size,
            self.padding,
            self.stride,
            strict=True,
        )
        for pixels, taps, padding, stride in sizes:
            rest = pixels + 2 * padding - taps
            if not 0 <= rest < stride:
                return False
            hidden = hidden or padding > 0
        return hidden


def skip_hidden_taps(model: nn.Module) -> nn.Module:
    """Return a model after turning its plain convolutions into ``VisibleConv2d``."""
    for module in model.modules():
        if type(module) is nn.Conv2d:
            module.__class__ = VisibleConv2d
    return model

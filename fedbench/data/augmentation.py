"""Augmentation of training images as they are read."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Augmentation:
    """Augmentation of training images, as by torchvision's RandomCrop and RandomHorizontalFlip.

    Attributes:
        crop: Pixels of black padding on every side, before an image of the original size is cut
            out; 0 is none.
        flip: Whether images are mirrored with probability 1/2.
    """

    crop: int = 0
    flip: bool = False

    def __call__(self, x: Tensor, key: Tensor) -> Tensor:
        """Augment the images x [..., C, H, W], each by its key [...], a non-negative int64."""
        images = x.reshape(-1, *x.shape[-3:])
        keys = key.reshape(-1, 1)
        height, width = images.shape[2:]
        span = 2 * self.crop + 1  # places of the cut along a side
        down = torch.arange(height, device=x.device)
        across = torch.arange(width, device=x.device)

        mirrored = keys // (span * span) % 2 * self.flip
        across = torch.where(mirrored == 1, width - 1 - across, across)
        rows = keys % span + down  # [n, H], in the padded image
        columns = keys // span % span + across  # [n, W]

        padded = F.pad(images, (self.crop,) * 4)
        n = torch.arange(len(images), device=x.device)
        cut = padded[
            n[:, None, None],
            :,
            rows[:, :, None],
            columns[:, None, :],
        ]  # [n, H, W, C]
        return cut.permute(0, 3, 1, 2).reshape(x.shape)

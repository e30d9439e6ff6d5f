"""Augmentation of training images as they are read."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Augmentation:
    """Augmentation of training images, like torchvision's RandomCrop and RandomHorizontalFlip.

    Attributes:
        crop: Pixels of black padding added on every side before a crop of the original size; 0
            disables cropping.
        flip: Whether to mirror images with probability 1/2.
    """

    crop: int = 0
    flip: bool = False

    def __call__(self, x: Tensor, key: Tensor) -> Tensor:
        """Augment images x [..., C, H, W], each as determined by its key [...], an int64 >= 0."""
        images = x.reshape(-1, *x.shape[-3:])
        keys = key.reshape(-1, 1)
        height, width = images.shape[2:]
        span = 2 * self.crop + 1  # positions of the crop along a side
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

"""Random crops and flips: every draw is a function of a key per image."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Augmentation:
    """Augmentation of training images, as torchvision's RandomCrop with padding and RandomHorizontalFlip.

    Attributes:
        crop: Pixels of black padding on every side, before an image of the original size is cut out; 0 is none.
        flip: Whether images are mirrored with probability 1/2.
    """

    crop: int = 0
    flip: bool = False

    def __call__(self, x: Tensor, key: Tensor) -> Tensor:
        """The images x [..., C, H, W] augmented, each by its key [...], a non-negative int64."""
        images, keys = x.reshape(-1, *x.shape[-3:]), key.reshape(-1, 1)
        height, width = images.shape[2:]
        down, across = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
        span = 2 * self.crop + 1
        mirrored = (keys // (span * span)) % 2 * self.flip
        rows = keys % span + down  # [n, H], in the padded image
        columns = (keys // span) % span + torch.where(mirrored == 1, width - 1 - across, across)  # [n, W]
        padded = F.pad(images, (self.crop,) * 4)
        n = torch.arange(len(images), device=x.device)[:, None, None]
        cut = padded[n, :, rows[:, :, None], columns[:, None, :]]  # [n, H, W, C]
        return cut.permute(0, 3, 1, 2).reshape(x.shape)

"""Augmentation of training images as they are read."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fedbench.core.options import CropMode

_SHARES = 2**20  # resolution of ``crop_share``


@dataclass(frozen=True)
class Augmentation:
    """Augmentation of training images, like torchvision's RandomCrop and RandomHorizontalFlip.

    Attributes:
        crop: Pixels of padding added on every side before a crop of the original size; 0 disables
            cropping.
        flip: Whether to mirror images with probability 1/2.
        crop_mode: Padding: ``black`` pixels, ``reflect`` for the image mirrored at its edge, which
            is not repeated, or the ``mean`` of each channel, which is 0 in normalised images.
        crop_share: Probability that an image is cropped.
    """

    crop: int = 0
    flip: bool = False
    crop_mode: CropMode = "black"
    crop_share: float = 1.0

    @property
    def normalised(self) -> bool:
        """Whether it applies to normalised images, rather than to images as they are stored."""
        return self.crop_mode == "mean"

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
        draws = keys // (2 * span * span) % _SHARES
        cropped = draws < self.crop_share * _SHARES
        top = torch.where(cropped, keys % span, self.crop)
        left = torch.where(cropped, keys // span % span, self.crop)
        rows = top + down  # [n, H], in the padded image
        columns = left + across  # [n, W]

        padded = self._padded(images)
        n = torch.arange(len(images), device=x.device)
        cut = padded[
            n[:, None, None],
            :,
            rows[:, :, None],
            columns[:, None, :],
        ]  # [n, H, W, C]
        return cut.permute(0, 3, 1, 2).reshape(x.shape)

    def _padded(self, images: Tensor) -> Tensor:
        """Return images [n, C, H, W] with padding on every side."""
        if self.crop_mode != "reflect":
            return F.pad(images, (self.crop,) * 4)
        for axis in (2, 3):
            last = images.shape[axis] - 1
            places = torch.arange(-self.crop, last + self.crop + 1, device=images.device)
            mirrored = last - (last - places.abs()).abs()
            images = images.index_select(axis, mirrored)
        return images

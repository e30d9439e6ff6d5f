"""How images are standardised; pixel by pixel, as the scripts of FedProx and q-FFL do, is one way."""

from __future__ import annotations

import numpy as np

CHOICES = ("channel", "pixel", "none")
_OFFSET = 0.001  # added to the deviation, which is 0 where a pixel is black in all images
_PART = 5000  # images that are summed at a time


def per_channel(standardise: str, mean: float, std: float) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """Return the mean and the deviation that images of one channel are standardised with, in units of the full range.

    Args:
        standardise: "channel" for those given; "none" for 0 and 1, which leaves values from 0 to 1; "pixel" for None,
            since each pixel has its own.
        mean: Mean of the training images.
        std: Their standard deviation.
    """
    if standardise == "pixel":
        return None, None
    return ((mean,), (std,)) if standardise == "channel" else ((0.0,), (1.0,))


def per_pixel(images: np.ndarray, over: np.ndarray) -> np.ndarray:
    """Return (x - mean) / (std + 0.001) in float32, with a mean and a population deviation per pixel.

    Args:
        images: [T, ...] uint8.
        over: [S, ...] uint8: the images that mean and deviation, in units of 0 to 255, are taken over.
    """
    total, squares = np.zeros(over.shape[1:]), np.zeros(over.shape[1:])
    for part in np.array_split(over, max(1, len(over) // _PART)):
        values = part.astype(np.float64)
        total += values.sum(0)  # exact: sums of integers below 2**53
        squares += np.square(values).sum(0)
    mean = total / len(over)
    std = np.sqrt(np.maximum(squares / len(over) - mean**2, 0))
    standardised: np.ndarray = (images - mean.astype(np.float32)) / (std + _OFFSET).astype(np.float32)
    return standardised

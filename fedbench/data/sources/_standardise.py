"""Images standardised pixel by pixel, as the scripts of FedProx and q-FFL do."""

from __future__ import annotations

import numpy as np

CHOICES = ("channel", "pixel")
_OFFSET = 0.001  # added to the deviation, which is 0 where a pixel is black in all images
_PART = 5000  # images that are summed at a time


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

"""The idx format of MNIST and its relatives, and standardisation of their images."""

import gzip
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from fedbench.core.errors import RequestError
from fedbench.core.files import reading

Standardise: TypeAlias = Literal["channel", "pixel", "none"]
_BYTES = bytes([0, 0, 0x08])  # header for unsigned bytes, the only type used for images and labels
_OFFSET = 0.001  # added to the deviation, which is 0 if a pixel is black in all images


def read_images(
    paths: Sequence[Path],
    name: str,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Read the idx files of training images and labels, then of test images and labels.

    Returns:
        All images, uint8 [T, 1, height, width]; their labels, int64 [T]; and the number of training
        images.

    Raises:
        RequestError: If a file is not a valid idx file, or images and labels do not match.
    """
    images = [read(path) for path in paths[::2]]
    labels = [read(path) for path in paths[1::2]]
    for x, y in zip(images, labels, strict=True):
        if x.ndim != 3 or y.shape != x.shape[:1]:
            raise RequestError(
                f"{name}: expected images [T, height, width] and labels [T], "
                f"got {list(x.shape)} and {list(y.shape)}; download both files again"
            )
    x = np.concatenate(images)[:, None]
    y = np.concatenate(labels, dtype=np.int64)
    return x, y, len(labels[0])


def read(path: Path) -> np.ndarray:
    """Return the uint8 array in an idx file, which is decompressed if its name ends in .gz.

    Raises:
        RequestError: If the file is not a complete idx file of unsigned bytes.
    """
    with reading(path, "is not a complete idx file of bytes", "download it again"):
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
        if raw[:3] != _BYTES:
            raise ValueError(f"it begins with {raw[:4].hex()}")
        dimensions = raw[3]
        lengths = struct.unpack_from(f">{dimensions}I", raw, 4)
        pixels = np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * dimensions)
        return pixels.reshape(lengths)


def standardised(
    how: Standardise,
    images: np.ndarray,
    over: np.ndarray,
    mean: float,
    std: float,
) -> dict[str, Any]:
    """Return the fields ``x``, ``mean`` and ``std`` of single-channel images.

    Args:
        how: "channel" uses one mean and standard deviation for all pixels, "pixel" uses one pair
            per pixel, and "none" only scales values to [0, 1].
        images: [T, 1, height, width] uint8.
        over: Images [S, 1, height, width] from which the pairs per pixel are computed.
        mean: Mean of the training images, in units of the full range.
        std: Standard deviation of the training images, in the same units.
    """
    if how == "pixel":
        return {"x": _per_pixel(images, over)}
    if how == "none":
        return {"x": images}
    return {"x": images, "mean": (mean,), "std": (std,)}


def _per_pixel(images: np.ndarray, over: np.ndarray) -> np.ndarray:
    """Return (x - mean) / (std + 0.001) in float32, with one mean and deviation per pixel.

    Pixel values range from 0 to 255; the deviation is the population standard deviation.
    """
    mean = over.mean(0)
    squares = np.einsum("t...,t...->...", over, over, dtype=np.int64)
    variance = squares / len(over) - mean**2
    std = np.sqrt(np.maximum(variance, 0))
    scale = (std + _OFFSET).astype(np.float32)
    standard: np.ndarray = (images - mean.astype(np.float32)) / scale
    return standard

"""The idx format of MNIST and its relatives, and how their images are standardised."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from fedbench.core.errors import RequestError
from fedbench.core.files import reading
from fedbench.data.files.fetch import Files, Remote, ensure

Standardise: TypeAlias = Literal["channel", "pixel", "none"]
_BYTES = 0x08  # the type code of unsigned bytes, the only type of images and labels
_OFFSET = 0.001  # added to the deviation, which is 0 where a pixel is black in all images
_PART = 5000  # images that are summed at a time


def four_files(what: str, folder: str, sites: Sequence[str], md5: Mapping[str, tuple[str, str]]) -> tuple[Files, ...]:
    """The files of a data set of training images and labels, then test images and labels; each plain or gzipped.

    Args:
        what: Name of the data set, for messages.
        folder: Directory of the files, below the data directory.
        sites: Beginnings of the addresses of the gzipped files.
        md5: Name of each file -> its checksum, and that of the gzipped file.
    """
    return tuple(
        Files(
            what,
            layouts=([f"{folder}/{name}"], [f"{folder}/{name}.gz"]),
            remotes=[Remote(f"{folder}/{name}.gz", tuple(f"{site}{name}.gz" for site in sites), f"md5:{packed}", 100)],
            sums={name: f"md5:{plain}"},
        )
        for name, (plain, packed) in md5.items()
    )


def read_sets(groups: Sequence[Files], data_dir: Path, *, download: bool) -> tuple[np.ndarray, np.ndarray, int, bool]:
    """Read the files of ``four_files``, which are downloaded if they are missing.

    Returns:
        All images uint8 [T, 1, height, width] and their labels int64 [T], how many of them are training images, and
        whether all files are the official ones.
    """
    missing = [remote for group in groups if group.existing(data_dir) is None for remote in group.remotes]
    ensure(missing, data_dir, download=download, what=groups[0].what)  # together, so that a message names them all
    paths = [group.find(data_dir, download=download)[0] for group in groups]
    arrays = [read(path) for path in paths]
    sets = [with_labels(arrays[k], arrays[k + 1], groups[0].what) for k in (0, 2)]
    x, y = (np.concatenate(parts) for parts in zip(*sets, strict=True))
    genuine = all(group.genuine([path]) for group, path in zip(groups, paths, strict=True))
    return x, y, len(sets[0][1]), genuine


def read(path: Path) -> np.ndarray:
    """The array in an idx file, uint8; decompressed if its name ends in .gz.

    Raises:
        RequestError: If the file is not a complete idx file of unsigned bytes.
    """
    with reading(path, "is not a complete idx file of bytes", "download it again"):
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        zero, kind, dimensions = struct.unpack(">HBB", raw[:4])
        if (zero, kind) != (0, _BYTES):
            raise ValueError(f"it begins with {raw[:4].hex()}")
        start = 4 + 4 * dimensions
        lengths = struct.unpack(f">{dimensions}I", raw[4:start])
        return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(lengths)


def with_labels(images: np.ndarray, labels: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images as [T, 1, height, width] and their labels as int64 [T].

    Raises:
        RequestError: If the two do not match.
    """
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise RequestError(
            f"{name}: expected images [T, height, width] and labels [T], got {list(images.shape)} and "
            f"{list(labels.shape)}; download both files again"
        )
    return images[:, None], labels.astype(np.int64)


def standard(how: Standardise, mean: float, std: float) -> dict[str, Any]:
    """The fields ``mean`` and ``std`` of images of one channel.

    Args:
        how: "channel" for those given; "none" for 0 and 1, which leaves values from 0 to 1; "pixel" for None, since
            each pixel has its own.
        mean: Mean of the training images, in units of the full range.
        std: Their standard deviation, likewise.
    """
    if how == "pixel":
        return {}
    return {"mean": (mean,), "std": (std,)} if how == "channel" else {"mean": (0.0,), "std": (1.0,)}


def per_pixel(images: np.ndarray, over: np.ndarray) -> np.ndarray:
    """(x - mean) / (std + 0.001) in float32, with a mean and a population deviation per pixel.

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

"""EMNIST (Cohen, Afshar, Tapson and van Schaik, 2017), from the official idx files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from fedbench.data.examples import Examples, keep
from fedbench.data.files.cache import prepared
from fedbench.data.files.fetch import Files, published
from fedbench.data.sources._idx import read_images

_CLASSES = {"byclass": 62, "balanced": 47, "letters": 26}


def _files(split: str) -> Files:
    """Return the files of an EMNIST set."""
    files = published("emnist")
    layouts = []
    for layout in files.layouts:
        layouts.append([path.replace("byclass", split) for path in layout])
    return replace(files, layouts=layouts)


FILES = (_files("byclass"),)  # the set that the papers use


def load(
    data_dir: Path,
    *,
    split: Literal["byclass", "balanced", "letters"] = "byclass",
    classes: Sequence[int] | None = None,
    download: bool = True,
) -> Examples:
    """Read one of EMNIST's sets; its test images are held out.

    The files store images with rows and columns exchanged; the returned images are upright. Mean
    and standard deviation are computed from the training images that are kept.

    Args:
        data_dir: Directory of all data sets, with EMNIST/gzip.zip, or with EMNIST/raw/, which
            contains the idx files, gzipped or not.
        split: "byclass" for 62 classes (0-9 digits, 10-35 A-Z, 36-61 a-z; 697932 + 116323 images),
            "balanced" for 47 classes (112800 + 18800), or "letters" for 26 classes, each with
            capital and small letters (124800 + 20800).
        classes: Labels to keep, renumbered in this order. If None, all are kept.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If files are missing or corrupt, or ``classes`` is invalid.
    """
    keep(np.empty(0, dtype=np.int64), classes, _CLASSES[split])  # fail before any download
    paths = _files(split).find(data_dir, download=download)
    options = {"split": split, "classes": classes}
    return prepared(
        data_dir, f"emnist-{split}", paths, options, lambda: _read(paths, split, classes)
    )


def _read(
    paths: Sequence[Path],
    split: str,
    classes: Sequence[int] | None,
) -> Examples:
    x, labels, trained = read_images(paths, "EMNIST")
    first = 1 if split == "letters" else 0  # labels of letters begin at 1
    rows, y, count = keep(labels - first, classes, _CLASSES[split])
    held_out = rows >= trained
    upright = np.ascontiguousarray(x[rows].swapaxes(2, 3))
    mean, std = _statistics(upright[~held_out])
    return Examples(
        x=upright,
        y=y,
        classes=count,
        held_out=held_out,
        mean=(mean,),
        std=(std,),
        sources=(f"EMNIST {split}: idx files, which have no published checksums",),
    )


def _statistics(images: np.ndarray) -> tuple[float, float]:
    """Return the mean and standard deviation of all pixels, in units of the full range."""
    counts = np.zeros(256)
    for image in images:  # bincount uses eight bytes per pixel
        counts += np.bincount(image.ravel(), minlength=256)
    values = np.arange(256) / 255
    mean = counts @ values / counts.sum()
    variance = counts @ (values - mean) ** 2 / counts.sum()
    return float(mean), float(np.sqrt(variance))

"""CIFAR-100 (Krizhevsky, 2009), from the official pickled files."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from fedbench.data.examples import Examples
from fedbench.data.files.fetch import published
from fedbench.data.sources.cifar10 import read_batches

FILES = (published("cifar100"),)
_CLASSES = {"fine": 100, "coarse": 20}


def load(
    data_dir: Path, *, labels: Literal["fine", "coarse"] = "fine", download: bool = True
) -> Examples:
    """Read 50000 + 10000 images of 3 x 32 x 32; the official test images are held out.

    Args:
        data_dir: Directory of all data sets, with cifar-100-python/ or its archive.
        labels: "fine" for 100 classes, or "coarse" for 20 groups of five classes.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If files are missing or do not have the official format.
    """
    paths = FILES[0].find(data_dir, download=download)
    return replace(
        read_batches(FILES[0], paths, f"{labels}_labels", _CLASSES[labels]),
        mean=(0.5071, 0.4865, 0.4409),  # of the training images
        std=(0.2673, 0.2564, 0.2762),
    )

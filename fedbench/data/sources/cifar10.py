"""CIFAR-10 (Krizhevsky, 2009), from the official pickled batches."""

from __future__ import annotations

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.data.examples import Examples
from fedbench.errors import RequestError

_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
_ARCHIVE = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz (md5 c58f30108f718f92721af3b95e74349a)"


def load(data_dir: Path, seed: int) -> Examples:
    """Read 50000 + 10000 images of 3 x 32 x 32; the official test images are set apart.

    Args:
        data_dir: holds cifar-10-batches-py/.
        seed: not used.

    Raises:
        RequestError: if files are missing or not of the official form.
    """
    folder = data_dir / "cifar-10-batches-py"
    missing = [name for name in _MD5 if not (folder / name).is_file()]
    if missing:
        raise RequestError(
            f"CIFAR-10 is not in {folder}: {', '.join(missing)} missing; unpack {_ARCHIVE} in {data_dir}, or point "
            "data_dir (or $FEDBENCH_DATA) to the directory that holds cifar-10-batches-py"
        )
    official, xs, ys = True, [], []
    for name, md5 in _MD5.items():
        raw = (folder / name).read_bytes()
        official &= hashlib.md5(raw).hexdigest() == md5
        x, y = _batch(folder / name, raw)
        xs.append(x)
        ys.append(y)
    return Examples(
        x=np.concatenate(xs),
        y=np.concatenate(ys),
        classes=10,
        held_out=np.repeat(np.array(list(_MD5)) == "test_batch", [len(y) for y in ys]),
        mean=(0.4914, 0.4822, 0.4465),  # of the training images
        std=(0.2470, 0.2435, 0.2616),
        sources=(f"CIFAR-10: {'official files' if official else 'not the official files (md5 differs)'}",),
    )


def _batch(path: Path, raw: bytes) -> tuple[np.ndarray, np.ndarray]:
    try:
        content = _ArraysOnly(io.BytesIO(raw), encoding="latin1").load()
        x, y = np.asarray(content["data"], dtype=np.uint8), np.asarray(content["labels"], dtype=np.int64)
        return x.reshape(len(y), 3, 32, 32), y
    except (pickle.UnpicklingError, EOFError, LookupError, TypeError, ValueError, AttributeError, ImportError) as error:
        raise RequestError(f"{path} is not a CIFAR-10 batch: {error}; unpack {_ARCHIVE} again") from error


class _ArraysOnly(pickle.Unpickler):
    """Unpickles plain containers and NumPy arrays; a pickle that names anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")  # renamed in NumPy 2
        if (module, name) in {
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }:
            if not hasattr(np, "_core"):
                module = module.replace("numpy._core", "numpy.core")
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

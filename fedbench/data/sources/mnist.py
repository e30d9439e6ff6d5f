"""MNIST (LeCun et al., 1998), from the official idx files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from fedbench.data.examples import Examples
from fedbench.data.vision import torchvision
from fedbench.errors import RequestError, flag

# of the four files unpacked
_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


def load(data_dir: Path, seed: int, *, pool: bool = False) -> Examples:
    """Read 60000 + 10000 images of 28 x 28.

    Args:
        data_dir: holds MNIST/raw/ with the four idx files, as torchvision lays them out.
        seed: not used.
        pool: join the official training and test images, as FedProx's script does; otherwise the test images are set
            apart.

    Raises:
        RequestError: if files are missing.
    """
    folder = data_dir / "MNIST" / "raw"
    missing = [name for name in _MD5 if not (folder / name).is_file()]
    if missing:
        raise RequestError(
            f"MNIST is not in {folder}: {', '.join(missing)} missing; put the four unpacked idx files there, or point "
            "data_dir (or $FEDBENCH_DATA) to the directory that holds MNIST/raw"
        )
    sets = [torchvision().datasets.MNIST(str(data_dir), train=train, download=False) for train in (True, False)]
    sizes = [len(s.targets) for s in sets]
    official = all(hashlib.md5((folder / k).read_bytes()).hexdigest() == v for k, v in _MD5.items())
    return Examples(
        x=np.concatenate([s.data.numpy() for s in sets])[:, None],
        y=np.concatenate([s.targets.numpy() for s in sets]),
        classes=10,
        held_out=None if flag("data.source.pool", pool) else np.repeat([False, True], sizes),
        mean=(0.1307,),  # of the training images
        std=(0.3081,),
        sources=(f"MNIST: {'official files' if official else 'not the official files (md5 differs)'}",),
    )

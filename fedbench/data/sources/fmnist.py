"""Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017), from the official idx files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedbench.core.errors import choice
from fedbench.data.examples import Examples, origin
from fedbench.data.files.download import Remote, checksum, ensure
from fedbench.data.sources._classes import keep
from fedbench.data.sources._idx import images_of, read
from fedbench.data.sources._standardise import CHOICES, per_channel, per_pixel

_FOLDER = "FashionMNIST/raw"
_SITES = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
)
_NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_MD5 = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}
_PACKED = [Remote(f"{_FOLDER}/{n}.gz", tuple(f"{s}{n}.gz" for s in _SITES), md5=_MD5[f"{n}.gz"]) for n in _NAMES]
OFFICIAL = [*_PACKED, *(Remote(f"{_FOLDER}/{n}", (), md5=_MD5[n]) for n in _NAMES)]
PLACES = tuple(((f"{_FOLDER}/{name}",), (f"{_FOLDER}/{name}.gz",)) for name in _NAMES)


def load(
    data_dir: Path,
    *,
    classes: Sequence[int] | None = None,
    standardise: str = "channel",
    download: bool = True,
) -> Examples:
    """Read 60000 + 10000 images of 28 x 28; the official test images are held out.

    Args:
        data_dir: Directory of all data sets; contains FashionMNIST/raw/ with the idx files, gzipped or not.
        classes: Labels to keep, renumbered in this order; None keeps all ten. q-FFL and AFL keep T-shirt,
            pullover and shirt: [0, 2, 6].
        standardise: "channel" uses one mean and standard deviation for all pixels, those of the training images;
            "pixel" uses one pair per pixel, (x - mean) / (std + .001) in units of 0 to 255, over all 60000 training
            images whatever ``classes`` is (script for Fashion-MNIST of q-FFL, Li et al. 2020); "none" leaves values
            from 0 to 1.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If files are missing or corrupt, or an option is invalid.
    """
    mean, std = per_channel(choice("standardise", standardise, CHOICES), 0.2860, 0.3530)  # of the training images
    keep(np.empty(0, dtype=np.int64), classes, 10)  # fail before any download
    folder = data_dir / _FOLDER
    missing = [remote for n, remote in zip(_NAMES, _PACKED, strict=True) if not (folder / n).is_file()]
    ensure(missing, data_dir, download=download, what="Fashion-MNIST")
    files = [f if (f := folder / n).is_file() else folder / f"{n}.gz" for n in _NAMES]
    genuine = all(checksum(f) == _MD5[f.name] for f in files)
    train, test = (images_of(read(files[i]), read(files[i + 1]), str(folder)) for i in (0, 2))
    rows, y, count = keep(np.concatenate([train[1], test[1]]), classes, 10)
    x = np.concatenate([train[0], test[0]])[rows]
    if standardise == "pixel":
        x = per_pixel(x, train[0])
    sources, unofficial = origin("Fashion-MNIST", genuine)
    return Examples(
        x=x,
        y=y,
        classes=count,
        held_out=rows >= len(train[1]),
        mean=mean,
        std=std,
        sources=sources,
        unofficial=unofficial,
    )

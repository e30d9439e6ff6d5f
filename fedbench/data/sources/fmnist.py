"""Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017), from the official idx files."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedbench.data.examples import Examples, keep
from fedbench.data.sources._idx import Standardise, idx_files, read_images, standardised

_FILES = idx_files(
    "Fashion-MNIST",
    "FashionMNIST/raw",
    [
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    ],
    {
        "train-images-idx3-ubyte": (
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        ),
        "train-labels-idx1-ubyte": (
            "9018921c3c673c538a1fc5bad174d6f9",
            "25c81989df183df01b3e8a0aad5dffbe",
        ),
        "t10k-images-idx3-ubyte": (
            "8181f5470baa50b63fa0f6fddb340f0a",
            "bef4ecab320f06d8554ea6380940ec79",
        ),
        "t10k-labels-idx1-ubyte": (
            "15d484375f8d13e6eb1aabb0c3f46965",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    },
)
FILES = (_FILES,)


def load(
    data_dir: Path,
    *,
    classes: Sequence[int] | None = None,
    standardise: Standardise = "channel",
    download: bool = True,
) -> Examples:
    """Read 60000 + 10000 images of 28 x 28; the official test images are held out.

    Args:
        data_dir: Directory of all data sets; contains FashionMNIST/raw/ with the idx files, gzipped
            or not.
        classes: Labels to keep, renumbered in this order; None keeps all ten. q-FFL and AFL keep
            T-shirt, pullover and shirt: [0, 2, 6].
        standardise: "channel" uses one mean and standard deviation for all pixels, those of the
            training images; "pixel" uses one pair per pixel, (x - mean) / (std + .001) in units of
            0 to 255, over all 60000 training images whatever ``classes`` is (script for
            Fashion-MNIST of q-FFL, Li et al. 2020); "none" leaves values from 0 to 1.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If files are missing or corrupt, or ``classes`` is invalid.
    """
    keep(np.empty(0, dtype=np.int64), classes, 10)  # fail before any download
    paths = _FILES.find(data_dir, download=download)
    x, labels, trained = read_images(paths, _FILES.name)
    rows, y, count = keep(labels, classes, 10)
    return Examples(
        **standardised(standardise, x[rows], x[:trained], 0.2860, 0.3530),  # of the training images
        y=y,
        classes=count,
        held_out=rows >= trained,
        **_FILES.origin(paths),
    )

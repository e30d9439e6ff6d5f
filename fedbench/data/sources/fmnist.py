"""Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017), from the official idx files."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from fedbench.core.options import Count
from fedbench.data.examples import Examples, keep
from fedbench.data.files.fetch import published
from fedbench.data.sources._idx import Standardise, read_images, standardised
from fedbench.data.sources._images import decode

FILES = (published("fmnist"),)


def load(
    data_dir: Path,
    *,
    classes: Sequence[int] | None = None,
    size: Count | None = None,
    standardise: Standardise = "channel",
    pool: bool = False,
    download: bool = True,
) -> Examples:
    """Read 60000 + 10000 images of 28 x 28.

    Args:
        data_dir: Directory of all data sets, with FashionMNIST/raw/, which contains the idx files,
            gzipped or not.
        classes: Labels to keep, renumbered in this order. If None, all ten are kept. q-FFL and AFL
            keep T-shirt, pullover and shirt: [0, 2, 6].
        size: Side in pixels to which every image is scaled, bilinearly. If None, 28.
        standardise: "channel" uses the mean and standard deviation of the training images for all
            pixels. "pixel" uses one pair per pixel, (x - mean) / (std + .001) in units of 0 to 255,
            computed from all 60000 training images regardless of ``classes`` (q-FFL's script for
            Fashion-MNIST, Li et al. 2020). "none" only scales values to [0, 1].
        pool: Whether to join the official training and test images, as in PFLlib; otherwise the
            test images are held out.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If files are missing or corrupt, or ``classes`` is invalid.
    """
    keep(np.empty(0, dtype=np.int64), classes, 10)  # fail before any download
    paths = FILES[0].find(data_dir, download=download)
    x, labels, trained = read_images(paths, FILES[0].name)
    if size is not None:
        x = _scaled(x, size)
    rows, y, count = keep(labels, classes, 10)
    return Examples(
        **standardised(standardise, x[rows], x[:trained], 0.2860, 0.3530),  # of training images
        y=y,
        classes=count,
        held_out=None if pool else rows >= trained,
        **FILES[0].origin(paths),
    )


def _scaled(x: np.ndarray, size: int) -> np.ndarray:
    """Return images [T, 1, height, width] uint8 scaled to [T, 1, size, size]."""

    def scaled(image: Image.Image) -> Image.Image:
        return image.resize((size, size), Image.Resampling.BILINEAR)

    remedy = "lower data.source.size"
    return decode(
        list(x[:, 0]), 1, (size, size), opened=Image.fromarray, change=scaled, remedy=remedy
    )

"""MNIST (LeCun et al., 1998), from the official idx files."""

from pathlib import Path

import numpy as np

from fedbench.data.examples import Examples
from fedbench.data.files.fetch import published
from fedbench.data.sources._idx import Standardise, read_images, standardised

FILES = (published("mnist"),)


def load(
    data_dir: Path,
    *,
    download: bool = True,
    pool: bool = False,
    standardise: Standardise = "channel",
) -> Examples:
    """Read 60000 + 10000 images of 28 x 28.

    Args:
        data_dir: Directory of all data sets, with MNIST/raw/, which contains the four idx files as
            stored by torchvision, gzipped or not.
        download: Whether downloads are allowed.
        pool: Whether to join the official training and test images, as in FedProx's script;
            otherwise the test images are held out.
        standardise: "channel" uses the mean and standard deviation of the training images for all
            pixels. "pixel" uses one pair per pixel, (x - mean) / (std + .001) in units of 0 to 255,
            computed from all 70000 images regardless of ``pool`` (FedProx's script for MNIST, Li et
            al. 2020); training then uses statistics of the test images. "none" only scales values
            to [0, 1].

    Raises:
        RequestError: If files are missing and cannot be downloaded, or are not valid idx files.
    """
    paths = FILES[0].find(data_dir, download=download)
    x, y, trained = read_images(paths, FILES[0].name)
    return Examples(
        **standardised(standardise, x, x, 0.1307, 0.3081),  # of training images
        y=y,
        classes=10,
        held_out=None if pool else np.arange(len(y)) >= trained,
        **FILES[0].origin(paths),
    )

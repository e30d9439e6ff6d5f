"""CINIC-10 (Darlow, Crowley, Antoniou and Storkey, 2018), from the official PNG images."""

from pathlib import Path
from typing import Literal

import numpy as np

from fedbench.data.examples import Examples
from fedbench.data.files.cache import prepared
from fedbench.data.files.fetch import published
from fedbench.data.sources._images import decode, labelled_files

FILES = (published("cinic10"),)


def load(
    data_dir: Path, *, valid: Literal["train", "out"] = "train", download: bool = True
) -> Examples:
    """Read three sets of 90000 images of 3 x 32 x 32; the official test images are held out.

    The labels are the same as in CIFAR-10: the class directories in alphabetical order.

    Args:
        data_dir: Directory of all data sets, with cinic-10/, which contains train/, valid/ and
            test/, each with one directory per class.
        valid: "train" adds the validation images to the training images; "out" leaves them out.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If directories are missing or images cannot be read.
    """
    folders = FILES[0].find(data_dir, download=download)
    return prepared(data_dir, "cinic10", folders, {"valid": valid}, lambda: _read(folders, valid))


def _read(folders: list[Path], valid: str) -> Examples:
    if valid == "out":
        folders = [folder for folder in folders if folder.parent.name != "valid"]
    files, index = labelled_files(folders, ".png")
    classes, labels = np.unique([folder.name for folder in folders], return_inverse=True)
    tested = np.array([folder.parent.name == "test" for folder in folders])
    return Examples(
        x=decode(files, 3, (32, 32)),
        y=labels[index],
        classes=len(classes),
        held_out=tested[index],
        # statistics of the training images, from the authors' README
        mean=(0.47889522, 0.47227842, 0.43047404),
        std=(0.24205776, 0.23828046, 0.25874835),
        sources=(f"CINIC-10: {len(files)} images; without published checksums",),
    )

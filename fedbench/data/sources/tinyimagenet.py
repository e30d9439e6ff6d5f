"""Tiny-ImageNet (Le and Yang, 2015), from the official folders of JPEG images."""

from pathlib import Path

import numpy as np

from fedbench.core.files import reading
from fedbench.data.examples import Examples
from fedbench.data.files.cache import prepared
from fedbench.data.files.fetch import published
from fedbench.data.files.readers import read_text
from fedbench.data.sources._images import decode, labelled_files

FILES = (published("tinyimagenet"),)


def load(data_dir: Path, *, download: bool = True) -> Examples:
    """Read 100000 + 10000 images of 3 x 64 x 64.

    The official validation images are held out for testing. The official test images are left out,
    because their labels were never published. Class k is line k of wnids.txt.

    Args:
        data_dir: Directory of all data sets, with tiny-imagenet-200/, which contains wnids.txt,
            train/<wnid>/images/ and val/.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If files are missing or contradict each other, or images cannot be read.
    """
    folder = FILES[0].find(data_dir, download=download)[0].parent
    wnids = read_text(folder / "wnids.txt").split()
    images = [folder / "train" / wnid / "images" for wnid in wnids]
    paths = [
        *images,
        folder / "val/images",
        folder / "wnids.txt",
        folder / "val/val_annotations.txt",
    ]
    return prepared(data_dir, "tinyimagenet", paths, {}, lambda: _read(folder, wnids, images))


def _read(folder: Path, wnids: list[str], images: list[Path]) -> Examples:
    files, place = labelled_files(images, ".jpeg")
    trained = len(files)
    labels = place.tolist()
    table = folder / "val/val_annotations.txt"
    for number, line in enumerate(read_text(table).splitlines(), 1):
        with reading(f"{table}, line {number}:", "expected a file of val/images, a tab and a wnid"):
            name, wnid = line.split("\t")[:2]
            labels.append(wnids.index(wnid))
            files.append(folder / "val/images" / name)
    return Examples(
        x=decode(files, 3, (64, 64)),
        y=np.array(labels),
        classes=len(wnids),
        held_out=np.arange(len(files)) >= trained,
        # over all training pixels; the usual std .2302 .2265 .2262 is a mean over images
        mean=(0.4802, 0.4481, 0.3975),
        std=(0.2770, 0.2691, 0.2821),
        sources=(
            f"Tiny-ImageNet: {trained} + {len(files) - trained} images; without published "
            "checksums",
        ),
    )

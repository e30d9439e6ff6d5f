"""Clothing1M (Xiao, Xia, Yang, Huang and Wang, 2015), from local files.

The authors provide it only on request.
"""

from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from fedbench.core.files import reading
from fedbench.core.options import Count
from fedbench.core.randomness import DataPurpose, data_generator
from fedbench.data.examples import Examples
from fedbench.data.files.cache import prepared
from fedbench.data.files.fetch import Files
from fedbench.data.files.readers import read_text
from fedbench.data.sources._images import decode

_CLASSES = 14
_LABELS = {str(label): label for label in range(_CLASSES)}


def _files(train: str) -> Files:
    """Return the tables of training images and labels, then of test images and labels."""
    tables = [
        f"{train}_train_key_list.txt",
        f"{train}_label_kv.txt",
        "clean_test_key_list.txt",
        "clean_label_kv.txt",
    ]
    layouts = [[f"{folder}/{table}" for table in tables] for folder in ("clothing1m", "clothing1M")]
    return Files(
        "Clothing1M",
        layouts,
        remedy=(
            "it cannot be downloaded: ask its authors (https://github.com/Cysu/noisy_label) for "
            "these and images/"
        ),
    )


FILES = (_files("noisy"),)  # for the default option


def load(
    data_dir: Path,
    seed: int,
    *,
    train: Literal["noisy", "clean"] = "noisy",
    size: Count = 64,
    images: Count | None = None,
) -> Examples:
    """Read photographs of clothes in 14 classes; the test images with clean labels are held out.

    Every image is scaled to a square, whatever its shape. FedCorr (Xu et al. 2022) uses 224 pixels,
    randomly cropped from 256 for training, and a network pretrained on ImageNet; at 224 pixels, a
    million images take 150 GB. As in FedCorr, images are normalised with the mean and standard
    deviation of ImageNet.

    Args:
        data_dir: Directory of all data sets, with clothing1m/ (or clothing1M/), which contains
            images/, {noisy,clean}_label_kv.txt, noisy_train_key_list.txt, clean_train_key_list.txt
            and clean_test_key_list.txt; the key lists name images as images/...
        seed: Random seed of the choice of ``images``.
        train: "noisy" reads the million images with labels from the surrounding text; "clean" reads
            the 47570 images with verified labels.
        size: Side in pixels to which every image is scaled.
        images: Number of training images, chosen at random. If None, all.

    Raises:
        RequestError: If files are missing or cannot be read, an image has no label, or the images
            do not fit into memory.
    """
    paths = _files(train).find(data_dir, download=False)
    keys, y = _listed(paths[0], paths[1])
    tested, test_y = _listed(paths[2], paths[3])
    if images is not None and images < len(keys):
        rng = data_generator(seed, DataPurpose.IMAGES)
        rows = np.sort(rng.choice(len(keys), images, replace=False))
        keys = [keys[row] for row in rows]
        y = y[rows]
    files = [paths[0].parent / key for key in keys + tested]
    options = {
        "size": size,
        "images": images,
        "seed": None if images is None else seed,
    }

    def squared(image: Image.Image) -> Image.Image:
        return image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)

    def make() -> Examples:
        remedy = "lower data.source.size or data.source.images"
        return Examples(
            x=decode(files, 3, (size, size), change=squared, remedy=remedy),
            y=np.append(y, test_y),
            classes=_CLASSES,
            held_out=np.arange(len(files)) >= len(keys),
            mean=(0.485, 0.456, 0.406),  # statistics of ImageNet
            std=(0.229, 0.224, 0.225),
            sources=(
                f"Clothing1M: local files, {len(keys)} {train} training images, {size} pixels",
            ),
        )

    return prepared(data_dir, "clothing1m", paths + files, options, make)


def _listed(keys: Path, labels: Path) -> tuple[list[str], np.ndarray]:
    """Return the images in a key list, and their labels from a table with lines ``image label``."""
    lines = read_text(labels).splitlines()
    entries = [line.strip().rpartition(" ") for line in lines]
    table = {name: label for name, _, label in entries}
    names = read_text(keys).split()
    fault = f"names an image without a label from 0 to {_CLASSES - 1} in {labels.name}"
    with reading(keys, fault, "take both from one release"):
        y = [_LABELS[table[name]] for name in names]
    return names, np.array(y, dtype=np.int64)

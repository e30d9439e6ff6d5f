"""The user's own images: ``DIR/{train,test}/<class>/*.{png,jpg}``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from fedbench.core.errors import RequestError
from fedbench.core.files import user_path
from fedbench.core.options import Count, Number, Positive
from fedbench.data.examples import Examples, per_channel
from fedbench.data.sources._images import decode, labelled_files


def load(
    root: str,
    *,
    size: Count | None = None,
    mean: Sequence[Number] | None = (0.5, 0.5, 0.5),
    std: Sequence[Positive] | None = (0.5, 0.5, 0.5),
) -> Examples:
    """Read images as RGB; labels are the class directories of ``train`` in alphabetical order.

    Args:
        root: Directory that contains train/ and, for held-out test images, test/.
        size: Side in pixels: images are resized to it by their shorter side and cropped at the centre; None requires
            images of equal size.
        mean: Mean per channel, in units of the full range; None means 0.
        std: Standard deviation per channel, likewise; None means 1.

    Raises:
        RequestError: If a directory is missing or empty, classes or sizes do not fit, or an image cannot be read.
    """
    base = user_path("data.root", root)
    if not (base / "train").is_dir():
        raise RequestError(f"data.root={root} has no directory train/; expected train/<class>/*.png or *.jpg")
    x, y, labels = _read(base / "train", size)
    trained = len(y)
    if (base / "test").is_dir():
        test_x, test_y, tested = _read(base / "test", size)
        unknown = {*tested} - {*labels}
        if unknown:
            raise RequestError(f"{base / 'test'} has classes that are missing in train/: {', '.join(sorted(unknown))}")
        if test_x.shape[1:] != x.shape[1:]:
            shapes = sorted([x.shape[1:], test_x.shape[1:]])
            raise RequestError(f"train/ and test/ images differ in shape: {shapes}; set data.size")
        x = np.concatenate([x, test_x])
        y = np.concatenate([y, np.searchsorted(labels, tested)[test_y]])
    return Examples(
        x=x,
        y=y,
        classes=len(labels),
        held_out=np.arange(len(y)) >= trained,
        mean=per_channel("mean", mean, 3, 0.0),
        std=per_channel("std", std, 3, 1.0),
        sources=(f"images: {base}",),
    )


def _read(folder: Path, size: int | None) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return images uint8 [T, 3, height, width], labels [T] and the class directories of ``folder``."""
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if not classes:
        raise RequestError(f"{folder} has no directory per class")
    files, y = labelled_files([folder / name for name in classes], ".png", ".jpg", ".jpeg")
    if size is None:
        x = decode(files, 3, None, remedy="set data.size")
    else:
        x = decode(files, 3, (size, size), change=partial(_to_square, size))
    return x, y, classes


def _to_square(side: int, image: Image.Image) -> Image.Image:
    """Return an image resized by its shorter side and cropped at the centre."""
    width, height = (side * length // min(image.size) for length in image.size)
    left = round((width - side) / 2)
    top = round((height - side) / 2)
    resized = image.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    return resized.crop((left, top, left + side, top + side))

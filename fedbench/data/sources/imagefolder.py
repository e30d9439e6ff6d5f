"""The user's own images: ``DIR/{train,test}/<class>/*.{png,jpg}``."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from fedbench.core.errors import RequestError
from fedbench.core.files import user_path
from fedbench.core.options import Count, Number, Positive
from fedbench.data.examples import Examples
from fedbench.data.sources._images import decode, labelled_files


def load(
    root: str,
    *,
    size: Count | None = None,
    mean: Sequence[Number] | None = (0.5, 0.5, 0.5),
    std: Sequence[Positive] | None = (0.5, 0.5, 0.5),
) -> Examples:
    """Read images as RGB; labels number the class directories in ``train`` alphabetically.

    Args:
        root: Directory that contains train/ and, for held-out test images, test/.
        size: Side in pixels. The shorter side of each image is resized to it, and the image is
            cropped at the centre. If None, all images must have the same size.
        mean: Mean per channel, in units of the full range. If None, 0.
        std: Standard deviation per channel, in the same units. If None, 1.

    Raises:
        RequestError: If a directory is missing or empty, classes or sizes do not match, or an image
            cannot be read.
    """
    base = user_path("data.root", root)
    trained = _folders(base / "train")
    tested = _folders(base / "test")
    if not trained:
        raise RequestError(
            f"data.root={root} has no directory train/ with directories of classes; expected "
            "train/<class>/*.png or *.jpg"
        )
    classes = [folder.name for folder in trained]
    unknown = [folder.name for folder in tested if folder.name not in classes]
    if unknown:
        raise RequestError(
            f"{base / 'test'} has classes that are missing in train/: {', '.join(unknown)}"
        )

    folders = trained + tested
    files, place = labelled_files(folders, ".png", ".jpg", ".jpeg")
    labels = np.array([classes.index(folder.name) for folder in folders])
    if size is None:
        x = decode(files, 3, None, remedy="set data.size")
    else:
        x = decode(files, 3, (size, size), change=partial(_to_square, size))
    return Examples(
        x=x,
        y=labels[place],
        classes=len(classes),
        held_out=place >= len(trained),
        mean=mean,
        std=std,
        sources=(f"images: {base}",),
    )


def _folders(part: Path) -> list[Path]:
    """Return the class directories in a part of the data set, in alphabetical order."""
    return sorted(path for path in part.glob("*") if path.is_dir())


def _to_square(side: int, image: Image.Image) -> Image.Image:
    """Return an image with its shorter side resized, cropped at the centre to a square."""
    shorter = min(image.size)
    width, height = (side * length // shorter for length in image.size)
    left = round((width - side) / 2)
    top = round((height - side) / 2)
    resized = image.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    return resized.crop((left, top, left + side, top + side))

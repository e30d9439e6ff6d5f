"""The user's own images: ``DIR/{train,test}/<class>/*.{png,jpg}``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from fedbench.core.errors import RequestError
from fedbench.core.files import user_path
from fedbench.core.options import Count
from fedbench.data.examples import Examples, per_channel
from fedbench.data.sources._images import decode, files_in

_ENDINGS = (".png", ".jpg", ".jpeg")


def load(
    root: str,
    *,
    size: Count | None = None,
    mean: Sequence[float] | None = (0.5, 0.5, 0.5),
    std: Sequence[float] | None = (0.5, 0.5, 0.5),
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
    parts = [(x, y)]
    if (base / "test").is_dir():
        x, y, tested = _read(base / "test", size)
        unknown = sorted(set(tested) - set(labels))
        if unknown:
            raise RequestError(f"{base / 'test'} has classes that are missing in train/: {', '.join(unknown)}")
        parts.append((x, np.array([labels.index(c) for c in tested])[y]))
    shapes = {x.shape[1:] for x, _ in parts}
    if len(shapes) > 1:
        raise RequestError(f"train/ and test/ images differ in shape: {sorted(shapes)}; set data.size")
    return Examples(
        x=np.concatenate([x for x, _ in parts]),
        y=np.concatenate([y for _, y in parts]),
        classes=len(labels),
        held_out=np.repeat([False, True], [len(parts[0][1]), sum(len(y) for _, y in parts[1:])]),
        mean=per_channel("mean", mean, 3, 0.0),
        std=per_channel("std", std, 3, 1.0),
        sources=(f"images: {base}",),
    )


def _read(folder: Path, size: int | None) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Images uint8 [T, 3, height, width], labels [T] and the class directories of ``folder``."""
    classes = sorted(p.name for p in folder.iterdir() if p.is_dir())
    found = [files_in(folder / c, *_ENDINGS) for c in classes]
    empty = [c for c, files in zip(classes, found, strict=True) if not files]
    if empty or not classes:
        lacking = f"no image ({', '.join(_ENDINGS)}) in {', '.join(empty[:3])}" if empty else "no directory per class"
        raise RequestError(f"{folder} has {lacking}")
    files = [f for some in found for f in some]
    square = None if size is None else (size, size)
    change = None if size is None else partial(_to_square, size)
    x = decode(files, 3, square, change=change, remedy="set data.size")
    return x, np.repeat(np.arange(len(classes)), [len(some) for some in found]), classes


def _to_square(side: int, image: Image.Image) -> Image.Image:
    scaled = [side * length // min(image.size) for length in image.size]
    left, top = (round((length - side) / 2) for length in scaled)
    resized = image.convert("RGB").resize((scaled[0], scaled[1]), Image.Resampling.BILINEAR)
    return resized.crop((left, top, left + side, top + side))

"""A user's own images: ``DIR/{train,test}/<class>/*.{png,jpg}``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedbench.data.examples import Examples
from fedbench.data.vision import torchvision
from fedbench.errors import RequestError, whole

_ENDINGS = (".png", ".jpg", ".jpeg")


def load(
    data_dir: Path,
    seed: int,
    *,
    root: str,
    size: int | None = None,
    mean: Sequence[float] = (0.5, 0.5, 0.5),
    std: Sequence[float] = (0.5, 0.5, 0.5),
) -> Examples:
    """Read images as RGB; labels are the class directories of ``train`` in alphabetical order.

    Args:
        data_dir: not used; ``root`` is a path of its own.
        seed: not used.
        root: holds train/ and, if the test examples are set apart, test/.
        size: side that every image is resized to (shorter side, then the middle is cut out); None: all have one size.
        mean: per channel, in units of the full range.
        std: per channel, likewise.

    Raises:
        RequestError: if a directory is missing or empty, classes or sizes do not fit, or an image cannot be read.
    """
    base = Path(root).expanduser()
    if not (base / "train").is_dir():
        raise RequestError(f"data.root={root} has no directory train/; expected train/<class>/*.png or *.jpg")
    x, y, labels = _read(base / "train", size)
    parts = [(x, y)]
    if (base / "test").is_dir():
        x, y, tested = _read(base / "test", size)
        unknown = sorted(set(tested) - set(labels))
        if unknown:
            raise RequestError(f"{base / 'test'} has classes that train/ has not: {', '.join(unknown)}")
        parts.append((x, np.array([labels.index(c) for c in tested])[y]))
    shapes = {x.shape[1:] for x, _ in parts}
    if len(shapes) > 1:
        raise RequestError(f"train/ and test/ images differ in shape: {sorted(shapes)}; set data.size")
    return Examples(
        x=np.concatenate([x for x, _ in parts]),
        y=np.concatenate([y for _, y in parts]),
        classes=len(labels),
        held_out=np.repeat([False, True], [len(parts[0][1]), sum(len(y) for _, y in parts[1:])]),
        mean=tuple(mean),
        std=tuple(std),
        sources=(f"images: {base}",),
    )


def _read(folder: Path, size: int | None) -> tuple[np.ndarray, np.ndarray, list[str]]:
    vision = torchvision()
    steps = []
    if size is not None:
        side = whole("data.size", size, at_least=1)
        steps = [vision.transforms.Resize(side), vision.transforms.CenterCrop(side)]
    try:
        files = vision.datasets.ImageFolder(str(folder), vision.transforms.Compose(steps), is_valid_file=_is_image)
        images = [np.asarray(image) for image, _ in files]
    except (FileNotFoundError, OSError) as error:
        raise RequestError(f"{folder}: {error}") from error
    shapes = {i.shape for i in images}
    if len(shapes) > 1:
        raise RequestError(f"{folder} has images of {len(shapes)} sizes, e.g. {sorted(shapes)[:2]}; set data.size")
    return np.stack(images).transpose(0, 3, 1, 2), np.array(files.targets), list(files.classes)


def _is_image(path: str) -> bool:
    return path.lower().endswith(_ENDINGS)

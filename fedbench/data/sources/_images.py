"""Decoding of images in several threads."""

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedbench.core.errors import RequestError
from fedbench.core.files import reading
from fedbench.data.files.readers import open_image, refuse_too_large

_FAULT = "cannot be read as an image"
_CHUNK = 256  # images that a thread decodes at a time


def labelled_files(
    folders: Sequence[Path],
    *endings: str,
) -> tuple[list[Path], np.ndarray]:
    """Return the images in several directories, and the index of each image's directory.

    The images in a directory are in alphabetical order.

    Args:
        folders: The directories, which are searched recursively.
        endings: File extensions in lower case; the match ignores case.

    Raises:
        RequestError: If a directory contains no image.
    """
    files: list[Path] = []
    counts = []
    for folder in folders:
        files_below = folder.rglob("*")
        images = sorted(path for path in files_below if path.suffix.lower() in endings)
        if not images:
            raise RequestError(f"{folder} contains no {' or '.join(endings)} image")
        files += images
        counts.append(len(images))
    return files, np.repeat(np.arange(len(folders)), counts)


def decode(
    names: Sequence[Any],
    channels: int | None,
    size: tuple[int, int] | None,
    *,
    opened: Callable[[Any], Image.Image] = open_image,
    change: Callable[[Image.Image], Image.Image] = lambda image: image,
    remedy: str = "use images of one size",
) -> np.ndarray:
    """Decode images to uint8 [T, channels, height, width].

    Args:
        names: Files or names of the images.
        channels: 1 for greyscale, 3 for RGB. If None, the mode of the first image decides.
        size: Width and height of every image. If None, the size of the first image.
        opened: Function that opens an image by name; several threads call it concurrently.
        change: Function applied to each image before its size is checked.
        remedy: Advice for the user if an image has another size or there are too many images.

    Raises:
        RequestError: If an image cannot be read or has another size (the message names the image),
            or the images do not fit into memory.
    """
    if channels is None or size is None:
        with reading(names[0], _FAULT), opened(names[0]) as first:
            grey = first.mode in ("1", "L")
            channels = channels or (1 if grey else 3)
            size = size or first.size
    width, height = size
    mode = "L" if channels == 1 else "RGB"
    shape = (len(names), channels, height, width)
    refuse_too_large(f"{len(names)} images", prod(shape), remedy)
    pixels = np.empty(shape, dtype=np.uint8)

    def fill(start: int) -> None:
        for t, name in enumerate(names[start : start + _CHUNK], start):
            with reading(name, _FAULT), opened(name) as image:
                changed = change(image)
                if changed.size != size:
                    raise RequestError(
                        f"{name} is {changed.width}x{changed.height}, "
                        f"expected {width}x{height}; {remedy}"
                    )
                rows = np.asarray(changed.convert(mode))
                pixels[t] = rows.reshape(height, width, channels).transpose(2, 0, 1)

    starts = range(0, len(names), _CHUNK)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        deque(pool.map(fill, starts), maxlen=0)  # raises the first error
    return pixels

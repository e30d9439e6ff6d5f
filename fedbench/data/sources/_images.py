"""Decode images in several threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from fedbench.core.errors import RequestError
from fedbench.core.files import reading
from fedbench.data.files.readers import open_image, refuse_too_large

_FAULT = "cannot be read as an image"
_CHUNK = 256  # images that a thread decodes at a time


def files_in(folder: Path, *endings: str) -> list[Path]:
    """The files of a directory, and of those in it, with one of these endings in either case, in alphabetical order."""
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in endings)


def decode(
    names: Sequence[object],
    channels: int | None,
    size: tuple[int, int] | None,
    *,
    opened: Callable[[int], Image.Image] | None = None,
    change: Callable[[Image.Image], Image.Image] | None = None,
    remedy: str = "use images of one size",
) -> np.ndarray:
    """Decode images to uint8 [T, channels, height, width].

    Args:
        names: The files, or names of the images for messages.
        channels: 1 grey, 3 RGB; None is grey if the first image is, else RGB.
        size: Width and height of every image; None is those of the first.
        opened: Function from the position of an image to the image, called by several threads at once; None opens the
            files.
        change: Function applied to an image before its size is checked.
        remedy: Advice for an image of another size, or for too many images.

    Raises:
        RequestError: If an image cannot be read or has another size (the message names it), or the images do not fit
            into memory.
    """

    def image(t: int) -> Image.Image:
        return open_image(Path(str(names[t]))) if opened is None else opened(t)

    if channels is None or size is None:
        with reading(names[0], _FAULT), image(0) as first:
            channels, size = channels or (1 if first.mode in ("1", "L") else 3), size or first.size
    width, height = size
    refuse_too_large(f"{len(names)} images", len(names) * channels * height * width, remedy)
    mode = "L" if channels == 1 else "RGB"
    pixels = np.empty((len(names), channels, height, width), dtype=np.uint8)

    def fill(start: int) -> None:
        for t in range(start, min(start + _CHUNK, len(names))):
            with reading(names[t], _FAULT), image(t) as read:
                ready = read if change is None else change(read)
                if ready.size != size:
                    given = "x".join(map(str, ready.size))
                    raise RequestError(f"{names[t]} is {given}, expected {width}x{height}; {remedy}")
                pixels[t] = np.asarray(ready.convert(mode)).reshape(height, width, channels).transpose(2, 0, 1)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(fill, range(0, len(names), _CHUNK)):
            pass
    return pixels

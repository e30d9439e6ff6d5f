"""Decode images in several threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from fedbench.core.errors import RequestError
from fedbench.data.files.readers import refuse_too_large

_CHUNK = 256  # images that a thread decodes at a time


def files_in(folder: Path, *endings: str) -> list[Path]:
    """The files of a directory, and of those in it, with one of these endings in either case, in alphabetical order."""
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in endings)


def decode(
    names: Sequence[object],
    opened: Callable[[int], Image.Image],
    shape: tuple[int, int, int],
    *,
    change: Callable[[Image.Image], Image.Image] | None = None,
    remedy: str = "use images of one size",
) -> np.ndarray:
    """Decode images to uint8 [T, channels, height, width].

    Args:
        names: Names of the images, for messages.
        opened: Function from the position of an image to the image; called by several threads at once.
        shape: Channels (1 grey, 3 RGB), height and width of every image.
        change: Function applied to an image before its size is checked.
        remedy: Advice for an image of another size, or for too many images.

    Raises:
        RequestError: If an image cannot be read or has another size (the message names it), or the images do not fit
            into memory.
    """
    channels, height, width = shape
    refuse_too_large(f"{len(names)} images", len(names) * channels * height * width, remedy)
    mode = "L" if channels == 1 else "RGB"
    pixels = np.empty((len(names), *shape), dtype=np.uint8)

    def fill(start: int) -> None:
        for t in range(start, min(start + _CHUNK, len(names))):
            try:
                with opened(t) as image:
                    ready = image if change is None else change(image)
                    size = ready.size
                    if size == (width, height):  # else it is not decoded
                        pixels[t] = np.asarray(ready.convert(mode)).reshape(height, width, channels).transpose(2, 0, 1)
            except Exception as error:  # the decoder of a corrupt file may fail in any way
                raise unreadable(names[t], error) from error
            if size != (width, height):
                raise RequestError(f"{names[t]} is {size[0]}x{size[1]}, expected {width}x{height}; {remedy}")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(fill, range(0, len(names), _CHUNK)):
            pass
    return pixels


def unreadable(name: object, error: Exception) -> RequestError:
    """The error for an image that cannot be read."""
    return RequestError(f"{name} cannot be read as an image: {error or type(error).__name__}")

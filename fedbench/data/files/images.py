"""Images of the user: the formats that are read, and how many pixels a file of a given size may declare."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from PIL import Image

from fedbench.core.errors import RequestError
from fedbench.data.files.limits import length_of

# Pillow knows dozens of formats, one of which (EPS) starts another program; data sets of images come in these
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
MOST_PIXELS = 100_000_000
_ALWAYS = 2**20  # pixels that a file of any size may declare
_PER_BYTE = 200  # pixels that a byte of a larger image may stand for; photographs have less than 50


def open_image(source: str | Path | IO[bytes]) -> Image.Image:
    """Return an image of which only the header has been read.

    Args:
        source: The file, or its path.

    Raises:
        RequestError: If it declares more pixels than its bytes can plausibly hold; the message has no name of the file.
        Exception: Whatever Pillow raises for a file that is not an image of these formats.
    """
    image = Image.open(source, formats=FORMATS)
    pixels = image.size[0] * image.size[1]
    held = 0 if image.fp is None else length_of(image.fp)
    if pixels > MOST_PIXELS or pixels > max(_ALWAYS, _PER_BYTE * held):
        image.close()
        raise RequestError(
            f"it declares {image.size[0]}x{image.size[1]} pixels in {held} bytes; at most {_PER_BYTE} pixels per byte "
            f"and {MOST_PIXELS} in all are read; scale it down"
        )
    return image

"""Images of the user: the formats that are read, and how many pixels a file of a given size may declare."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from PIL import Image

from fedbench.core.errors import RequestError

# Pillow knows dozens of formats, one of which (EPS) starts another program; data sets of images come in these
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
MOST_PIXELS = 100_000_000
_MOST_BYTES = 2**28  # of a file
_ALWAYS = 2**20  # pixels that a file of any size may declare
_PER_BYTE = 200  # pixels that a byte of a larger image may stand for; photographs have less than 50


def open_image(source: str | Path | BytesIO) -> Image.Image:
    """Return an image of which only the header has been read.

    Args:
        source: The file, or its path.

    Raises:
        RequestError: If it declares more pixels than its bytes can plausibly hold; the message has no name of the file.
        Exception: Whatever Pillow raises for a file that is not an image of these formats.
    """
    # from memory, where reading more than there is allocates no more; a file would allocate what a header declares
    content = source if isinstance(source, BytesIO) else BytesIO(_bytes_of(Path(source)))
    image = Image.open(content, formats=FORMATS)
    pixels, held = image.size[0] * image.size[1], len(content.getbuffer())
    if not pixels or pixels > MOST_PIXELS or pixels > max(_ALWAYS, _PER_BYTE * held):
        image.close()
        raise RequestError(
            f"it declares {image.size[0]}x{image.size[1]} pixels in {held} bytes; at most {_PER_BYTE} pixels per byte "
            f"and {MOST_PIXELS} in all are read; scale it down"
        )
    return image


def _bytes_of(path: Path) -> bytes:
    if (size := path.stat().st_size) > _MOST_BYTES:
        raise RequestError(f"it has {size} bytes; at most {_MOST_BYTES} are read")
    return path.read_bytes()

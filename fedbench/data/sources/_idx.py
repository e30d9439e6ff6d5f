"""The idx format of MNIST and its relatives: a magic number, lengths and bytes, often gzipped."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from fedbench.core.errors import RequestError
from fedbench.data.files.limits import DEFLATE_RATIO, filled, length_of, refuse_too_large, size_of

_DIMENSIONS = 3  # of images; labels have one
_BYTES = 0x08  # the type code of unsigned bytes, the only type of images and labels


def read(path: Path) -> np.ndarray:
    """Return the array in an idx file, decompressed if its name ends in .gz.

    Raises:
        RequestError: If the file is not a complete idx file of unsigned bytes.
    """
    with path.open("rb") as file:
        return parse(file, str(path), length_of(file))


def parse(file: IO[bytes], name: str, size: int) -> np.ndarray:
    """Return the array in an open idx file, uint8, of the shape given in the file.

    Args:
        file: The open file, at its beginning.
        name: Name of the file, for messages; it is decompressed if this ends in .gz.
        size: Its size in bytes.

    Raises:
        RequestError: If the file is not a complete idx file of unsigned bytes.
    """
    packed = name.endswith(".gz")
    try:
        most = size * (DEFLATE_RATIO if packed else 1)
        stream = gzip.GzipFile(fileobj=file) if packed else file
        magic: bytes = stream.read(4)
        if len(magic) < 4 or magic[:3] != bytes([0, 0, _BYTES]) or not 1 <= magic[3] <= _DIMENSIONS:
            raise RequestError(
                f"{name} is not an idx file of bytes with 1 to {_DIMENSIONS} dimensions: it begins with "
                f"{magic.hex() or 'nothing'}"
            )
        lengths = struct.unpack(f">{magic[3]}I", stream.read(4 * magic[3]))
        count = size_of(lengths, 1)
        if count > most:
            raise RequestError(f"{name} declares {list(lengths)}, {count} bytes, but contains {most} at most")
        refuse_too_large(f"the bytes of {name}", count)
        body, more = filled(stream, count), stream.read(1)
    except (EOFError, OSError, struct.error, zlib.error) as error:
        raise RequestError(f"{name} is not a complete idx file: {error}; download it again") from error
    if len(body) != count or more:
        held = f"{len(body)}" if len(body) < count else "more"
        raise RequestError(f"{name} declares {list(lengths)}, {count} bytes, but contains {held}; download it again")
    return body.reshape(lengths)


def images_of(images: np.ndarray, labels: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images as [T, 1, height, width] and their labels as int64 [T].

    Raises:
        RequestError: If the two do not match.
    """
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise RequestError(
            f"{name}: expected images [T, height, width] and labels [T], got {list(images.shape)} and "
            f"{list(labels.shape)}; download both files again"
        )
    return images[:, None], labels.astype(np.int64)

"""The idx format of MNIST and its relatives: a magic number, lengths and bytes, often gzipped."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from fedbench.core.errors import RequestError

_BYTES = 0x08  # the type code of unsigned bytes, the only type of images and labels


def read(path: Path) -> np.ndarray:
    """Return the array in an idx file, decompressed if its name ends in .gz.

    Raises:
        RequestError: If the file is not a complete idx file of unsigned bytes.
    """
    with path.open("rb") as file:
        return parse(file, str(path))


def parse(file: IO[bytes], name: str) -> np.ndarray:
    """Return the array in an open idx file, uint8, of the shape given in the file.

    Args:
        file: The open file, at its beginning.
        name: Name of the file, for messages; it is decompressed if this ends in .gz.

    Raises:
        RequestError: If the file is not a complete idx file of unsigned bytes.
    """
    try:
        stream = gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file
        magic: bytes = stream.read(4)
        if len(magic) < 4 or magic[:3] != bytes([0, 0, _BYTES]):
            raise RequestError(f"{name} is not an idx file of bytes: it begins with {magic.hex() or 'nothing'}")
        lengths = struct.unpack(f">{magic[3]}I", stream.read(4 * magic[3]))
        count = int(np.prod(lengths, dtype=object))  # as Python integers, which no header can make overflow
        body = stream.read(count + 1)  # one more byte shows that a file is too long
    except (EOFError, OSError, OverflowError, MemoryError, struct.error, zlib.error) as error:
        raise RequestError(f"{name} is not a complete idx file: {error}; download it again") from error
    if len(body) != count:
        held = f"{len(body)}" if len(body) < count else "more"
        raise RequestError(f"{name} declares {list(lengths)}, {count} bytes, but contains {held}; download it again")
    return np.frombuffer(body, dtype=np.uint8).reshape(lengths)


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

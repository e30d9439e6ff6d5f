"""The idx format of MNIST and its relatives: a magic number, lengths, and the bytes; often inside gzip."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from fedbench.core.errors import RequestError

_BYTES = 0x08  # the code of unsigned bytes; images and labels are stored as nothing else


def read(path: Path) -> np.ndarray:
    """Return the array of an idx file, unpacked on the way if its name ends in .gz.

    Raises:
        RequestError: If the file is not a whole idx file of unsigned bytes.
    """
    with path.open("rb") as file:
        return parse(file, str(path))


def parse(file: IO[bytes], name: str) -> np.ndarray:
    """Return the uint8 array that an open idx file holds; its shape is the file's.

    Args:
        file: At its beginning.
        name: For messages; gzip is taken off if it ends in .gz.

    Raises:
        RequestError: If the file is not a whole idx file of unsigned bytes.
    """
    try:
        stream = gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file
        magic: bytes = stream.read(4)
        if len(magic) < 4 or magic[:3] != bytes([0, 0, _BYTES]):
            raise RequestError(f"{name} is not an idx file of bytes: it begins with {magic.hex() or 'nothing'}")
        lengths = struct.unpack(f">{magic[3]}I", stream.read(4 * magic[3]))
        count = int(np.prod(lengths, dtype=object))  # of Python's integers: no header can make it overflow
        body = stream.read(count + 1)  # one more shows what is too long; what is too short is not waited for
    except (EOFError, OSError, OverflowError, MemoryError, struct.error, zlib.error) as error:
        raise RequestError(f"{name} is not a whole idx file: {error}; fetch it again") from error
    if len(body) != count:
        held = f"{len(body)}" if len(body) < count else "more"
        raise RequestError(f"{name} says {list(lengths)}, {count} bytes, but holds {held}; fetch it again")
    return np.frombuffer(body, dtype=np.uint8).reshape(lengths)


def images_of(images: np.ndarray, labels: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images as [T, 1, height, width] and their labels as int64 [T].

    Raises:
        RequestError: If the two do not belong together.
    """
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise RequestError(
            f"{name}: expected images [T, height, width] and labels [T], got {list(images.shape)} and "
            f"{list(labels.shape)}; fetch both files again"
        )
    return images[:, None], labels.astype(np.int64)

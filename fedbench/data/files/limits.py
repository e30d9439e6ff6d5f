"""Limits on what a file declares: a size is compared with them before anything of that size is allocated or read."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import IO, Protocol

import numpy as np
import psutil

from fedbench.core.errors import RequestError

MOST_DIMENSIONS = 8  # of an array of examples
_SHARE = 0.8  # largest fraction of the free memory that a file may need
DEFLATE_RATIO = 1032  # bytes that one byte compressed by deflate (zip, gzip, PNG) can stand for, at most
_CHUNK = 1 << 20  # bytes that are read at once


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def refuse_too_large(place: str, need: int, remedy: str = "") -> None:
    """Refuse what does not fit into the free memory.

    Args:
        place: What needs the memory, for the message.
        need: Bytes that it needs.
        remedy: What to do instead.

    Raises:
        RequestError: With both sizes.
    """
    free = psutil.virtual_memory().available
    if need > _SHARE * free:
        tail = f"; {remedy}" if remedy else ""
        raise RequestError(f"{place} need {need / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free{tail}")


def size_of(shape: Sequence[int], item: int) -> int:
    """Return the bytes of an array, as a Python integer, which no declared shape makes overflow."""
    return prod(map(int, shape)) * item


def filled(stream: _Readable | IO[bytes], size: int) -> np.ndarray:
    """Return the next ``size`` bytes of a stream as uint8 [n], n < size if the stream ends before.

    Memory is committed as bytes arrive, whatever the size that a header declares.
    """
    content = np.empty(size, dtype=np.uint8)
    at = 0
    while at < size and (piece := stream.read(min(_CHUNK, size - at))):
        content[at : at + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
        at += len(piece)
    return content[:at]


def length_of(file: IO[bytes]) -> int:
    """Return the size in bytes of an open file, whose position stays."""
    at = file.tell()
    size = file.seek(0, 2)
    file.seek(at)
    return size

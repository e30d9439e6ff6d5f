"""Checksums of files: what was written is what is read, or the difference is found before it becomes a result."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedbench.core.trees import from_json

_PIECE = 2**20  # bytes that are read at once

Seals = dict[str, list[Any]]  # file, relative to a directory -> [bytes, SHA-256]


def seal(path: Path, length: int | None = None) -> list[Any]:
    """Return the size and the SHA-256 of a file, or of its first ``length`` bytes.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is shorter than ``length``.
    """
    found, left = hashlib.sha256(), path.stat().st_size if length is None else length
    size = left
    with path.open("rb") as file:
        while left:
            piece = file.read(min(left, _PIECE))
            if not piece:
                raise ValueError(f"{path.name} has {size - left} bytes, not {size}")
            found.update(piece)
            left -= len(piece)
    return [size, found.hexdigest()]


class GrowingFile:
    """The seal of a file that grows, of which each byte is read once.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._length, self._found = path, 0, hashlib.sha256()

    def seal(self) -> list[Any]:
        """Return the size and the SHA-256 of the file as it is now; a file that does not exist is empty."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._length)
                while piece := file.read(_PIECE):
                    self._found.update(piece)
                    self._length += len(piece)
        return [self._length, self._found.hexdigest()]


def check(folder: Path, sealed: Mapping[str, Any], names: Iterable[str] | None = None) -> None:
    """Compare files of a directory with their seals.

    Args:
        folder: The directory.
        sealed: The seals.
        names: The files to compare; None for all that have a seal.

    Raises:
        OSError: If one of them cannot be read.
        ValueError: If one of them has changed.
    """
    for name in sealed if names is None else names:
        size, digest = sealed[name]
        path = folder / name
        if (found := path.stat().st_size) != size:
            raise ValueError(f"{name} has {found} bytes, not {size}")
        if seal(path)[1] != digest:
            raise ValueError(f"{name} has changed since it was written: its checksum differs")


def to_text(content: Mapping[str, Any]) -> str:
    """Return a JSON document together with its own checksum."""
    text = json.dumps(content, allow_nan=False)
    return json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "content": text}) + "\n"


def from_text(text: str) -> dict[str, Any]:
    """Return the document that ``to_text`` has written.

    Raises:
        ValueError: If it has changed.
    """
    try:
        outer = from_json(text)
        inner = outer["content"]
        if hashlib.sha256(inner.encode()).hexdigest() != outer["sha256"]:
            raise ValueError("its checksum differs")
        content: dict[str, Any] = from_json(inner)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("it is not a document with a checksum") from error
    return content


def to_disk(path: Path) -> None:
    """Wait until what was written to a file, or the names in a directory, are on the disk and survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

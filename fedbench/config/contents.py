"""Digests of user files by content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from fedbench.core.errors import RequestError


def content_digest(path: Path, apart: Path | None = None) -> str:
    """SHA-256 of a file's content, or of the relative names and contents of all files in a directory.

    Args:
        path: A file or a directory.
        apart: A directory below ``path`` that does not count, such as that of the results.

    Raises:
        RequestError: If the path cannot be read.
    """
    try:
        if path.is_file():
            return file_digest(path)
        digest = hashlib.sha256()
        for name, file in _files(path, "", frozenset() if apart is None else frozenset({apart.resolve()})):
            digest.update(f"{name}:{file_digest(file)}\n".encode())
        return digest.hexdigest()
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error}") from error


def file_digest(file: Path) -> str:
    """SHA-256 of a file's content."""
    facts = file.stat()
    return _sha256(file.absolute(), facts.st_size, facts.st_mtime_ns, facts.st_ino)


@lru_cache(maxsize=100_000)  # the settings of a sweep share their files, which may be thousands of images
def _sha256(file: Path, size: int, changed: int, node: int) -> str:
    with file.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _files(here: Path, name: str, above: frozenset[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the files at and below a path with their relative names, in the order of the names."""
    if here.is_file():
        yield name, here
    elif here.is_dir() and (real := here.resolve()) not in above:  # a link to a directory around it never ends
        for entry in sorted(here.iterdir(), key=lambda p: p.name):
            yield from _files(entry, f"{name}/{entry.name}".lstrip("/"), above | {real})

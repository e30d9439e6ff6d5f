"""Digests of user files by content, cached so that a large file is read once and not at every command."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from fedbench.core.errors import RequestError

_RACY = 2.0  # seconds: a file changed since may change again without a new time of modification, and is not cached
_KEPT = 1000  # entries of the cache; the oldest go first


def content_digest(path: Path, apart: Path | None = None) -> str:
    """Return the SHA-256 of a file's content, or of the relative names and contents of all files in a directory.

    Args:
        path: A file or a directory.
        apart: A directory below ``path`` that does not count, such as that of the results.

    Raises:
        RequestError: If the path cannot be read.
    """
    try:
        now = time.time()
        files = dict(_files(path, apart))
        stats = {name: file.stat() for name, file in files.items()}
        entries = [f"{name}:{s.st_size}:{s.st_mtime_ns}:{s.st_ino}\n" for name, s in stats.items()]
        signature = hashlib.sha256("".join(entries).encode()).hexdigest()
        key = str(path.absolute())
        if (known := _read_cache().get(key)) and known[0] == signature:
            return known[1]
        digest = _hashed(path, files)
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error}") from error
    if all(s.st_mtime < now - _RACY for s in stats.values()):
        _remember(key, [signature, digest])
    return digest


def last_change(path: Path) -> float:
    """Return the latest time of modification of a file, or of the files in a directory, in seconds since the epoch."""
    return max((file.stat().st_mtime for _, file in _files(path, None)), default=0.0)


def cache_file() -> Path:
    """Return the file of the cached digests, in the user's cache directory."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "fedbench" / "digests.json"


def _hashed(path: Path, files: dict[str, Path]) -> str:
    if path.is_file():
        return file_digest(path)
    digest = hashlib.sha256()
    for name, file in files.items():
        digest.update(f"{name}:{file_digest(file)}\n".encode())
    return digest.hexdigest()


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file, which is read now."""
    with file.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _files(path: Path, apart: Path | None) -> Iterator[tuple[str, Path]]:
    """Yield the files at and below ``path`` with their relative names, in the order of the names."""

    def below(here: Path, name: str, above: frozenset[Path]) -> Iterator[tuple[str, Path]]:
        if here.is_file():
            yield name, here
        elif here.is_dir() and (real := here.resolve()) not in above:  # a link to a directory around it never ends
            for entry in sorted(here.iterdir(), key=lambda p: p.name):
                yield from below(entry, f"{name}/{entry.name}".lstrip("/"), above | {real})

    return below(path, "", frozenset() if apart is None else frozenset({apart.resolve()}))


def _read_cache() -> dict[str, list[str]]:
    """Return the cached digests: path -> [signature, digest]; none if the file is missing or corrupt."""
    try:
        content = json.loads(cache_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):  # it is rebuilt as digests are needed
        return {}
    pairs = content.items() if isinstance(content, dict) else ()
    return {k: v for k, v in pairs if isinstance(v, list) and len(v) == 2 and all(isinstance(x, str) for x in v)}


def _remember(key: str, entry: list[str]) -> None:
    """Add an entry; of two processes or threads that write at once one entry may be lost, and is computed again."""
    cache = cache_file()
    entries = {k: v for k, v in _read_cache().items() if k != key} | {key: entry}
    part = cache.with_name(f"{cache.name}.{os.getpid()}.{threading.get_ident()}.part")
    with contextlib.suppress(OSError):  # without a writable cache directory digests cost time, and stay right
        cache.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(dict(list(entries.items())[-_KEPT:])), encoding="utf-8")
        part.replace(cache)

"""Files that are written as a whole or not at all.

Each is written under a temporary name and renamed: a reader never finds half of a file, and a process that is killed
never leaves one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` in one step."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` in one step."""
    with replacing(path) as part:
        part.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path, which replaces ``path`` at the end of this block, and is removed if that fails."""
    part = path.with_name(path.name + ".part")
    try:
        yield part
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)  # on a full disk, half of a large file would stay in the way
        raise

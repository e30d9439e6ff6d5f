"""Temporary directories beside what they become, with a lock: the next writer removes those of writers that are dead.

A process that is killed removes nothing. The system releases its lock, so a directory whose lock is free has lost
its writer, on whatever machine that shares the file system.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK = "writer.lock"
_RANDOM = r"[a-z0-9_]{8}"  # what tempfile appends to a prefix


@contextmanager
def room(prefix: str, folder: Path) -> Iterator[Path]:
    """Give a new directory in ``folder`` that this process holds until the end of this block, where it is removed.

    Args:
        prefix: The beginning of its name.
        folder: The directory around it.

    Raises:
        OSError: If it cannot be created.
    """
    from filelock import FileLock  # late: most commands replace no directory

    made = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
    lock = FileLock(made / LOCK)
    try:
        # a file system may know no locks: the room is then taken for that of a living writer, and stays if it is killed
        with suppress(NotImplementedError):
            lock.acquire()
        yield made
    finally:
        lock.release()
        shutil.rmtree(made, ignore_errors=True)


def abandoned(prefix: str, folder: Path) -> Iterator[Path]:
    """Yield the rooms in a directory whose writers are dead, and remove each afterwards.

    Args:
        prefix: The beginning of their names.
        folder: The directory around them.
    """
    from filelock import FileLock, Timeout

    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if not re.fullmatch(re.escape(prefix) + _RANDOM, path.name) or path.is_symlink() or not path.is_dir():
            continue
        if not (path / LOCK).is_file():
            with suppress(OSError):  # only an empty one goes: its writer was killed before it had the lock
                path.rmdir()
            continue
        lock = FileLock(path / LOCK)
        try:
            lock.acquire(timeout=0)
        except (Timeout, OSError, NotImplementedError):  # its writer lives, or this cannot be known
            continue
        try:
            yield path
            shutil.rmtree(path, ignore_errors=True)
        finally:
            lock.release()

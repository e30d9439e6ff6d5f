"""Atomic writing of files and directories.

A file or directory has a temporary name until it is complete. Readers therefore never find a
partial file or directory, and a killed process never leaves one under the final name.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

_REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: "choose a directory on another file system",
    errno.ENOENT: "its directory was removed meanwhile",
    errno.EBUSY: "wait until that process has ended",
}


def waiting_lock(
    file: Path,
    work: str,
    wait: bool = True,
) -> Any:
    """Acquire the lock of a file and return it, for use in a ``with`` block, which releases it.

    Args:
        file: The lock file.
        work: Activity of the process that holds the lock, for the message printed before waiting.
        wait: Whether to wait if another process holds the lock.

    Raises:
        Timeout: If another process holds the lock and ``wait`` is False.
    """
    lock = FileLock(file)
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise
        print(f"fedbench: waiting for another process that is {work}", file=sys.stderr)
        return lock.acquire()


class NotWritten(OSError):
    """Failure to write a file or directory; the message states the path, the error and the remedy.

    Args:
        path: The file or directory.
        error: The operating system's error.
    """

    def __init__(self, path: Path, error: OSError) -> None:
        remedy = _REMEDIES.get(error.errno or 0, "make its directory writable")
        super().__init__(
            f"{path} cannot be written: {error.strerror or error}; "
            f"{remedy}, then run the command again"
        )
        self.path, self.error, self.errno = path, error, error.errno

    def __reduce__(self) -> tuple[type[NotWritten], tuple[Path, OSError]]:
        """Let another process rebuild the exception from its arguments instead of its message."""
        return NotWritten, (self.path, self.error)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise ``NotWritten`` if writing ``path`` fails within this block."""
    try:
        yield
    except NotWritten:
        raise
    # for a directory, the message lists the errors of all files; the first one is enough
    except shutil.Error as error:
        first = re.search(r"\[Errno (\d+)\]", str(error))
        code = int(first[1]) if first else errno.EIO
        raise NotWritten(path, OSError(code, os.strerror(code))) from error
    except OSError as error:
        raise NotWritten(path, error) from error


def replace_file(
    path: Path,
    content: str | bytes,
    lasting: bool = False,
) -> None:
    """Write text or bytes to a file in one step.

    Args:
        path: The file.
        content: New content of the file.
        lasting: Whether to flush the content to disk with fsync before the file gets its name.

    Raises:
        NotWritten: If the file cannot be written; it is left unchanged.
    """
    with replacing(path) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        if lasting:
            to_disk(part)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path, which replaces ``path`` at the end of this block.

    The temporary file is removed if the block fails.

    Raises:
        NotWritten: If the file cannot be written.
    """
    part = path.with_name(path.name + ".part")
    with writing(path):
        try:
            yield part
            part.replace(path)
        except BaseException:
            # on a full disk, a large partial file would continue to take up space
            part.unlink(missing_ok=True)
            raise


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """Yield a copy of a directory, which replaces it at the end of this block.

    If the block fails, the directory is unchanged.

    Args:
        target: The directory; it need not exist. A link to a directory remains a link.

    Raises:
        NotWritten: If the directory cannot be written.
    """
    place = target.resolve()
    with writing(target):
        place.parent.mkdir(parents=True, exist_ok=True)
        around = Path(tempfile.mkdtemp(prefix=".fedbench-", dir=place.parent))
        new, old = around / "new", around / "old"
        try:
            if place.exists():
                shutil.copytree(place, new, symlinks=True)
            else:
                new.mkdir()
            yield new
            # a mount point cannot be moved, and the working directory may be inside the directory
            if place.is_mount() or Path.cwd().is_relative_to(place):
                move_files(new, place, _files_below(place))
            else:
                if place.exists():
                    place.replace(old)
                new.replace(place)
        except NotWritten as error:
            if error.path.is_relative_to(new):
                raise NotWritten(target / error.path.relative_to(new), error.error) from error
            raise
        finally:
            if old.exists() and not place.exists():
                old.replace(place)
            shutil.rmtree(around, ignore_errors=True)


def _files_below(folder: Path) -> list[str]:
    """Return the relative paths of all files below a directory, sorted."""
    files = (path for path in folder.rglob("*") if not path.is_dir())
    return sorted(path.relative_to(folder).as_posix() for path in files)


def move_files(
    source: Path,
    target: Path,
    earlier: Iterable[str],
) -> list[str]:
    """Move all files below a directory into another directory, replacing the earlier files.

    Args:
        source: Directory of the new files; it is removed.
        target: Directory that receives the files; its other files stay.
        earlier: Relative paths of the earlier files.

    Returns:
        The relative paths of the new files, sorted.
    """
    names = _files_below(source)
    for name in {*earlier} - {*names}:
        path = target / name
        if path.resolve().is_relative_to(target.resolve()) and not path.is_dir():
            path.unlink(missing_ok=True)
            folder = path.parent
            if folder != target and folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).replace(target / name)
    shutil.rmtree(source)
    return names


def to_disk(path: Path) -> None:
    """Flush a file or a directory's entries to disk, so that they survive a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Files and directories that are written as a whole or not at all, and one clear error where they cannot be.

Each is written under a temporary name and renamed: a reader never finds half of one, and a process that is killed never
leaves half of one under its name.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fedbench.core.rooms import abandoned, room
from fedbench.core.sealing import to_disk

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of renameat2(2)
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


class NotWritten(OSError):
    """A file or directory cannot be written; the message names it, the fault, what is needed and what is free.

    Args:
        path: The file or directory.
        error: The error of the system.
        need: Bytes that were to be written; None if that is not known.
    """

    def __init__(self, path: Path, error: OSError, need: int | None = None) -> None:
        text = f"{path} cannot be written: {fault(path, error, need)}"
        if error.errno in _FULL:
            text += "; free some space and run the same command again"
        elif error.errno == errno.ENOENT:
            text += "; its directory was removed meanwhile. Run the same command again"
        else:
            text += "; make its directory writable and run the same command again"
        super().__init__(text)
        self.path, self.error, self.need, self.errno = path, error, need, error.errno

    def __reduce__(self) -> tuple[type[NotWritten], tuple[Path, OSError, int | None]]:
        """Say how it is made again in another process: from what it was made of here, not from its message."""
        return NotWritten, (self.path, self.error, self.need)


def fault(path: Path, error: OSError, need: int | None = None) -> str:
    """Return the words for an error at ``path``; those for a full disk say how much is needed and free."""
    words = error.strerror or str(error)
    if error.errno not in _FULL:
        return words
    asked = "" if need is None else f"{_size(need)} needed, "
    return f"{words}, {asked}{_size(_free(path))} free"


def _size(count: int) -> str:
    unit, name = next(((u, n) for u, n in _UNITS if count >= u), (1, "bytes"))
    return f"{count} bytes" if unit == 1 else f"{count / unit:.1f} {name}"


def _free(path: Path) -> int:
    """Return the free bytes of the file system of a file that may not exist."""
    return shutil.disk_usage(next(p for p in (path, *path.absolute().parents) if p.exists())).free


@contextmanager
def writing(path: Path, need: int | None = None) -> Iterator[None]:
    """Raise ``NotWritten`` in place of the system's error if ``path`` cannot be written inside this block.

    Args:
        path: A file or directory.
        need: Bytes that are written inside the block, for the message; None if that is not known.
    """
    try:
        yield
    except NotWritten:
        raise
    except OSError as error:
        raise NotWritten(path, error, need) from error


def replace_file(path: Path, text: str, lasting: bool = False) -> None:
    """Write ``text`` to ``path`` in one step.

    Args:
        path: The file.
        text: Its new content.
        lasting: Whether the content is on the disk, in the sense of fsync, before it has its name.

    Raises:
        NotWritten: If that is not possible; the file is as it was.
    """
    replace_bytes(path, text.encode(), lasting)


def replace_bytes(path: Path, content: bytes, lasting: bool = False) -> None:
    """Write ``content`` to ``path`` in one step, as ``replace_file`` does."""
    with replacing(path, len(content)) as part:
        part.write_bytes(content)
        if lasting:
            to_disk(part)


@contextmanager
def replacing(path: Path, need: int | None = None) -> Iterator[Path]:
    """Give a temporary path, which replaces ``path`` at the end of this block, and is removed if that fails.

    Args:
        path: The file.
        need: Bytes that are written inside the block, for the message; None if that is not known.

    Raises:
        NotWritten: If the file cannot be written.
    """
    part = path.with_name(path.name + ".part")
    with writing(path, need):
        try:
            yield part
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)  # on a full disk, half of a large file would stay in the way
            raise


def reserve(file: IO[bytes], size: int) -> None:
    """Take the space of a file before it is mapped: a page that the disk has no room for ends a process by SIGBUS.

    Args:
        file: The file, open for writing.
        size: Its size in bytes.

    Raises:
        OSError: If there is not enough space.
    """
    if size and hasattr(os, "posix_fallocate"):  # not on macOS and Windows, where the file is filled by writing
        os.posix_fallocate(file.fileno(), 0, size)


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """Give a copy of a directory, which takes its place at the end of this block; if that fails, nothing has changed.

    The copy has the same files, as links: inside the block, files are replaced or removed, never changed. On Linux both
    directories are exchanged in one step. A mount point and the current directory cannot be replaced: once the copy is
    complete, its files are moved there one by one. What a killed process has left beside the directory is removed.

    Args:
        target: The directory; it need not exist.

    Raises:
        NotWritten: If the directory cannot be written.
    """
    place = target.resolve()  # a link to a directory stays one
    with writing(target):
        place.parent.mkdir(parents=True, exist_ok=True)
        stays = place.exists() and (place.is_mount() or Path.cwd().is_relative_to(place))
        prefix, around = f".{place.name}.", place if stays else place.parent
        for left in abandoned(prefix, around):
            if not place.exists() and (left / "old").exists():  # killed between the two renames of _exchange
                (left / "old").replace(place)
        with room(prefix, around) as made:
            new = made / "new"
            try:
                if place.exists():
                    _copy(place, new, made.name)
                else:
                    new.mkdir()
                yield new
                if stays:
                    _move_files(new, place, made)
                elif place.exists():
                    _exchange(new, place, made / "old")
                else:
                    new.replace(place)
            except NotWritten as error:
                if error.path.is_relative_to(new):
                    raise NotWritten(target / error.path.relative_to(new), error.error, error.need) from error
                raise


def _copy(folder: Path, new: Path, without: str) -> None:
    """Copy a directory, its files as links; unlike shutil's copytree, this ends with the first error of the system."""
    new.mkdir()
    for entry in folder.iterdir():
        if entry.name == without:
            continue
        if entry.is_dir() and not entry.is_symlink():
            _copy(entry, new / entry.name, without)
        else:
            _link(str(entry), str(new / entry.name))
    shutil.copystat(folder, new)


def _link(source: str, place: str) -> None:
    """Link a file, or copy it where the file system has no links."""
    try:
        os.link(source, place, follow_symlinks=False)
    except OSError as error:
        if error.errno in _FULL:
            raise
        shutil.copy2(source, place, follow_symlinks=False)


def _exchange(new: Path, target: Path, old: Path) -> None:
    """Put a directory in the place of another: in one step if the system can, by two renames otherwise."""
    exchange = getattr(ctypes.CDLL(None), "renameat2", None)
    if exchange is not None and exchange(_HERE, os.fsencode(new), _HERE, os.fsencode(target), _EXCHANGE) == 0:
        return
    target.replace(old)
    try:
        new.replace(target)
    except BaseException:
        old.replace(target)
        raise


def _move_files(new: Path, target: Path, stays: Path) -> None:
    """Move all files of a directory into another, those at its top last, and remove what is only there.

    Args:
        new: The directory.
        target: The other one.
        stays: A directory in ``target`` that stays.
    """
    found = [p.relative_to(new) for p in new.rglob("*") if not p.is_dir()]
    for name in sorted(found, key=lambda p: -len(p.parts)):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (new / name).replace(target / name)
    for old in [p for p in target.rglob("*") if not p.is_dir() and not p.is_relative_to(stays)]:
        if old.relative_to(target) not in found:
            old.unlink()

"""Unpack an archive completely or not at all, inside one directory and below a size.

Archives are compared with their published checksums before they come here (``download.unpacked``), tarfile's data
filter and zipfile do the work. The checks below make a mirror's mistake, or an archive made to fill a disk or the
memory, an error and not a mess.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath
from typing import IO, Any

from fedbench.core.errors import RequestError, shown

_MOST_MEMBERS = 1_000_000  # of an archive that is unpacked; the largest official one has 270,000
_MOST_HEADER = 2**20  # bytes that tarfile may read at once: names and further facts of a member
# first bytes -> how it is opened
_PACKED: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others need as much memory as their headers ask for


def unpack(archive: Path, target: Path, *, most_bytes: int) -> None:
    """Unpack a zip, a tar (plain, gz, bz2, xz) or a single gzipped file into the directory ``target``.

    The format is read from the content, not from the name. A single gzipped file ``a.gz`` becomes ``target/a``.
    ``target`` may exist: files of the same name are replaced, others stay. Everything is unpacked next to ``target``
    first and then moved by renames; a failure leaves ``target`` as it was.

    Args:
        archive: The archive.
        target: Directory to unpack into; created if missing.
        most_bytes: Largest total size of the unpacked files.

    Raises:
        RequestError: If the archive is corrupt, encrypted, empty or of another format; if it contains a link, a device
            or a name that leads out of ``target``; if it unpacks to more than ``most_bytes`` or has more than a million
            members; or if ``target`` cannot be written.
    """
    try:
        near = next(p for p in target.absolute().parents if p.exists())  # on target's disk, so that renames work
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", suffix=".part", dir=near) as folder:
            content = Path(folder) / "content"  # with the usual permissions, unlike the temporary directory
            content.mkdir()
            _extract(archive, content, _Limits(archive, most_bytes))
            _move_into_place(content, target)
    except RequestError:
        raise
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile) or error.errno is None:  # of a decoder, not of the file system
            raise _corrupt(archive, error) from error
        raise RequestError(f"{archive} cannot be unpacked into {target}: {str(error)[:300]}") from error
    except Exception as error:  # what reads a corrupt archive may fail in any way
        raise _corrupt(archive, error) from error


def _corrupt(
    archive: Path, error: Exception, remedy: str = "remove it to download it again", what: str = "an archive"
) -> RequestError:
    reason = " ".join((str(error) or type(error).__name__).split()).rstrip(":")[:300]
    return RequestError(f"{archive} is corrupt or not {what} ({reason}); {remedy}")


@contextmanager
def opened_zip(
    path: Path, remedy: str = "remove it to download it again", what: str = "an archive"
) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive whose members are read in place.

    Args:
        path: The archive.
        remedy: What to do with a corrupt one.
        what: What it must be, for messages.

    Raises:
        RequestError: If it is not a complete zip archive of members that are stored or deflated.
    """
    try:
        packed = zipfile.ZipFile(path)
    except Exception as error:  # as in ``unpack``
        raise _corrupt(path, error, remedy, what) from error
    with packed:
        for info in packed.infolist():
            if info.flag_bits & 1:
                raise _corrupt(path, ValueError(f"{shown(info.filename)} is encrypted"), remedy, what)
            if info.compress_type not in _METHODS:
                fault = f"{shown(info.filename)} has the compression method {info.compress_type}, and 0 and 8 are read"
                raise _corrupt(path, ValueError(fault), remedy, what)
        yield packed


@contextmanager
def member_of(packed: zipfile.ZipFile, name: str, path: Path) -> Iterator[IO[bytes]]:
    """Open a member of a zip archive; whatever goes wrong while it is read is the archive's fault.

    Args:
        packed: The open archive.
        name: Name of the member.
        path: The archive's path, for messages.

    Raises:
        RequestError: If there is no such member, or it is corrupt.
    """
    try:
        with packed.open(name) as file:
            yield file
    except RequestError:
        raise
    except Exception as error:  # as in ``unpack``
        raise _corrupt(path, error) from error


class _Limits:
    """What the members of an archive may be called, how many they may be and how large together."""

    def __init__(self, archive: Path, most_bytes: int) -> None:
        self._archive, self.most_bytes, self._total, self._members = archive, most_bytes, 0, 0

    def check(self, name: str, size: int, *, plain: bool = True) -> None:
        """Count a member; reject it if its name leads out of the directory or the total is too large.

        Args:
            name: Name of the member; it must not lead out under Windows either.
            size: Bytes that it unpacks to.
            plain: Whether it is a file or a directory.
        """
        if not plain:
            raise self.rejected(f"{shown(name)} is neither a file nor a directory")
        path = PureWindowsPath(name)
        if path.anchor or ".." in path.parts:
            raise self.rejected(f"{shown(name)} leads out of the directory")
        if "\0" in name or not (path.parts or name.rstrip("/") == "."):  # tar files may begin with "./"
            raise self.rejected(f"{shown(name)} is not a name")
        self._members += 1
        if self._members > _MOST_MEMBERS:
            raise self.rejected(f"it has more than {_MOST_MEMBERS} members")
        self.add(size)

    def add(self, size: int) -> None:
        """Count bytes that are unpacked; reject the archive if the total is too large."""
        self._total += size
        if size < 0 or self._total > self.most_bytes:
            raise self.rejected(f"it unpacks to more than the expected {self.most_bytes} bytes")

    def rejected(self, reason: str) -> RequestError:
        """Return the error for an archive that must not be unpacked."""
        return RequestError(
            f"{self._archive} is rejected: {reason}; nothing was unpacked, download it from its official address"
        )


def _extract(archive: Path, content: Path, limits: _Limits) -> None:
    with archive.open("rb") as file:
        start = file.read(2)
    if start == b"PK":
        with opened_zip(archive) as packed:
            for info in packed.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)  # 0 unless the archive was made under Unix
                limits.check(info.filename, info.file_size, plain=kind in (0, stat.S_IFREG, stat.S_IFDIR))
            packed.extractall(content)  # no member becomes larger than the size just checked
    elif start == b"\x1f\x8b" and not _is_tar(archive):
        with gzip.open(archive) as stream, (content / archive.name.removesuffix(".gz")).open("wb") as out:
            while chunk := stream.read(1 << 20):
                limits.add(len(chunk))
                out.write(chunk)
    else:
        with _PACKED.get(start, Path.open)(archive, "rb") as stream, _tar(stream, limits) as members:
            for member in members:
                plain = (member.isreg() or member.isdir()) and not member.issparse()
                limits.check(member.name, member.size, plain=plain)
            members.extractall(content, filter=_unremarkable)
    if not any(content.iterdir()):
        raise tarfile.ReadError("it contains no files")


def _is_tar(archive: Path) -> bool:
    """Return whether a gzipped file contains a tar archive: its first block has the mark of one, or is empty."""
    with gzip.open(archive) as stream:
        block = stream.read(tarfile.BLOCKSIZE)
    return block[257:262] == b"ustar" or (len(block) == tarfile.BLOCKSIZE and not any(block))


def _tar(stream: Any, limits: _Limits) -> tarfile.TarFile:
    return tarfile.open(fileobj=_Bounded(stream, limits), mode="r:")  # type: ignore[call-overload,no-any-return]


class _Bounded:
    """The unpacked bytes of a tar archive: neither a header nor the whole may be larger than such a thing can be."""

    def __init__(self, stream: Any, limits: _Limits) -> None:
        self._stream, self._limits = stream, limits
        # every member has a header of one block, its facts take a few, and the last block of each is filled up
        self._most = 2 * limits.most_bytes + 8 * tarfile.RECORDSIZE + 64 * tarfile.BLOCKSIZE

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes; tarfile copies members in pieces, so that only headers are read at once."""
        if not 0 <= size <= _MOST_HEADER:
            raise self._limits.rejected(f"a header declares {size} bytes")
        content: bytes = self._stream.read(size)
        return content

    def seek(self, position: int) -> int:
        """Go to a position; of a compressed archive everything before it is decompressed."""
        if position > self._most:
            raise self._limits.rejected(f"it unpacks to more than the expected {self._limits.most_bytes} bytes")
        found: int = self._stream.seek(position)
        return found

    def tell(self) -> int:
        """Return the position."""
        found: int = self._stream.tell()
        return found


def _unremarkable(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
    """Return a member with the permissions and the time of a new file."""
    return tarfile.data_filter(member, path).replace(mode=None, mtime=None, deep=False)  # type: ignore[arg-type]


def _move_into_place(content: Path, target: Path) -> None:
    for last in (False, False, True):
        try:
            for source, place in _moves(content, target):
                place.parent.mkdir(parents=True, exist_ok=True)
                source.replace(place)
            return
        except OSError:  # another process may just have put the same files there: then files replace files
            if last:
                raise


def _moves(source: Path, target: Path) -> list[tuple[Path, Path]]:
    """Return the renames that bring ``source`` to ``target``: as few as possible, into directories that exist."""
    if source.is_dir() and target.is_dir():
        return [move for entry in sorted(source.iterdir()) for move in _moves(entry, target / entry.name)]
    if target.exists() and source.is_dir() != target.is_dir():
        raise FileExistsError(f"{target} exists and is a {'directory' if target.is_dir() else 'file'}")
    return [(source, target)]

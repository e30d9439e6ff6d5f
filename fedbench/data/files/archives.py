"""Archives from outside: unpacked inside one directory and below a size, completely or not at all."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import stat
import struct
import sys
import tarfile
import tempfile
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

from fedbench.core.errors import RequestError

_CHUNK = 1 << 20  # bytes
_MOST_ENTRIES = 4_000_000  # the largest official archive of a data set here has below two million
_LONGEST_NAME = 4096  # bytes of a link's target
_HEADERS = 1 << 20  # bytes that the headers of one member of a tar may take, and what stands behind its end
_PACKED: dict[bytes, tuple[Any, str]] = {  # first bytes -> how to read it, the end of its name
    b"\x1f\x8b": (gzip.open, ".gz"),
    b"BZh": (bz2.open, ".bz2"),
    b"\xfd7zXZ\x00": (lzma.open, ".xz"),
}
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    gzip.BadGzipFile,
    struct.error,
    EOFError,
    UnicodeError,
    NotImplementedError,  # a way of compressing that zipfile does not know
)


def unpack(archive: Path, target: Path, *, most_bytes: int) -> None:
    """Unpack a zip, tar (plain, gz, bz2, xz) or a single compressed file into the directory ``target``.

    What it is is told from the content, not from the name. A single compressed file ``a.gz`` becomes ``target/a``.
    ``target`` may exist: files of the same name are replaced, others stay. Directories and files come into place by
    renames after everything was unpacked; a failure leaves ``target`` as it was. Links to files inside become copies.

    Args:
        archive: the file.
        target: a directory; made if it is not there.
        most_bytes: that all files together may take, as written.

    Raises:
        RequestError: if it is damaged, encrypted or not an archive, holds a name or a link that leads out of
            ``target``, a device, too many entries or too many bytes, or ``target`` cannot be written to.
    """
    try:
        near = next(p for p in target.absolute().parents if p.exists())  # target's disk, and nothing has to be made
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", suffix=".part", dir=near) as folder:
            content = Path(folder) / "content"  # a directory with the usual rights, which the outer one has not
            content.mkdir()
            _fill(archive, _Tree(archive, content, most_bytes))
            _into_place(content, target)
    except RequestError:
        raise
    except _BROKEN as error:
        raise RequestError(
            f"{archive} is damaged or no archive ({str(error) or type(error).__name__}); remove it and fetch it again"
        ) from error
    except OSError as error:
        raise RequestError(f"{archive} cannot be unpacked into {target}: {error}") from error


@dataclass
class _Tree:
    """What comes out of an archive: every name, kind, number and size is checked here.

    Attributes:
        archive: for messages.
        root: the directory to fill.
        most_bytes: allowed.
        entries: met so far.
        written: bytes so far.
        links: where a copy belongs and of what, both below the root.
    """

    archive: Path
    root: Path
    most_bytes: int
    entries: int = 0
    written: int = 0
    links: list[tuple[Path, Path]] = field(default_factory=list)

    def place(self, name: str) -> Path:
        """Return where the entry of that name belongs; it counts as one."""
        self.entries += 1
        if self.entries > _MOST_ENTRIES:
            raise self.refuse(f"it holds more than {_MOST_ENTRIES} entries")
        return self.root / self._inside(name, name)

    def directory(self, name: str) -> None:
        """Make a directory."""
        self.place(name).mkdir(parents=True, exist_ok=True)

    def file(self, name: str, content: IO[bytes]) -> None:
        """Write a file."""
        self.write(self.place(name), content)

    def write(self, path: Path, content: IO[bytes]) -> None:
        """Write a file and count its bytes, whatever a header said."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            while chunk := content.read(_CHUNK):
                self.written += len(chunk)
                if self.written > self.most_bytes:
                    raise self.refuse(f"unpacked it takes more than the {self.most_bytes} bytes expected")
                out.write(chunk)

    def link(self, name: str, source: str, *, symbolic: bool) -> None:
        """Note a link from ``name`` to ``source``, which is relative to the root or, if symbolic, to the link."""
        path = self.place(name)
        above = path.parent.relative_to(self.root).as_posix() + "/" if symbolic else ""
        if source.startswith(("/", "\\")):
            above = ""
        self.links.append((path, self.root / self._inside(above + source, f"{name} -> {source}")))

    def finish(self) -> None:
        """Replace the links by copies."""
        for path, source in self.links:
            if not source.is_file():
                raise self.refuse(f"its link {path.relative_to(self.root)} leads to no file in it")
            with source.open("rb") as content:
                self.write(path, content)

    def refuse(self, reason: str) -> RequestError:
        """Return the error for an archive that must not be unpacked."""
        return RequestError(
            f"{self.archive} is refused: {reason}; nothing was unpacked, fetch it from its official address"
        )

    def _inside(self, name: str, shown: str) -> PurePosixPath:
        parts: list[str] = []
        slashed = name.replace("\\", "/")  # as archives made under Windows have it
        for part in slashed.split("/"):
            if part == ".." and not parts:
                raise self.refuse(f"{shown!r} leads out of the directory")
            if part == "..":
                parts.pop()
            elif part not in ("", "."):
                parts.append(part)
        if slashed.startswith("/") or re.match("[A-Za-z]:", slashed) or "\0" in name:
            raise self.refuse(f"{shown!r} leads out of the directory")
        return PurePosixPath(*parts)


def _fill(archive: Path, tree: _Tree) -> None:
    with archive.open("rb") as file:
        start = file.read(8)
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        _fill_from_zip(archive, tree)
    else:
        opener, ending = next((v for k, v in _PACKED.items() if start.startswith(k)), (open, ""))
        with opener(archive, "rb") as stream:
            is_tar = _is_tar(stream.read(tarfile.BLOCKSIZE))
        if not is_tar and not ending:
            raise tarfile.ReadError("its first bytes are those of no zip, tar, gz, bz2 or xz")
        with opener(archive, "rb") as stream:
            if is_tar:
                _fill_from_tar(stream, tree)
            else:
                tree.file(archive.name.removesuffix(ending), stream)
    tree.finish()


def _fill_from_zip(archive: Path, tree: _Tree) -> None:
    with zipfile.ZipFile(archive) as packed:
        for info in packed.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)  # zero where it was not made under Unix
            if info.flag_bits & 1:
                raise tree.refuse(f"{info.filename!r} in it is encrypted")
            if info.is_dir() or kind == stat.S_IFDIR:
                tree.directory(info.filename)
            elif kind in (0, stat.S_IFREG):
                with packed.open(info) as content:
                    tree.file(info.filename, content)
            elif kind == stat.S_IFLNK:
                with packed.open(info) as content:
                    tree.link(info.filename, content.read(_LONGEST_NAME).decode(), symbolic=True)
            else:
                raise tree.refuse(f"{info.filename!r} in it is neither a file nor a directory")


def _is_tar(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


class _Counted:
    """A stream that is read up to a limit.

    Attributes:
        count: bytes read so far.
        most: bytes that may be read.
    """

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream, self.count, self.most = stream, 0, most

    def read(self, size: int) -> bytes:
        """Read at most ``size`` bytes."""
        got = self._stream.read(size)
        self.count += len(got)
        if self.count > self.most:
            raise tarfile.ReadError(f"more than {_HEADERS} bytes where a header or the end should be")
        return got


def _fill_from_tar(stream: IO[bytes], tree: _Tree) -> None:
    counted = _Counted(stream, _HEADERS)
    with tarfile.open(fileobj=counted, mode="r|") as tar:  # type: ignore[call-overload]  # only read() is needed
        while (member := tar.next()) is not None:
            counted.most = sys.maxsize
            if member.isdir():
                tree.directory(member.name)
            elif member.isreg():
                tree.file(member.name, tar.extractfile(member))
            elif member.islnk() or member.issym():
                tree.link(member.name, member.linkname, symbolic=member.issym())
            else:
                raise tree.refuse(f"{member.name!r} in it is neither a file nor a directory")
            tar.members.clear()  # it would keep them all
            counted.most = counted.count + _HEADERS
        counted.most = counted.count + _HEADERS
        while counted.read(_CHUNK):  # the checksum of gz and xz comes last
            pass
        if counted.count <= tar.offset:
            raise tarfile.ReadError("its end is missing")


def _into_place(content: Path, target: Path) -> None:
    for last in (False, False, True):
        try:
            for source, place in _moves(content, target):
                place.parent.mkdir(parents=True, exist_ok=True)
                source.replace(place)
            return
        except OSError:  # perhaps another process has just put the same there: then files replace files
            if last:
                raise


def _moves(source: Path, target: Path) -> list[tuple[Path, Path]]:
    """Return the renames that bring ``source`` to ``target``: as few as possible, into directories that exist."""
    if source.is_dir() and target.is_dir():
        return [move for entry in sorted(source.iterdir()) for move in _moves(entry, target / entry.name)]
    if target.exists() and source.is_dir() != target.is_dir():
        raise FileExistsError(f"{target} is a {'directory' if target.is_dir() else 'file'} already")
    return [(source, target)]

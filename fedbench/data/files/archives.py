"""Unpack an archive completely or not at all, inside one directory and below a size.

Archives are compared with their published checksums before they come here (``download.unpacked``), tarfile's data
filter and zipfile do the work. The checks below make a mirror's mistake or a wrong ``most_bytes`` an error, not a mess.
"""

from __future__ import annotations

import gzip
import lzma
import stat
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path, PureWindowsPath

from fedbench.core.errors import RequestError

_CORRUPT = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    UnicodeError,
    RuntimeError,  # zipfile: a member is encrypted, or compressed by a method that it does not know
)


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
            or a name that leads out of ``target``; if it unpacks to more than ``most_bytes``; or if ``target`` cannot
            be written.
    """
    try:
        near = next(p for p in target.absolute().parents if p.exists())  # on target's disk, so that renames work
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", suffix=".part", dir=near) as folder:
            content = Path(folder) / "content"  # with the usual permissions, unlike the temporary directory
            content.mkdir()
            _extract(archive, content, _Limits(archive, most_bytes))
            _move_into_place(content, target)
    except _CORRUPT as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(":")
        raise RequestError(
            f"{archive} is corrupt or not an archive ({reason}); remove it to download it again"
        ) from error
    except OSError as error:
        raise RequestError(f"{archive} cannot be unpacked into {target}: {error}") from error


class _Limits:
    """What the members of an archive may be called and how large they may be together."""

    def __init__(self, archive: Path, most_bytes: int) -> None:
        self._archive, self._most, self._total = archive, most_bytes, 0

    def check(self, name: str, size: int, *, plain: bool = True) -> None:
        """Count a member; reject it if its name leads out of the directory or the total is too large.

        Args:
            name: Name of the member; it must not lead out under Windows either.
            size: Bytes that it unpacks to.
            plain: Whether it is a file or a directory.
        """
        if not plain:
            raise self.rejected(f"{name!r} is neither a file nor a directory")
        path = PureWindowsPath(name)
        if path.anchor or ".." in path.parts:
            raise self.rejected(f"{name!r} leads out of the directory")
        self._total += size
        if self._total > self._most:
            raise self.rejected(f"it unpacks to more than the expected {self._most} bytes")

    def tar_filter(self, member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
        """Check a member and return it with the permissions and the time of a new file."""
        self.check(member.name, member.size, plain=member.isreg() or member.isdir())
        return tarfile.data_filter(member, path).replace(mode=None, mtime=None, deep=False)  # type: ignore[arg-type]

    def rejected(self, reason: str) -> RequestError:
        """Return the error for an archive that must not be unpacked."""
        return RequestError(
            f"{self._archive} is rejected: {reason}; nothing was unpacked, download it from its official address"
        )


def _extract(archive: Path, content: Path, limits: _Limits) -> None:
    with archive.open("rb") as file:
        start = file.read(2)
    if start == b"PK":
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)  # 0 unless the archive was made under Unix
                limits.check(info.filename, info.file_size, plain=kind in (0, stat.S_IFREG, stat.S_IFDIR))
            packed.extractall(content)  # no member becomes larger than the size just checked
    elif start == b"\x1f\x8b" and not tarfile.is_tarfile(archive):
        with gzip.open(archive) as stream, (content / archive.name.removesuffix(".gz")).open("wb") as out:
            while chunk := stream.read(1 << 20):
                limits.check(archive.name, len(chunk))
                out.write(chunk)
    else:
        with tarfile.open(archive) as packed:
            packed.extractall(content, filter=limits.tar_filter)
    if not any(content.iterdir()):
        raise tarfile.ReadError("it contains no files")


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

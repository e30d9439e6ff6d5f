"""Published files: where they belong, download, archives, and whether files are the official ones."""

import hashlib
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fedbench import __version__
from fedbench.core.atomic_files import waiting_lock
from fedbench.core.errors import RequestError, reason_of
from fedbench.core.files import reading

_TIMEOUT = (5.0, 30.0)  # seconds to connect, seconds without a byte
_DEFAULT = Path("~/.cache/fedbench").expanduser()  # as conf/config.yaml has it
_mirrors: ContextVar[tuple[str, ...]] = ContextVar("_mirrors", default=())


class MissingFiles(RequestError):
    """An error that names files that are missing and could not be downloaded."""


@dataclass(frozen=True)
class Remote:
    """A file to download.

    Attributes:
        path: Where the file belongs, below the data directory.
        urls: Its addresses in the order to try.
        hash: The published checksum, such as "md5:..."; None if there is none.
        max_bytes: Size above which a download is stopped; the largest published file has about 1
            GB.
    """

    path: str
    urls: tuple[str, ...]
    hash: str | None
    max_bytes: int = 2 * 10**9

    def addresses(self) -> tuple[str, ...]:
        """Return all addresses in the order to try: mirrors first, for files whose checksum is known."""
        if self.hash is None:
            return self.urls
        mirrors = (
            *_mirrors.get(),
            *os.environ.get("FEDBENCH_MIRRORS", "").replace(",", " ").split(),
        )
        return (*(f"{base.rstrip('/')}/{self.path}" for base in mirrors), *self.urls)


@dataclass(frozen=True)
class Files:
    """Files that a data set needs, and where they come from.

    Attributes:
        name: Name of the data set, for messages.
        layouts: Places of the files or directories below the data directory; the first complete
            layout is used.
        remotes: What is downloaded if no layout is complete; the files themselves, or archives of
            them.
        into: Directory below the data directory that archives are unpacked into; None if they are
            read as they are.
        sums: Published checksums of unpacked files, by file name.
        remedy: How to get files that cannot be downloaded, for messages.
    """

    name: str
    layouts: Sequence[Sequence[str]]
    remotes: Sequence[Remote] = ()
    into: str | None = None
    sums: Mapping[str, str] = field(default_factory=dict)
    remedy: str = "put them there"

    @property
    def checksums(self) -> dict[str, str | None]:
        """Published checksums of downloads and of unpacked files, by file name."""
        return {Path(remote.path).name: remote.hash for remote in self.remotes} | dict(self.sums)

    def existing(self, data_dir: Path) -> list[Path] | None:
        """Return the files of the first complete layout; None if there is none."""
        for layout in self.layouts:
            paths = [data_dir / name for name in layout]
            if all(path.exists() for path in paths):
                return paths
        return None

    def missing(self, data_dir: Path) -> str | None:
        """Return a file that is missing, below the data directory: a download, or else one of the first layout."""
        if self.existing(data_dir) is not None:
            return None
        wanted = [remote.path for remote in self.remotes] or self.layouts[0]
        return next((name for name in wanted if not (data_dir / name).exists()), None)

    def find(self, data_dir: Path, *, download: bool) -> list[Path]:
        """Return the files of the first complete layout, downloaded and unpacked if there is none.

        Args:
            data_dir: Directory of all data sets.
            download: Whether downloads are allowed.

        Raises:
            RequestError: If files are missing and cannot be downloaded, or an archive is corrupt or
                lacks them.
        """
        paths = self.existing(data_dir)
        if paths is not None:
            return paths
        if not self.remotes:
            wanted = ", ".join(self.layouts[0])
            raise MissingFiles(f"{self.name}: {data_dir} does not contain {wanted}; {self.remedy}")
        self._download(data_dir, download)
        downloads = [data_dir / remote.path for remote in self.remotes]
        if self.into is not None:
            for archive in downloads:
                if fault := _difference(archive, self.checksums[archive.name]):
                    raise RequestError(
                        f"{self.name}: {archive} is not the official file: {fault}; remove it to download it again"
                    )
                unpack(archive, data_dir / self.into)
        paths = self.existing(data_dir)
        if paths is None:
            wanted = ", ".join(self.layouts[-1])
            raise RequestError(
                f"{self.name}: {downloads[0]} does not contain {wanted}; remove it to download it again"
            )
        return paths

    def _download(self, data_dir: Path, allowed: bool) -> None:
        """Download the remote files that do not exist; the message of an error lists the place and source of each."""
        missing = [remote for remote in self.remotes if not (data_dir / remote.path).is_file()]
        if missing and (offline() or not allowed):
            switch = (
                "FEDBENCH_OFFLINE; unset it" if offline() else "data.download=false; set it to true"
            )
            raise self._failure(f"downloads are disabled by {switch}", missing, data_dir)
        if missing and not data_dir.is_dir() and data_dir != _DEFAULT:  # probably a typing error
            raise RequestError(
                f"{self.name}: data_dir={data_dir} is not a directory; correct it, or create it for the download"
            )
        for k, remote in enumerate(missing):
            path = data_dir / remote.path
            failures: list[str] = []
            with reading(f"{self.name}: {path}", "cannot be written"):
                path.parent.mkdir(parents=True, exist_ok=True)
                # two runs of a sweep would download the same gigabyte twice
                with waiting_lock(data_dir / ".downloads.lock", f"downloading into {data_dir}"):
                    if not path.is_file():
                        failures = _retrieve(remote, path)
            if not path.is_file():
                problem = f"{path.name} could not be downloaded ({'; '.join(failures)})"
                raise self._failure(
                    f"{problem}; try again later, name a mirror in data.mirrors",
                    missing[k:],
                    data_dir,
                )

    def _failure(self, problem: str, remotes: Sequence[Remote], data_dir: Path) -> MissingFiles:
        wanted = []
        for remote in remotes:
            sums = f" ({remote.hash})" if remote.hash else ""
            wanted.append(f"{data_dir / remote.path} from {' or '.join(remote.urls)}{sums}")
        count = "1 file" if len(remotes) == 1 else f"{len(remotes)} files"
        return MissingFiles(
            f"{self.name}: {count} missing: {problem}, or download yourself: {'; '.join(wanted)}"
        )

    def genuine(self, paths: Sequence[Path]) -> bool:
        """Return whether files have the published checksums."""
        return all(_difference(path, self.checksums[path.name]) is None for path in paths)

    def origin(self, paths: Sequence[Path]) -> dict[str, Any]:
        """Return the fields ``sources`` and ``unofficial`` of the examples in these files."""
        if self.genuine(paths):
            return {"sources": (f"{self.name}: official files",)}
        kind = str(self.checksums[paths[0].name]).partition(":")[0]
        note = f"{self.name}: not the official files ({kind} differs)"
        return {"sources": (note,), "unofficial": (note,)}


def offline() -> bool:
    """Return whether the environment variable FEDBENCH_OFFLINE disables downloads."""
    return os.environ.get("FEDBENCH_OFFLINE", "").lower() not in ("", "0", "false", "no")


@contextmanager
def mirrors(bases: tuple[str, ...]) -> Iterator[None]:
    """Ask these servers, which are laid out as the data directory, for everything that the block downloads."""
    token = _mirrors.set(bases)
    try:
        yield
    finally:
        _mirrors.reset(token)


def checksum(path: Path, kind: str = "md5") -> str:
    """Return the checksum of a file in hexadecimal digits; ``kind`` is "md5", "sha1" or "sha256"."""
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def verify(groups: Sequence[Files], data_dir: Path) -> list[tuple[Path, str, bool]]:
    """Compare the files that are read, or else the downloads that exist, with their published checksums.

    Returns:
        Path of each file, the result in words, and whether it differs from the official file.
    """
    findings = []
    for files in groups:
        paths = files.existing(data_dir) or [data_dir / remote.path for remote in files.remotes]
        for path in filter(Path.is_file, paths):
            expected = files.checksums.get(path.name)
            difference = _difference(path, expected)
            if expected is None:
                result = f"no published checksum: md5 {checksum(path)}"
            elif difference is None:
                result = f"official: {expected.replace(':', ' ')}"
            else:
                result = f"WRONG: {difference}"
            findings.append((path, result, difference is not None))
    return findings


def _difference(path: Path, expected: str | None) -> str | None:
    """Return how a file differs from its published checksum; None if it does not, or there is none."""
    if expected is None:
        return None
    kind, _, value = expected.partition(":")
    got = checksum(path, kind)
    return None if got == value else f"{kind} {got} instead of {value}"


def _retrieve(remote: Remote, path: Path) -> list[str]:
    """Download a file from the first address that has it; return why those before failed."""
    # only a missing file needs these, which take a tenth of a second to import
    import pooch
    from requests import ConnectionError, RequestException

    pooch.get_logger().setLevel("WARNING")
    # as it is on the server: a .gz that is sent as an encoding of something else must not be
    # decoded
    headers = {"Accept-Encoding": "identity", "User-Agent": f"fedbench/{__version__}"}
    downloader = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(), timeout=_TIMEOUT, headers=headers
    )
    failures: list[str] = []
    limited = partial(_download_limited, downloader, remote.max_bytes)
    for url in remote.addresses():
        try:
            pooch.retrieve(url, remote.hash, fname=path.name, path=path.parent, downloader=limited)
            break
        except (RequestException, ValueError) as error:
            # of an unreachable server the text is nested representations of objects
            reason = "no connection" if type(error) is ConnectionError else reason_of(error)
        failures.append(f"{url}: {reason}")
        print(f"fedbench: {path.name}: {failures[-1]}", file=sys.stderr)
    return failures


def _download_limited(downloader: Any, max_bytes: int, url: str, target: str, _: object) -> None:
    """Download a file as pooch asks for it, and stop when it exceeds ``max_bytes``."""
    with _LimitedFile(target, max_bytes) as file:
        downloader(url, file, None)


class _LimitedFile(io.FileIO):
    """A new file that refuses to grow beyond a size, so that no server can fill the disk."""

    def __init__(self, path: str, max_bytes: int) -> None:
        super().__init__(path, "w")
        self.max_bytes = max_bytes

    def write(self, content: Any) -> int:
        if self.tell() + len(content) > self.max_bytes:
            raise ValueError(f"stopped, as the server sends more than {self.max_bytes} bytes")
        return super().write(content)


def unpack(archive: Path, target: Path) -> None:
    """Unpack a zip or tar archive into the directory ``target``.

    Everything is unpacked into a temporary directory in ``target`` and then moved by renames: files
    of the same name are replaced, others stay. Members that lead out of the directory are refused
    in a tar archive, and left out of a zip archive.

    Raises:
        RequestError: If the archive is corrupt or of another format, has a member that is refused,
            or ``target`` cannot be written.
    """
    with reading(
        archive,
        f"cannot be unpacked into {target}",
        "if it is corrupt, remove it to download it again",
    ):
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=target) as folder:
            # with the usual permissions, unlike a temporary directory
            content = Path(folder) / "content"
            shutil.unpack_archive(
                archive, content, filter=None if archive.suffix == ".zip" else "data"
            )
            shutil.copytree(content, target, dirs_exist_ok=True, copy_function=os.replace)

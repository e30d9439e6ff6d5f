"""Published files: their locations, downloads, archives and checksums."""

import hashlib
import io
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbench import __version__
from fedbench.core.atomic_files import waiting_lock
from fedbench.core.config_values import read_yaml
from fedbench.core.errors import RequestError, reason_of
from fedbench.core.files import reading

_MOST_BYTES = 2 * 10**9  # limit for a download; the largest published file is about 1 GB
_TIMEOUT = (5.0, 30.0)  # seconds to connect, seconds without data
_DEFAULT = Path("~/.cache/fedbench").expanduser()  # the default in conf/config.yaml
_mirrors: ContextVar[tuple[str, ...]] = ContextVar("_mirrors", default=())


class MissingFiles(RequestError):
    """Error raised if files are missing and could not be downloaded."""


@dataclass(frozen=True)
class Remote:
    """A file to download.

    Attributes:
        path: Location of the file, relative to the data directory.
        urls: Addresses of the file, in the order in which they are tried.
        hash: The published checksum, such as "md5:...", or None if there is none.
        most_bytes: Limit for the download. If None, 2 GB.
    """

    path: str
    urls: Sequence[str]
    hash: str | None
    most_bytes: int | None = None

    def addresses(self) -> Sequence[str]:
        """Return all addresses in the order of use; mirrors come first if there is a checksum."""
        if self.hash is None:
            return self.urls
        others = os.environ.get("FEDBENCH_MIRRORS", "").replace(",", " ").split()
        bases = [*_mirrors.get(), *others]
        mirrored = [f"{base.rstrip('/')}/{self.path}" for base in bases]
        return [*mirrored, *self.urls]


@dataclass(frozen=True)
class Files:
    """The files of a data set and their origin.

    Attributes:
        name: Name of the data set, for messages.
        layouts: Alternative locations of the files or directories, relative to the data directory;
            the first complete layout is used.
        remotes: Files to download if no layout is complete: the files themselves, or archives that
            contain them.
        into: Directory into which archives are unpacked, relative to the data directory; None if
            the downloads are read directly.
        sums: Published checksums of unpacked files, by file name.
        remedy: Advice on obtaining files that cannot be downloaded, for messages.
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
        downloads = {Path(remote.path).name: remote.hash for remote in self.remotes}
        return downloads | dict(self.sums)

    def existing(self, data_dir: Path) -> list[Path] | None:
        """Return the files of the first complete layout, or None if there is none."""
        for layout in self.layouts:
            paths = [data_dir / name for name in layout]
            if all(path.exists() for path in paths):
                return paths
        return None

    def missing(self, data_dir: Path) -> str | None:
        """Return a missing file: a download if there is one, or else a file of the first layout.

        The path is relative to the data directory. The result is None if a layout is complete, or
        if all downloads are there and need only be unpacked.
        """
        if self.existing(data_dir) is not None:
            return None
        wanted = [remote.path for remote in self.remotes] or self.layouts[0]
        return next((name for name in wanted if not (data_dir / name).exists()), None)

    def find(self, data_dir: Path, *, download: bool) -> list[Path]:
        """Return the files of the first complete layout; download and unpack them if necessary.

        Args:
            data_dir: Directory of all data sets.
            download: Whether downloads are allowed.

        Raises:
            RequestError: If files are missing and cannot be downloaded, or an archive is corrupt or
                does not contain them.
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
                fault = _difference(archive, self.checksums[archive.name])
                if fault:
                    raise RequestError(
                        f"{self.name}: {archive} is not the official file: {fault}; remove it to "
                        "download it again"
                    )
                unpack(archive, data_dir / self.into)
        paths = self.existing(data_dir)
        if paths is None:
            wanted = ", ".join(self.layouts[-1])
            raise RequestError(
                f"{self.name}: {downloads[0]} does not contain {wanted}; remove it to download it "
                "again"
            )
        return paths

    def _download(self, data_dir: Path, allowed: bool) -> None:
        """Download the missing remote files.

        The error message lists the target path and the addresses of each file.
        """
        missing = [remote for remote in self.remotes if not (data_dir / remote.path).is_file()]
        if not missing:
            return
        if offline() or not allowed:
            remedy = "FEDBENCH_OFFLINE; unset it"
            if not offline():
                remedy = "data.download=false; set it to true"
            raise self._failure(f"downloads are disabled by {remedy}", missing, data_dir)
        check_data_dir(self.name, data_dir)
        for k, remote in enumerate(missing):
            path = data_dir / remote.path
            failures: list[str] = []
            with reading(f"{self.name}: {path}", "cannot be written"):
                path.parent.mkdir(parents=True, exist_ok=True)
                # otherwise, two runs of a sweep would download the same gigabyte twice
                with waiting_lock(data_dir / ".downloads.lock", f"downloading into {data_dir}"):
                    if not path.is_file():
                        failures = retrieve(remote, path)
            if not path.is_file():
                raise self._failure(
                    f"{path.name} could not be downloaded ({'; '.join(failures)}); try again "
                    "later, name a mirror in data.mirrors",
                    missing[k:],
                    data_dir,
                )

    def _failure(self, problem: str, remotes: Sequence[Remote], data_dir: Path) -> MissingFiles:
        wanted = []
        for remote in remotes:
            sums = f" ({remote.hash})" if remote.hash else ""
            wanted.append(f"{data_dir / remote.path} from {' or '.join(remote.urls)}{sums}")
        return MissingFiles(
            f"{self.name}: files are missing: {problem}, or download yourself: {'; '.join(wanted)}"
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


def published(name: str, **fields: Any) -> Files:
    """Return the published files of a data set.

    Args:
        name: Name of the data set in ``published.yaml``.
        fields: Fields of the files that extend or replace those in ``published.yaml``.
    """
    facts = read_yaml(Path(__file__).with_name("published.yaml"))[name]
    remotes = [Remote(**remote) for remote in facts["remotes"]]
    return Files(**{**facts, "remotes": remotes, **fields})


def check_data_dir(name: str, data_dir: Path) -> None:
    """Raise a RequestError if a directory for downloads is missing, which is probably a typo.

    Args:
        name: The download, for the message.
        data_dir: Directory of all data sets. The default is created when it is needed.
    """
    if not data_dir.is_dir() and data_dir != _DEFAULT:
        raise RequestError(
            f"{name}: data_dir={data_dir} is not a directory; correct it, or create it for the "
            "download"
        )


def offline() -> bool:
    """Return whether the environment variable FEDBENCH_OFFLINE disables downloads."""
    value = os.environ.get("FEDBENCH_OFFLINE", "")
    return value.lower() not in ("", "0", "false", "no")


@contextmanager
def mirrors(bases: tuple[str, ...]) -> Iterator[None]:
    """Try these servers first within the block; they have the layout of the data directory."""
    token = _mirrors.set(bases)
    try:
        yield
    finally:
        _mirrors.reset(token)


def checksum(path: Path, kind: str = "md5") -> str:
    """Return the "md5", "sha1" or "sha256" checksum of a file in hexadecimal."""
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def verify(
    groups: Sequence[Files],
    data_dir: Path,
) -> list[tuple[Path, str, bool]]:
    """Compare files with their published checksums.

    The compared files are those of the first complete layout, or else the downloads.

    Returns:
        Path of each file, the result in words, and whether the file differs from the official one.
    """
    findings = []
    for files in groups:
        downloads = [data_dir / remote.path for remote in files.remotes]
        paths = files.existing(data_dir) or downloads
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
    """Describe a checksum mismatch; return None if the checksum matches or none was published."""
    if expected is None:
        return None
    kind, _, value = expected.partition(":")
    got = checksum(path, kind)
    if got == value:
        return None
    return f"{kind} {got} instead of {value}"


def retrieve(remote: Remote, path: Path) -> list[str]:
    """Download a file from the first working address; return the failures of earlier addresses.

    A file that exists is kept if it has the checksum, or if there is none. Incomplete downloads
    have another name. Without a checksum, a redirect from https to http is a failure.
    """
    # imported only for missing files, because the imports take a tenth of a second
    import pooch
    from requests import ConnectionError, RequestException

    pooch.get_logger().setLevel("WARNING")
    downloader = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        timeout=_TIMEOUT,
        headers={
            # keep the file as stored: a .gz sent as a content encoding must not be decoded
            "Accept-Encoding": "identity",
            "User-Agent": f"fedbench/{__version__}",
        },
        hooks={} if remote.hash else {"response": _refuse_unencrypted},
    )

    def limited(url: str, target: str, _: object) -> None:
        most_bytes = _MOST_BYTES if remote.most_bytes is None else remote.most_bytes
        with _LimitedFile(target, most_bytes) as file:
            downloader(url, file, None)

    failures: list[str] = []
    for url in remote.addresses():
        try:
            pooch.retrieve(
                url,
                remote.hash,
                fname=path.name,
                path=path.parent,
                downloader=limited,
            )
            break
        except (RequestException, ValueError) as error:
            # for an unreachable server, the message consists of nested object representations
            reason = "no connection" if type(error) is ConnectionError else reason_of(error)
        failures.append(f"{url}: {reason}")
        print(f"fedbench: {path.name}: {failures[-1]}", file=sys.stderr)
    return failures


def _refuse_unencrypted(response: Any, **_: Any) -> None:
    """Raise a ValueError for a redirect from https to http, where anybody can change a file."""
    target = response.headers.get("Location", "")
    from_https = response.url.lower().startswith("https:")
    if response.is_redirect and from_https and target.lower().startswith("http:"):
        raise ValueError(f"redirected to {target}, which is not encrypted")


class _LimitedFile(io.FileIO):
    """A file of limited size, so that no server can fill the disk."""

    def __init__(self, path: str, most_bytes: int) -> None:
        super().__init__(path, "w")
        self._most_bytes = most_bytes

    def write(self, content: Any) -> int:
        if self.tell() + len(content) > self._most_bytes:
            raise ValueError(f"stopped, as the server sends more than {self._most_bytes} bytes")
        return super().write(content)


def unpack(archive: Path, target: Path) -> None:
    """Unpack a zip or tar archive into the directory ``target``.

    The contents are unpacked into a temporary directory in ``target`` and then renamed into place.
    Files of the same name are replaced; other files are kept.

    Raises:
        RequestError: If the archive is corrupt or has another format, a member points outside the
            directory, or ``target`` is not writable.
    """
    fault = f"cannot be unpacked into {target}"
    with reading(archive, fault, "if it is corrupt, remove it to download it again"):
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=target) as folder:
            # a subdirectory has the usual permissions, unlike the temporary directory
            content = Path(folder) / "content"
            if archive.suffix == ".zip":
                _unzip(archive, content)
            else:
                shutil.unpack_archive(archive, content, filter="data")
            shutil.copytree(content, target, dirs_exist_ok=True, copy_function=os.replace)


def _unzip(archive: Path, target: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        for name in packed.namelist():
            if name.startswith("/") or ".." in name.split("/"):
                raise ValueError(f"{name} leads outside its directory")
        packed.extractall(target)

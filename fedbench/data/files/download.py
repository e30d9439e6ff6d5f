"""Official files, downloaded once: resumed, verified, and put in place by a rename.

requests and urllib3's ``Retry`` make and repeat the requests. Neither continues a body that breaks off, appends a range
to a file or compares checksums: that is what remains here.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import requests
from filelock import FileLock, Timeout
from requests.adapters import HTTPAdapter
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Column
from urllib3.exceptions import HTTPError, InvalidHeader, ProtocolError
from urllib3.util import Retry

from fedbench import __version__
from fedbench.core.errors import RequestError
from fedbench.data.files.archives import unpack

__all__ = ["Remote", "checksum", "ensure", "unpack", "unpacked"]

_CHUNK = 1 << 16  # bytes; a connection that breaks loses fewer than these
_TIMEOUT = (10.0, 60.0)  # seconds to connect, seconds without a byte
_RETRIES = 5  # of one address in a row without progress
_PROGRESS = 1 << 20  # bytes that count as progress
_BUSY = frozenset({408, 429, *range(500, 600)})  # status codes after which the same request may succeed
_LONGEST_WAIT = 300.0  # seconds; an address whose server asks for more is given up


@dataclass(frozen=True)
class Remote:
    """A file to download.

    Attributes:
        path: Where the file belongs, below the data directory.
        urls: Addresses: the official one first, then mirrors. Empty for a file that is not public.
        md5: Checksum, if known; of several checksums all must match.
        sha1: Checksum, if known.
        sha256: Checksum, if known.
        size: Size in bytes, if known.
    """

    path: str
    urls: tuple[str, ...]
    md5: str | None = None
    sha256: str | None = None
    size: int | None = None
    sha1: str | None = None

    @property
    def sums(self) -> tuple[tuple[str, str], ...]:
        """Kind and value of every known checksum."""
        kinds = (("md5", self.md5), ("sha1", self.sha1), ("sha256", self.sha256))
        return tuple((kind, value.lower()) for kind, value in kinds if value)

    def wanted(self, data_dir: Path) -> str:
        """Return a description of the file for messages: its place, its addresses and its checksums."""
        sums = [f"{kind} {value}" for kind, value in self.sums]
        facts = ", ".join([*sums, *([f"{self.size} bytes"] if self.size is not None else [])])
        source = f"from {' or '.join(self.urls)}" if self.urls else "which has no public address"
        return f"{data_dir / self.path} {source}" + (f" ({facts})" if facts else "")

    def fault(self, path: Path) -> str | None:
        """Return how the file at ``path`` differs from the known size and checksums, None if it does not."""
        if self.size is not None and path.stat().st_size != self.size:
            return f"{path.stat().st_size} bytes instead of {self.size}"
        for kind, value in self.sums:
            if (got := checksum(path, kind)) != value:
                return f"{kind} {got} instead of {value}"
        return None


def checksum(path: Path, kind: str = "md5") -> str:
    """Return the checksum of a file, in hexadecimal digits; ``kind`` is "md5", "sha1" or "sha256"."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()


def ensure(remotes: Sequence[Remote], data_dir: Path, *, download: bool, what: str) -> list[Path]:
    """Download the missing files and return the paths of all.

    A file that exists is used as it is; a downloaded one is verified first. Parallel processes that need the same file
    download it once. An interrupted download (``<name>.part``) is resumed by the next call.

    Args:
        remotes: The files.
        data_dir: Directory of all data sets.
        download: Whether downloads are allowed; the environment variable FEDBENCH_OFFLINE=1 disables them too.
        what: Name of the data set, for messages.

    Raises:
        RequestError: If files are missing and cannot be downloaded; the message lists the place, the addresses and the
            checksums of each.
    """
    if missing := _missing(remotes, data_dir):
        offline = os.environ.get("FEDBENCH_OFFLINE", "").lower() not in ("", "0", "false", "no")
        if offline or not download:
            cause, remedy = ("FEDBENCH_OFFLINE", "unset it") if offline else ("data.download=false", "set it to true")
            raise MissingFiles(what, f"downloads are disabled by {cause}; {remedy}", missing, data_dir)
    for remote in missing:
        path = data_dir / remote.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path):
                failures = [] if path.is_file() else _fetch(remote, path)
        except OSError as error:
            raise RequestError(
                f"{what}: {path} cannot be written ({error.strerror or error}); free some space or change data_dir"
            ) from error
        if failures or not path.is_file():
            tried = "; ".join(failures) or "it has no public address"
            problem = f"{path.name} could not be downloaded ({tried}); try again later"
            raise MissingFiles(what, problem, _missing(remotes, data_dir), data_dir)
    return [data_dir / remote.path for remote in remotes]


def unpacked(
    remotes: Sequence[Remote], data_dir: Path, target: Path, *, download: bool, what: str, most_bytes: int
) -> list[Path]:
    """Download the missing official archives, unpack all into ``target``, and return the paths of the archives.

    Raises:
        RequestError: If an archive is missing and cannot be downloaded, is not the official file, or cannot be
            unpacked.
    """
    archives = ensure(remotes, data_dir, download=download, what=what)
    for remote, archive in zip(remotes, archives, strict=True):
        if fault := remote.fault(archive):
            raise RequestError(
                f"{what}: {archive} is not the official file: {fault}; remove it to download it again, or unpack it "
                f"yourself into {target}"
            )
        unpack(archive, target, most_bytes=most_bytes)
    return archives


def _missing(remotes: Sequence[Remote], data_dir: Path) -> list[Remote]:
    return [remote for remote in remotes if not (data_dir / remote.path).is_file()]


class MissingFiles(RequestError):
    """Official files are missing.

    Attributes:
        wanted: Description of the files and of where they belong, for messages.
    """

    def __init__(self, what: str, problem: str, missing: Sequence[Remote], data_dir: Path) -> None:
        self.wanted = "; ".join(remote.wanted(data_dir) for remote in missing)
        count = "1 file" if len(missing) == 1 else f"{len(missing)} files"
        super().__init__(f"{what}: {count} missing: {problem}, or download yourself: {self.wanted}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes from downloading the same file at the same time."""
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"fedbench: waiting for another process that is downloading {path}", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        if path.is_file():  # a process that waits holds on to this very lock, and finds the file
            Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def _fetch(remote: Remote, path: Path) -> list[str]:
    """Put the verified file in place; return why every address failed, nothing once one succeeded."""
    part, failures = path.with_name(path.name + ".part"), []
    with (
        _session() as session,
        Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, max_width=60)),
            BarColumn(bar_width=20),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        ) as bar,
    ):
        show = partial(bar.update, bar.add_task(path.name, total=remote.size))
        for url in remote.urls:
            if not remote.sums:
                part.unlink(missing_ok=True)  # nothing would show that two halves are of different files
            try:
                _complete(session, remote, url, part, show)
            except (requests.RequestException, HTTPError) as error:
                failures.append(f"{url}: {_reason(error)}")
            else:
                part.replace(path)
                return []
    return failures


class _PatientRetry(Retry):
    """Retries as urllib3 makes them, but an address whose server asks for too long a wait fails at once."""

    def parse_retry_after(self, retry_after: str) -> float:
        seconds = super().parse_retry_after(retry_after)
        if seconds > _LONGEST_WAIT:
            raise InvalidHeader(f"the server asks to wait for {seconds:.0f} s")
        return seconds


def _retries() -> Retry:
    return _PatientRetry(total=_RETRIES, backoff_factor=1, status_forcelist=_BUSY)


def _session() -> requests.Session:
    session = requests.Session()
    session.headers.update({"Accept-Encoding": "identity", "User-Agent": f"fedbench/{__version__}"})
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=_retries()))
    return session


def _complete(session: requests.Session, remote: Remote, url: str, part: Path, show: Callable[..., None]) -> None:
    """Complete ``part`` from one address and verify it; a wrong file is removed, an incomplete one stays.

    Raises:
        requests.RequestException: If the address does not offer the file.
        HTTPError: urllib3's, if the connection broke too often.
    """
    retries, reached = _retries(), _size(part)
    while True:
        start = _size(part)
        try:
            if remote.size is None or not 0 < remote.size <= start:
                _receive(session, remote, url, part, show)
            fault = remote.fault(part)
            if fault is None:
                return
            part.unlink()
            if not start:
                raise requests.RequestException(f"gave {fault}")
            raise ProtocolError(f"gave {fault}")  # the bytes that were there before may be the wrong ones
        except HTTPError as error:
            if _size(part) >= reached + _PROGRESS:
                retries, reached = _retries(), _size(part)
            retries = retries.increment("GET", url, error=error)  # raises when there were too many
            retries.sleep()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _receive(session: requests.Session, remote: Remote, url: str, part: Path, show: Callable[..., None]) -> None:
    """Append the missing bytes to ``part``, or start over if the server cannot resume."""
    start, size = _size(part), remote.size
    headers = {"Range": f"bytes={start}-"} if start else {}
    with session.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
        code, content_range = response.status_code, response.headers.get("Content-Range", "")
        if code == 200:
            start = 0  # the whole file, requested or not
        elif code == 416 or (code == 206 and not content_range.startswith(f"bytes {start}-")):
            part.unlink(missing_ok=True)
            raise ProtocolError(f"does not send the bytes from {start} on ({code})")
        elif code != 206:
            raise requests.RequestException(f"{code} {response.reason}")
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdecimal() else size
        if size is not None and total != size:
            raise requests.RequestException(f"offers {total} bytes instead of {size}")
        show(completed=start, total=total)
        with part.open("ab" if start else "wb") as file:
            # as it is on the server: a .gz sent as an encoding of something else must not be decoded
            for chunk in response.raw.stream(_CHUNK, decode_content=False):
                file.write(chunk)
                show(completed=file.tell())
                if size is not None and file.tell() > size:
                    break  # the wrong file, of unknown length
            file.flush()
            os.fsync(file.fileno())
    if size is not None and _size(part) < size:
        raise ProtocolError(f"hung up after {_size(part)} of {size} bytes")


def _reason(error: Exception) -> str:
    """Return a failure in one line: the cause of the last of several tries, or the error itself."""
    while error.args and isinstance(error.args[0], Exception):  # requests wraps what urllib3 raises
        error = error.args[0]
    cause = getattr(error, "reason", None) or error
    return str(cause).splitlines()[0][:200]

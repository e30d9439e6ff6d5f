"""Official files, fetched once: from the official address or a mirror, resumed, verified, put in place by a rename."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO

import requests
import urllib3
from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Column

from fedbench import __version__
from fedbench.core.errors import RequestError
from fedbench.data.files.archives import unpack

__all__ = ["Remote", "checksum", "ensure", "unpack", "unpacked"]

_CHUNK = 1 << 16  # bytes; a connection that breaks loses less than that
_TIMEOUT = (10.0, 60.0)  # seconds to connect, seconds without a byte
_TRIES = 6  # of one address in a row without progress
_PROGRESS = 1 << 20  # bytes that count as such
_LONGEST_WAIT = 300.0  # seconds; a server that asks for more is given up
_RETRIED = (requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError)


@dataclass(frozen=True)
class Remote:
    """One file to fetch.

    Attributes:
        path: where it belongs, below the data directory.
        urls: where it is: the official address first, then mirrors. None for what is not public.
        md5: its checksum, if known; of several checksums all must fit.
        sha1: likewise.
        sha256: likewise.
        size: in bytes, if known.
    """

    path: str
    urls: tuple[str, ...]
    md5: str | None = None
    sha256: str | None = None
    size: int | None = None
    sha1: str | None = None

    @property
    def sums(self) -> tuple[tuple[str, str], ...]:
        """The kind and the value of every checksum that is known."""
        kinds = (("md5", self.md5), ("sha1", self.sha1), ("sha256", self.sha256))
        return tuple((kind, value.lower()) for kind, value in kinds if value)

    def wanted(self, data_dir: Path) -> str:
        """Return for people what belongs where."""
        sums = [f"{kind} {value}" for kind, value in self.sums]
        facts = ", ".join([*sums, *([f"{self.size} bytes"] if self.size is not None else [])])
        source = f"from {' or '.join(self.urls)}" if self.urls else "which has no public address"
        return f"{data_dir / self.path} {source}" + (f" ({facts})" if facts else "")

    def fault(self, path: Path) -> str | None:
        """Return what is wrong with the file at ``path``, None if it is this one as far as is known."""
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


def ensure(
    remotes: Sequence[Remote],
    data_dir: Path,
    *,
    download: bool,
    what: str,
    wait: Callable[[float], None] = time.sleep,
) -> list[Path]:
    """Return where the files are, having fetched those that are missing.

    A file that is there already is taken as it is; one that is fetched is verified first. Parallel processes that want
    one file fetch it once. What an interruption leaves (``<name>.part``) is completed by the next call.

    Args:
        remotes: the files.
        data_dir: they belong below it.
        download: whether the network may be used; the environment variable FEDBENCH_OFFLINE=1 forbids it too.
        what: the data set, for messages.
        wait: called with seconds between two tries.

    Raises:
        RequestError: if files are missing and cannot be fetched: each with its place, addresses and checksums.
    """
    if missing := _missing(remotes, data_dir):
        offline = os.environ.get("FEDBENCH_OFFLINE", "").lower() not in ("", "0", "false", "no")
        if offline or not download:
            ban, remedy = ("FEDBENCH_OFFLINE", "unset it") if offline else ("data.download=false", "set it to true")
            raise _error(what, f"{ban} forbids to fetch; {remedy}", missing, data_dir)
    for remote in missing:
        path = data_dir / remote.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _alone(path):
                failures = [] if path.is_file() else _fetch(remote, path, wait)
        except OSError as error:
            raise RequestError(f"{what}: {path} cannot be written: {error}; free space or change data_dir") from error
        if failures or not path.is_file():
            tried = "; ".join(failures) or "it has no public address"
            problem = f"{path.name} could not be fetched ({tried}); try again later"
            raise _error(what, problem, _missing(remotes, data_dir), data_dir)
    return [data_dir / remote.path for remote in remotes]


def unpacked(
    remotes: Sequence[Remote], data_dir: Path, target: Path, *, download: bool, what: str, most_bytes: int
) -> list[Path]:
    """Unpack official archives into ``target``, having fetched those that are missing, and return where they are.

    Raises:
        RequestError: if one is missing and cannot be fetched, is not the official file, or cannot be unpacked.
    """
    archives = ensure(remotes, data_dir, download=download, what=what)
    for remote, archive in zip(remotes, archives, strict=True):
        if fault := remote.fault(archive):
            raise RequestError(
                f"{what}: {archive} is not the official file, it has {fault}; remove it to have it fetched, or unpack "
                f"it yourself into {target}"
            )
        unpack(archive, target, most_bytes=most_bytes)
    return archives


def _missing(remotes: Sequence[Remote], data_dir: Path) -> list[Remote]:
    return [remote for remote in remotes if not (data_dir / remote.path).is_file()]


class MissingFiles(RequestError):
    """Official files are not there.

    Attributes:
        wanted: what they are and where they belong, for people.
    """

    def __init__(self, message: str, wanted: str) -> None:
        super().__init__(message)
        self.wanted = wanted


def _error(what: str, problem: str, missing: Sequence[Remote], data_dir: Path) -> MissingFiles:
    wanted = "; ".join(remote.wanted(data_dir) for remote in missing)
    return MissingFiles(
        f"{what}: missing {len(missing)} of its files: {problem}, or put in place yourself: {wanted}", wanted
    )


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other processes from fetching the same file meanwhile."""
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"fedbench: waiting for another process that is fetching {path}", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        if path.is_file():  # whoever waits holds on to this very lock, and will find the file
            Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def _fetch(remote: Remote, path: Path, wait: Callable[[float], None]) -> list[str]:
    """Put the verified file in place; return why every address failed, nothing once one did not."""
    part, failures = path.with_name(path.name + ".part"), []
    with Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, max_width=60)),
        BarColumn(bar_width=20),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as bar:
        task = bar.add_task(path.name, total=remote.size)
        for url in remote.urls:
            if not remote.sums:
                part.unlink(missing_ok=True)  # nothing would tell that two halves are not of one file
            try:
                _Transfer(remote, url, part, wait, partial(bar.update, task)).run()
            except _Failed as failure:
                failures.append(f"{url}: {failure}")
            else:
                part.replace(path)
                return []
    return failures


class _Failed(Exception):
    """An address does not give the file."""


class _Again(Exception):
    """This try failed, the next may not.

    Attributes:
        seconds: that the server wants to be left alone.
    """

    def __init__(self, reason: str, seconds: float | None = None) -> None:
        super().__init__(reason)
        self.seconds = seconds


@dataclass
class _Transfer:
    """Fetches one file from one address.

    Attributes:
        remote: the file.
        url: the address.
        part: holds the bytes that are there so far.
        wait: called with seconds between two tries.
        show: called with ``description``, ``completed`` and ``total``, the last two in bytes.
    """

    remote: Remote
    url: str
    part: Path
    wait: Callable[[float], None]
    show: Callable[..., None]

    def run(self) -> None:
        """Complete and verify the file.

        Raises:
            _Failed: if the address is of no use; a wrong file is removed, an incomplete one stays.
        """
        reached, tries = self._there(), 0
        while True:
            try:
                resumed = self._there() > 0
                if not 0 < (self.remote.size or 0) <= self._there():
                    self._request()
                return self._verify(resumed)
            except _Again as again:
                if self._there() >= reached + _PROGRESS:
                    reached, tries = self._there(), 0
                tries += 1
                if tries >= _TRIES:
                    raise _Failed(f"{again}, {tries} times") from again
                seconds = 2.0 ** (tries - 1) if again.seconds is None else again.seconds
                self.show(description=f"again in {seconds:.0f} s: {again}", refresh=True)
                self.wait(seconds)

    def _there(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _verify(self, resumed: bool) -> None:
        fault = self.remote.fault(self.part)
        if fault is None:
            return
        self.part.unlink()
        if resumed:  # the old bytes may be the wrong ones
            raise _Again(f"gave {fault}")
        raise _Failed(f"gave {fault}")

    def _request(self) -> None:
        """Append what is missing, or start over if the server cannot do that."""
        start = self._there()
        headers = {"Accept-Encoding": "identity", "User-Agent": f"fedbench/{__version__}"}
        if start:
            headers["Range"] = f"bytes={start}-"
        try:
            with requests.get(self.url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
                if _continues(response, start):
                    self._receive(response, start)
                elif response.status_code == 200:  # the whole file, asked for or not
                    self._receive(response, 0)
                else:
                    self.part.unlink(missing_ok=True)
                    raise _Again(f"does not give the bytes from {start} on ({response.status_code})", seconds=0.0)
        except _RETRIED as error:
            raise _Again(_brief(error)) from error
        except requests.RequestException as error:
            raise _Failed(_brief(error)) from error

    def _receive(self, response: requests.Response, start: int) -> None:
        size, length = self.remote.size, response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdecimal() else size
        if size is not None and total != size:
            raise _Failed(f"offers {total} bytes instead of {size}")
        self.show(description=self.part.stem, completed=start, total=total)
        with self.part.open("ab" if start else "wb") as file:
            done = self._copy(response, file, start)
            file.flush()
            os.fsync(file.fileno())
        if total is not None and done < total:
            raise _Again(f"hung up after {done} of {total} bytes")

    def _copy(self, response: requests.Response, file: BinaryIO, done: int) -> int:
        # as it is on the server: a .gz that is sent as an encoding of something else must not be decoded
        for chunk in response.raw.stream(_CHUNK, decode_content=False):
            done += file.write(chunk)
            self.show(completed=done)
            if self.remote.size is not None and done > self.remote.size:
                break  # the wrong file, and nobody knows how large
        return done


def _continues(response: requests.Response, start: int) -> bool:
    """Return whether the body begins at byte ``start``; False if the whole file comes, or nothing of use.

    Raises:
        _Again: if the server cannot answer now.
        _Failed: if it has no such file.
    """
    code, status = response.status_code, f"{response.status_code} {response.reason}"
    if code in (200, 206, 416):
        return code == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
    if code not in (408, 429) and code < 500:
        raise _Failed(status)
    seconds = _retry_after(response.headers.get("Retry-After", ""))
    if seconds is not None and seconds > _LONGEST_WAIT:
        raise _Failed(f"{status}, to be tried again in {seconds:.0f} s")
    raise _Again(status, seconds)


def _retry_after(value: str) -> float | None:
    """Return the seconds in a Retry-After header: a number or a date; None if it is neither."""
    if value.isdecimal():
        return float(value)
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, ((until if until.tzinfo else until.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds())


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]

"""One file over HTTP, into place: address by address, broken connections resumed, the checksums compared.

requests and urllib3's ``Retry`` make and repeat the requests. Neither continues a body that breaks off, appends a range
to a file, leaves a server that is too slow or compares checksums: that is what remains here. Only a missing file needs
this module, and requests and rich with it, which take a tenth of a second to import.
"""

from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError, InvalidHeader, ProtocolError
from urllib3.util import Retry

from fedbench import __version__
from fedbench.data.files import hosts
from fedbench.data.files.mirrors import addresses, shown
from fedbench.data.files.progress import Meter, metering
from fedbench.data.files.remote import Remote

_CHUNK = 1 << 16  # bytes; most that is read at once
TIMEOUT = (5.0, 10.0)  # seconds to connect, seconds without a byte
_RETRIES = 3  # of the only address in a row without progress; of one of several a single retry, at once
_PROGRESS = 1 << 20  # bytes that count as progress
_SLOWEST = 200_000.0  # bytes per second; a slower server is left as long as there is another one
_WINDOW = 10.0  # seconds over which speed is measured
_BUSY = frozenset({408, 429, *range(500, 600)})  # status codes after which the same request may succeed
_LONGEST_WAIT = 300.0  # seconds; the only address is given up if its server asks for more
_LONGEST_OF_SEVERAL = 5.0  # seconds, likewise if there are other addresses


def fetch(remote: Remote, path: Path) -> list[str]:
    """Put the verified file in place; return why every address failed, nothing once one succeeded.

    A server that fails (no answer, silence, errors of the server, a wait that is too long) is not asked again in this
    process. One that is too slow is left for the next address, which resumes from the same byte if it can; if no other
    address succeeds, the fastest slow one is resumed and finished at its speed. Likewise one whose connections broke
    while it was sending is left for the next address, and gets a last attempt if no other address succeeds.
    """
    part = path.with_name(path.name + ".part")
    failures: dict[str, str] = {}  # address -> why
    slow: dict[str, float] = {}  # address -> bytes per second
    patiently: set[str] = set()  # addresses that were tried as the only one
    urls = hosts.slow_last(addresses(remote))
    with metering(path.name, remote.size) as show:
        for position, url in enumerate(urls):
            if (earlier := hosts.failure(url)) is not None:
                failures[url] = f"not asked again, it failed before: {earlier}"
                continue
            others = bool(slow) or any(hosts.failure(u) is None for u in urls[position + 1 :])
            if not others:
                patiently.add(url)
            try:
                fault = _attempt(remote, url, part, show, alone=not others)
            except _TooSlow as pace:
                slow[url] = pace.speed
                fault = f"{pace}; trying the other addresses first"
            else:
                if fault is None:
                    part.replace(path)
                    return []
                failures[url] = fault
            if others:
                print(f"fedbench: {path.name}: {hosts.host(url)}: {fault}", file=sys.stderr, flush=True)
        broken = (u for u in urls if hosts.broke(u) and u not in patiently)
        for url in [*sorted(slow, key=lambda u: -slow[u]), *broken]:
            fault = _attempt(remote, url, part, show, alone=True)
            if fault is None:
                part.replace(path)
                return []
            failures[url] = fault
    return [f"{shown(url)}: {fault}" for url, fault in failures.items()]


def _attempt(remote: Remote, url: str, part: Path, show: Meter, *, alone: bool) -> str | None:
    """Try one address; return why it failed, None if ``part`` is now the verified file.

    Raises:
        _TooSlow: If it is slow and not ``alone``.
    """
    if not remote.sums:
        part.unlink(missing_ok=True)  # nothing would show that two halves are of different files
    with _session(alone) as session:
        transfer = _Transfer(remote, url, part, show, session, alone)
        try:
            transfer.complete()
        except _TooSlow as pace:
            hosts.note_speed(url, pace.speed)
            raise
        except (requests.RequestException, HTTPError) as error:
            reason = reason_of(error)
            if not isinstance(error, _OneFile | requests.exceptions.InvalidSchema | requests.exceptions.InvalidURL):
                hosts.give_up(url, reason, broke=transfer.sent)
            return reason
    hosts.take_back(url)
    return None


class _OneFile(requests.RequestException):
    """A failure that says nothing about the server's other files."""


class _TooSlow(Exception):
    """A server sends too few bytes per second."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        super().__init__(f"only {speed / 1000:.0f} kB/s")


class _PatientRetry(Retry):
    """Retries as urllib3 makes them, but an address whose server asks for too long a wait fails at once."""

    longest = _LONGEST_WAIT

    def parse_retry_after(self, retry_after: str) -> float:
        seconds = super().parse_retry_after(retry_after)
        if seconds > self.longest:
            raise InvalidHeader(f"the server asks to wait for {seconds:.0f} s")
        return seconds


class _OneOfSeveral(_PatientRetry):
    """The same where other addresses are left."""

    longest = _LONGEST_OF_SEVERAL


def _retries(alone: bool) -> Retry:
    kind, total = (_PatientRetry, _RETRIES) if alone else (_OneOfSeveral, 1)
    return kind(total=total, backoff_factor=1, status_forcelist=_BUSY)


def _session(alone: bool) -> requests.Session:
    session = requests.Session()
    session.headers.update({"Accept-Encoding": "identity", "User-Agent": f"fedbench/{__version__}"})
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=_retries(alone)))
    return session


@dataclass
class _Transfer:
    """One file from one address.

    Attributes:
        alone: Whether there is no other address: then it may be slow, and is asked more often.
        tag: The server's mark of the version that ``part`` holds bytes of, sent back so that it resumes no other.
        ranges: Whether to resume; not after wrong bytes, which a server that mistakes ranges would send again.
        sent: Whether the server has sent bytes of the file.
    """

    remote: Remote
    url: str
    part: Path
    show: Meter
    session: requests.Session
    alone: bool
    tag: str | None = field(default=None, init=False)
    ranges: bool = field(default=True, init=False)
    sent: bool = field(default=False, init=False)

    def complete(self) -> None:
        """Complete ``part`` and verify it; a wrong file is removed, an incomplete one stays.

        Raises:
            requests.RequestException: If the address does not offer the file.
            HTTPError: urllib3's, if the connection broke too often.
            _TooSlow: If the server is slow and not ``alone``.
        """
        retries, reached = _retries(self.alone), _size(self.part)
        while True:
            start = _size(self.part)
            try:
                if self.remote.size is None or not 0 < self.remote.size <= start:
                    start = self._receive(start)
                fault = self.remote.fault(self.part)
                if fault is None:
                    return
                self.part.unlink()
                if not start:
                    raise _OneFile(f"gave {fault}")
                self.ranges = False  # the bytes that were there before may be the wrong ones, or those of the range
                raise ProtocolError(f"gave {fault}")
            except HTTPError as error:
                if _size(self.part) >= reached + _PROGRESS:
                    retries, reached = _retries(self.alone), _size(self.part)
                retries = retries.increment("GET", self.url, error=error)  # raises when there were too many
                retries.sleep()

    def _receive(self, start: int) -> int:
        """Append the missing bytes to ``part``, or start over if the server cannot resume; return where it began."""
        if start and not self.ranges:
            self.part.unlink()
            start = 0
        headers = {"Range": f"bytes={start}-"} if start else {}
        if start and self.tag:
            headers["If-Range"] = self.tag
        size = self.remote.size
        with self.session.get(self.url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            start = self._beginning(response, start)
            length = response.headers.get("Content-Length", "")
            total = start + int(length) if length.isdecimal() else size
            if size is not None and total != size:
                raise _OneFile(f"offers {total} bytes instead of {size}")
            tag = response.headers.get("ETag", "")
            self.tag = tag if tag.startswith('"') else None  # a weak one marks more than one version
            self._write(response, start, total)
        if size is not None and _size(self.part) < size:
            raise ProtocolError(f"hung up after {_size(self.part)} of {size} bytes")
        return start

    def _beginning(self, response: requests.Response, start: int) -> int:
        """Return from which byte on a server answers that was asked for those from ``start`` on."""
        code, place = response.status_code, response.headers.get("Content-Range", "")
        if code == 200:
            return 0  # the whole file, requested or not
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", place)
        resumed = code == 206 and found is not None and int(found[1]) == start
        if code == 416 or (code == 206 and not resumed):
            self.part.unlink(missing_ok=True)
            raise ProtocolError(f"does not send the bytes from {start} on ({code})")
        if code != 206:
            raise _OneFile(f"{code} {response.reason}")
        if found is not None and found[2].isdecimal() and self.remote.size not in (None, int(found[2])):
            raise _OneFile(f"offers {found[2]} bytes instead of {self.remote.size}")
        return start

    def _write(self, response: requests.Response, start: int, total: int | None) -> None:
        size, pace = self.remote.size, _Pace(0.0 if self.alone else _SLOWEST)
        self.show(start, total)
        with self.part.open("ab" if start else "wb") as file:
            # as it is on the server: a .gz sent as an encoding of something else must not be decoded; and as it comes,
            # so that a server that sends a byte now and then does not hold up the measurement of its speed
            while chunk := response.raw.read1(_CHUNK, decode_content=False):
                self.sent = True
                file.write(chunk)
                self.show(file.tell(), total)
                if size is not None and file.tell() > size:
                    break  # the wrong file, of unknown length
                pace.add(len(chunk))
            file.flush()
            os.fsync(file.fileno())


class _Pace:
    """The speed of a download over windows of several seconds."""

    def __init__(self, slowest: float) -> None:
        self.slowest, self.since, self.bytes = slowest, time.monotonic(), 0

    def add(self, count: int) -> None:
        """Count bytes that came in.

        Raises:
            _TooSlow: If the window that ends now was slower than allowed.
        """
        self.bytes += count
        now = time.monotonic()
        if (seconds := now - self.since) < _WINDOW:
            return
        if self.bytes < self.slowest * seconds:
            raise _TooSlow(self.bytes / seconds)
        self.since, self.bytes = now, 0


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def reason_of(error: Exception) -> str:
    """Return a failure in one line: the cause of the last of several tries, or the error itself."""
    while error.args and isinstance(error.args[0], Exception):  # requests wraps what urllib3 raises
        error = error.args[0]
    cause = getattr(error, "reason", None) or error
    return re.sub(r"^HTTPS?Connection(?:Pool)?\(.*?\): ", "", str(cause).splitlines()[0])[:200]

"""One file over HTTP, into place: broken connections are resumed, and the checksums compared.

requests and urllib3's ``Retry`` make and repeat the requests. Neither continues a body that breaks off, appends a range
to a file or compares checksums: that is what remains here. Only a missing file needs this module, and requests and rich
with it, which take a tenth of a second to import.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import requests
from requests.adapters import HTTPAdapter
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Column
from urllib3.exceptions import HTTPError, InvalidHeader, ProtocolError
from urllib3.util import Retry

from fedbench import __version__
from fedbench.data.files.remote import Remote

_CHUNK = 1 << 16  # bytes; a connection that breaks loses fewer than these
_TIMEOUT = (10.0, 60.0)  # seconds to connect, seconds without a byte
_RETRIES = 5  # of one address in a row without progress
_PROGRESS = 1 << 20  # bytes that count as progress
_BUSY = frozenset({408, 429, *range(500, 600)})  # status codes after which the same request may succeed
_LONGEST_WAIT = 300.0  # seconds; an address whose server asks for more is given up


def fetch(remote: Remote, path: Path) -> list[str]:
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

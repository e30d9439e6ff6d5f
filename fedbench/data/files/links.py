"""Whether published addresses still work: each is tried with a HEAD request, or by its first byte."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import requests
from urllib3.exceptions import HTTPError

from fedbench import __version__
from fedbench.data.files.mirrors import addresses, shown
from fedbench.data.files.remote import Remote
from fedbench.data.files.transfer import TIMEOUT, reason_of

_AT_ONCE = 8  # requests
_REFUSED = frozenset({400, 401, 403, 404, 405, 501})  # answers to HEAD of servers that may know GET only


class Link(NamedTuple):
    """What an address answered.

    Attributes:
        path: Place of the file below the data directory.
        url: The address.
        status: The answer in words.
        size: Size of the file in bytes, if the server says it.
        seconds: Time until the answer.
        works: Whether it offers the file, as far as can be seen without downloading it.
    """

    path: str
    url: str
    status: str
    size: int | None
    seconds: float
    works: bool


def check(remotes: Iterable[Remote]) -> list[Link]:
    """Try every address of the published files, mirrors of ``addresses`` included, and return the answers in order.

    A size other than the known one and a page of HTML are no file. Checksums are compared by a download only.
    """
    every = {(remote.path, url): remote for remote in remotes for url in addresses(remote)}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda entry: _tried(entry[1], entry[0][1]), every.items()))


def _tried(remote: Remote, url: str) -> Link:
    start = time.monotonic()
    try:
        status, size, works = _answer(remote, url)
    except (requests.RequestException, HTTPError) as error:
        status, size, works = reason_of(error), None, False
    return Link(remote.path, shown(url), status, size, time.monotonic() - start, works)


def _answer(remote: Remote, url: str) -> tuple[str, int | None, bool]:
    headers = {"Accept-Encoding": "identity", "User-Agent": f"fedbench/{__version__}"}
    response = requests.head(url, headers=headers, timeout=TIMEOUT, allow_redirects=True)
    if response.status_code in _REFUSED:
        with requests.get(url, headers={**headers, "Range": "bytes=0-0"}, timeout=TIMEOUT, stream=True) as response:
            response.raw.read(1, decode_content=False)
    size = _size(response)
    if response.status_code not in (200, 206):
        return f"{response.status_code} {response.reason}", None, False
    if remote.size is not None and size not in (None, remote.size):
        return f"another file: {size} bytes instead of {remote.size}", size, False
    if response.headers.get("Content-Type", "").startswith("text/html"):
        return "a web page, not the file", size, False
    return f"{response.status_code} {response.reason}", size, True


def _size(response: requests.Response) -> int | None:
    """Return the size of the whole file that a server names, in bytes."""
    total = response.headers.get("Content-Range", "").rpartition("/")[2]
    length = total if response.status_code == 206 else response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None

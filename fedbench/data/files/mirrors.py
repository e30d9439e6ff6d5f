"""The addresses of a published file: mirrors of the user's own first, then the published ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from urllib.parse import urlsplit, urlunsplit

from fedbench.core.mirrors import Mirror, mirrors_of
from fedbench.data.files.remote import Remote

VARIABLE = "FEDBENCH_MIRRORS"
_configured: ContextVar[tuple[Mirror, ...]] = ContextVar("_configured", default=())


@contextmanager
def using(mirrors: tuple[Mirror, ...]) -> Iterator[None]:
    """Ask these mirrors first for everything that is downloaded within the block."""
    token = _configured.set(mirrors)
    try:
        yield
    finally:
        _configured.reset(token)


def addresses(remote: Remote) -> tuple[str, ...]:
    """Return where a file may be downloaded from, in the order to try.

    Mirrors come first: those of ``using``, then those of the environment variable FEDBENCH_MIRRORS. They are asked only
    for files with a public address and a checksum, since nothing else would show that theirs is the published file.

    Raises:
        RequestError: If FEDBENCH_MIRRORS has an entry that is not an address.
    """
    mirrors = (*_configured.get(), *_of_environment()) if remote.urls and remote.sums else ()
    found = (mirror.address(remote.path) for mirror in mirrors)
    return tuple(dict.fromkeys([*(a for a in found if a is not None), *remote.urls]))


def _of_environment() -> tuple[Mirror, ...]:
    """Return the mirrors of FEDBENCH_MIRRORS: BASE or PATH=BASE, separated by commas or spaces."""
    found: list[Mirror] = []
    for entry in os.environ.get(VARIABLE, "").replace(",", " ").split():
        path, mark, base = entry.partition("=")
        at_path = mark and "://" not in path
        found += mirrors_of(VARIABLE, {path: base} if at_path else [entry])
    return tuple(found)


def shown(url: str) -> str:
    """Return an address without user name and password, for messages."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

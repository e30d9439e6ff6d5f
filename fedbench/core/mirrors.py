"""Mirrors of published files, as users name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fedbench.core.errors import RequestError, typed

_FORM = "a list of addresses that begin with http:// or https://, or a map from paths below data_dir to such addresses"


class Mirror(NamedTuple):
    """A place to look for published files before their published addresses.

    Attributes:
        path: The beginning of a file's path below the data directory that ``base`` takes the place of; empty for a
            server that is laid out as the data directory itself.
        base: An address.
    """

    path: str
    base: str

    def address(self, path: str) -> str | None:
        """Return the address of the file at ``path`` below the data directory; None if this mirror lacks it."""
        if not self.path:
            return f"{self.base}/{path}"
        if path == self.path:
            return self.base
        return f"{self.base}/{path.removeprefix(self.path + '/')}" if path.startswith(f"{self.path}/") else None


def mirrors_of(name: str, value: object) -> tuple[Mirror, ...]:
    """Return the mirrors in a configuration value: a list of base addresses, or a map from paths to addresses.

    Args:
        name: The key, for messages.
        value: The value; None for no mirrors.

    Raises:
        RequestError: If it is neither, or an address is not one of HTTP.
    """
    if value is None:
        return ()
    if isinstance(value, Mapping):
        pairs = [(str(path).strip("/"), base) for path, base in value.items()]
    elif isinstance(value, list | tuple):
        pairs = [("", base) for base in value]
    else:
        raise RequestError(f"{name} must be {_FORM}, got {typed(value)}")
    for _, base in pairs:
        if not isinstance(base, str) or not base.startswith(("http://", "https://")):
            raise RequestError(f"{name} must be {_FORM}, got {typed(base)}")
    return tuple(Mirror(path, base.rstrip("/")) for path, base in pairs)

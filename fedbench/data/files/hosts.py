"""What this process has seen of servers: one that failed is not asked again, a slow one comes last."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

_failed: dict[str, str] = {}  # server -> why
_broke: set[str] = set()  # servers that failed in the middle of an answer
_slow: dict[str, float] = {}  # server -> bytes per second


def host(url: str) -> str:
    """Return the server of an address, with its port, for messages."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _server(url: str) -> str:
    """Return what is remembered together: http and https may be answered by different programs."""
    return f"{urlsplit(url).scheme}://{host(url)}"


def give_up(url: str, reason: str, broke: bool = False) -> None:
    """Note that the server of an address failed, as opposed to a single file that it lacks.

    Args:
        url: The address.
        reason: Why.
        broke: Whether it had begun to send the file.
    """
    _failed[_server(url)] = reason
    (_broke.add if broke else _broke.discard)(_server(url))


def take_back(url: str) -> None:
    """Note that the server of an address works after all."""
    _failed.pop(_server(url), None)
    _broke.discard(_server(url))


def broke(url: str) -> bool:
    """Return whether the server of an address failed while it was sending: it may do better another time."""
    return _server(url) in _broke


def failure(url: str) -> str | None:
    """Return why the server of an address failed earlier in this process; None if it did not."""
    return _failed.get(_server(url))


def note_speed(url: str, speed: float) -> None:
    """Note that the server of an address was too slow, with its speed in bytes per second."""
    _slow[_server(url)] = speed


def slow_last(urls: Sequence[str]) -> list[str]:
    """Return addresses in their order, but those of slow servers at the end, the fastest of them first."""
    return sorted(urls, key=lambda url: -_slow[_server(url)] if _server(url) in _slow else float("-inf"))


def forget() -> None:
    """Forget everything."""
    _failed.clear()
    _broke.clear()
    _slow.clear()

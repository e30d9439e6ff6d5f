"""An end in time for training: runs under way are left as Ctrl-C leaves them, to be resumed by the next command."""

from __future__ import annotations

import math
import signal
import threading
from types import TracebackType

from fedbench.core.errors import RequestError
from fedbench.runs.interrupts import interruption


class Deadline:
    """A block that ends after some seconds.

    The main thread then receives SIGINT: runs under way finish their round, write a checkpoint and stop, and the block
    is left without an error. An interruption by anything else stays one.

    Args:
        seconds: From the beginning of the block.

    Attributes:
        over: Whether the time was up.
    """

    def __init__(self, seconds: float) -> None:
        self.over = False
        self._timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), self._ring)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._timer.cancel()
        return self.over and interruption(error) is not None

    def _ring(self) -> None:
        self.over = True
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, signal.SIGINT)


def checked_hours(text: str | None) -> float | None:
    """Return a number of hours as typed.

    Raises:
        RequestError: If it is not a number above 0.
    """
    if text is None:
        return None
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not (math.isfinite(hours) and hours > 0):
        raise RequestError(f"--hours must be a number above 0, such as 1 or 0.5, got {text}")
    return hours

"""Ctrl-C before there is anything to save."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def at_once() -> Iterator[None]:
    """End the process with status 130 on Ctrl-C inside this block, unless Ctrl-C is ignored.

    Some libraries swallow the exception that Python raises instead, if it comes while they are imported.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        print("fedbench: interrupted", file=sys.stderr, flush=True)
        os._exit(130)

    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # in the background, and in a worker of a sweep
    if ignored or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

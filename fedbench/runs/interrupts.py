"""Signals that ask a process to end: Ctrl-C, and what schedulers, closed terminals and other processes send.

Each is answered as Ctrl-C is, unless it is ignored (as in the background of a shell) or the program that calls fedbench
has a handler of its own. Handlers exist in the main thread only.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeAlias

_Handler: TypeAlias = Callable[[int, FrameType | None], None]

# SIGUSR1 is what SLURM is usually told to send before the time of a job is over
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, name)]


class Interrupted(KeyboardInterrupt):
    """A signal asked this process to end.

    Args:
        number: The signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def exit_status(error: KeyboardInterrupt) -> int:
    """Return the exit status of a command that a signal has ended: 128 and the signal's number."""
    return 128 + (error.number if isinstance(error, Interrupted) else signal.SIGINT)


def interruption(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the signal during which an error came up, if there was one.

    Libraries may fail while they clean up after ``Interrupted``, as OmegaConf does, and raise their own error over it.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error


def raise_if_interrupted(error: Exception) -> None:
    """Raise the signal during which an error came up, if there was one."""
    if (cause := interruption(error)) is not None:
        raise cause from None


def answered_signals() -> list[int]:
    """Return the signals that raise an exception in this process now, so not those that it ignores."""
    return [number for number in _SIGNALS if callable(signal.getsignal(number))]


@contextmanager
def at_once() -> Iterator[None]:
    """End the process on a signal inside this block.

    Some libraries swallow the exception that Python raises instead, if it comes while they are imported.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        print("fedbench: interrupted", file=sys.stderr, flush=True)
        os._exit(128 + number)

    with _answered_by(leave):
        yield


@contextmanager
def as_exceptions() -> Iterator[None]:
    """Raise ``Interrupted`` on a signal inside this block."""
    with _answered_by(raise_interrupted):
        yield


def raise_interrupted(number: int, frame: FrameType | None) -> None:
    """Raise ``Interrupted``: a handler."""
    raise Interrupted(number)


@contextmanager
def between_rounds() -> Iterator[Callable[[], int | None]]:
    """Note a signal inside this block instead of raising an exception in the middle of a round; a second one raises it.

    Yields:
        A function that returns the signal that has come, or None.
    """
    noted: int | None = None

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal noted
        if noted is not None:
            raise Interrupted(number)
        noted = number
        print("fedbench: ending after this round; a second signal ends at once", file=sys.stderr, flush=True)

    with _answered_by(note):
        yield lambda: noted


@contextmanager
def _answered_by(handler: _Handler) -> Iterator[None]:
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: found for number in _SIGNALS if _may_replace(found := signal.getsignal(number))}
    handler.__dict__["of_fedbench"] = True
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, found in before.items():
            signal.signal(number, found)


def _may_replace(handler: object) -> bool:
    """Return whether a signal is not ignored, and not handled by the program that calls fedbench."""
    return handler in (signal.SIG_DFL, signal.default_int_handler) or hasattr(handler, "of_fedbench")

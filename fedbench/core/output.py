"""Standard output and standard error that may be files on a full disk: what is lost there ends no run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO, cast


class Output:
    """A stream that drops what cannot be written, from the first fault on, and remembers that fault.

    A pipe whose reader is gone is an error of its own: who printed into it may stop.

    Args:
        stream: The stream.

    Attributes:
        fault: The first error of the system; None if there was none.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.fault: OSError | None = None

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        try:
            self._stream.write(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._drop(error)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered, or drop it."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            self._drop(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _drop(self, error: OSError) -> None:
        """Point the stream at nothing: what it still holds would be a traceback when the interpreter closes it."""
        self.fault = self.fault or error
        drop(self._stream)


def drop(stream: TextIO) -> None:
    """Let a stream lead to nothing from now on."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


@contextmanager
def kept_up() -> Iterator[Output]:
    """Inside this block, what cannot be printed is dropped; yields standard output."""
    with ExitStack() as stack:
        if sys.stdout is None or sys.stderr is None:
            _occupy()
        nothing = stack.enter_context(Path(os.devnull).open("w"))
        out, err = Output(sys.stdout or nothing), Output(sys.stderr or nothing)
        stack.enter_context(redirect_stdout(cast(TextIO, out)))
        stack.enter_context(redirect_stderr(cast(TextIO, err)))
        yield out


def _occupy() -> None:
    """Let descriptors 0 to 2 that were closed at the start lead to nothing.

    A file of a run would get their number otherwise, and what a library prints would be written into it.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)

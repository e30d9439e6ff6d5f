"""An end in time for training: runs under way are left as Ctrl-C leaves them, to be resumed by the next command."""

from __future__ import annotations

import signal
import threading
from types import TracebackType

from fedbench.core.errors import RequestError
from fedbench.runs.process import answered_signals, interruption


class Deadline:
    """A block that ends after some seconds.

    The main thread then receives SIGINT, or where that is ignored, as in the background of a shell script, another
    signal that ends runs: those under way finish their round, write a checkpoint and stop, and the block is left
    without an error. An interruption by anything else stays one.

    Args:
        seconds: From the beginning of the block.

    Attributes:
        over: Whether the time was up.
    """

    def __init__(self, seconds: float) -> None:
        self.over = False
        self._timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), self._ring)
        self._timer.daemon = True
        self._signal: int = signal.SIGINT

    def __enter__(self) -> Deadline:
        """Start the time.

        Raises:
            RequestError: If no signal could end the block.
        """
        answered = answered_signals()
        if not answered:
            raise RequestError("--hours cannot end runs here, since all signals are ignored; remove it")
        self._signal = answered[0]
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            self._timer.cancel()
            self._timer.join()  # if the time was up just now, its signal comes here and not after the block
        except KeyboardInterrupt:
            if not self.over:
                raise
        return self.over and interruption(error) is not None

    def _ring(self) -> None:
        self.over = True
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, self._signal)

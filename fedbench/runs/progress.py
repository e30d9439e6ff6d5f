"""The progress of one run: a bar on a terminal, elsewhere a line every ten seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

EVERY = 10.0  # seconds between lines where there is no terminal
_WIDE = 110  # columns of a terminal that has room for a bar
_SHOWN: ContextVar[bool] = ContextVar("shown", default=True)


@contextmanager
def hidden() -> Iterator[None]:
    """Show nothing of the runs inside this block: something else shows how far they are."""
    token = _SHOWN.set(False)
    try:
        yield
    finally:
        _SHOWN.reset(token)


class Ticker:
    """Calls a function again and again, in a thread, inside a ``with`` block.

    Args:
        call: The function.
        seconds: Time from one call to the next; the first comes after that time.
    """

    def __init__(self, call: Callable[[], None], seconds: float) -> None:
        self._call, self._seconds, self._over = call, seconds, threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        while not self._over.wait(self._seconds):
            self._call()

    def __enter__(self) -> Ticker:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()


class Bar:
    """Rounds, accuracy, worst 30 %, clients per second and the time left, on standard error.

    Args:
        title: Title of the run.
        total: Number of rounds.
        done: Number of rounds already done.
    """

    def __init__(self, title: str, total: int, done: int = 0) -> None:
        on_terminal = sys.stderr.isatty()
        self._bar = _drawn(total) if on_terminal and _SHOWN.get() else None
        self._task = None if self._bar is None else self._bar.add_task(title, total=total, completed=done, facts="")
        self._lines = Ticker(self._say, EVERY) if _SHOWN.get() and not on_terminal else None
        self._title, self._total, self._first, self._round = title, total, done, done
        self._measured, self._clients, self._start = "", 0, time.perf_counter()

    def __enter__(self) -> Bar:
        if self._bar is not None:
            self._bar.start()
        if self._lines is not None:
            self._lines.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._lines is not None:
            self._lines.__exit__(kind, error, trace)

    def advance(self, round: int, clients: int, measured: Mapping[str, Any] | None) -> None:
        """Show that ``clients`` clients have completed ``round``, and what was measured of the model, if it was."""
        self._round = round
        self._clients += clients
        if measured is not None:
            self._measured = measured_text(measured)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=round, facts=self._facts())

    def _facts(self) -> str:
        rate = self._clients / max(1e-9, time.perf_counter() - self._start)
        return f"{self._measured}{rate:,.0f} clients/s"

    def _say(self) -> None:
        """Print a line: one write, so that lines of several processes do not mix."""
        trained = self._round - self._first
        left = (time.perf_counter() - self._start) * (self._total - self._round) / trained if trained > 0 else None
        ends = "" if left is None else f", {duration(left)} left"
        sys.stderr.write(f"fedbench: {self._title}: round {self._round} of {self._total}, {self._facts()}{ends}\n")
        sys.stderr.flush()


def measured_text(row: Mapping[str, Any]) -> str:
    """Return the mean accuracy and that of the worst 30 % in percent, with a space behind, as far as they are known."""
    names = (("accuracy_mean", "accuracy"), ("accuracy_worst30", "worst 30 %"))
    known = [(label, value) for key, label in names if (value := row.get(key)) is not None]
    return "".join(f"{label} {100 * value:.1f} % " for label, value in known)


def duration(seconds: float) -> str:
    """Return a time in seconds, minutes and seconds, or hours and minutes."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def _drawn(total: int) -> Progress:
    from rich.console import Console  # late: without a terminal, nothing is drawn
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    console = Console(stderr=True)
    wide = console.width >= _WIDE
    room = 24 if wide else 10  # of the title; what comes last is cut first
    return Progress(
        MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=2 * len(str(total)) + 1)),
        TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=7)),
        TextColumn("{task.fields[facts]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
        TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", max_width=room)),
        *([BarColumn(bar_width=10)] if wide else []),
        console=console,
        transient=True,
    )

"""The progress of one run: a bar on a terminal, elsewhere a line every ten seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

EVERY = 10.0  # seconds between lines where there is no terminal
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


class RunProgress:
    """The round of a run, its accuracy, clients per second and the time left.

    Args:
        title: Title of the run.
        total: Number of rounds.
        done: Number of rounds already done.
    """

    def __init__(self, title: str, total: int, done: int = 0) -> None:
        self._title, self._total, self._first, self.round = title, total, done, done
        self._measured, self._clients, self._start = "", 0, time.perf_counter()

    def advance(self, round: int, clients: int, measured: Mapping[str, Any] | None) -> None:
        """Note that ``clients`` clients have completed ``round``, and what was measured of the model, if it was."""
        self.round = round
        self._clients += clients
        if measured is not None:
            self._measured = measured_text(measured)

    @property
    def facts(self) -> str:
        """What was measured last, and the clients per second."""
        return f"{self._measured}{self._clients / max(1e-9, time.perf_counter() - self._start):,.0f} clients/s"

    def line(self) -> str:
        """Return all of it as a line."""
        trained = self.round - self._first
        left = (time.perf_counter() - self._start) * (self._total - self.round) / trained if trained > 0 else None
        ends = "" if left is None else f", {duration(left)} left"
        return f"fedbench: {self._title}: round {self.round} of {self._total}, {self.facts}{ends}\n"


@contextmanager
def shown_progress(title: str, total: int, done: int = 0) -> Iterator[Callable[..., None]]:
    """Show the progress of a run inside this block, on standard error.

    Args:
        title: Title of the run.
        total: Number of rounds.
        done: Number of rounds already done.

    Yields:
        A function to be called after every round, as ``RunProgress.advance``.
    """
    progress = RunProgress(title, total, done)
    if not _SHOWN.get():
        yield progress.advance
    elif not sys.stderr.isatty():
        with Ticker(lambda: _write(progress.line()), EVERY):
            yield progress.advance
    else:
        columns = (MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[facts]}"))
        about = (TextColumn("{task.description}"), BarColumn(bar_width=10))
        with Progress(*columns, *about, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=total, completed=done, facts="")

            def advance(round: int, clients: int, measured: Mapping[str, Any] | None) -> None:
                progress.advance(round, clients, measured)
                bar.update(task, completed=round, facts=progress.facts)

            yield advance


def _write(line: str) -> None:
    """Print a line: one write, so that lines of several processes do not mix."""
    sys.stderr.write(line)
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

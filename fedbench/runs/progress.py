"""How far runs are: on a terminal a bar, elsewhere a line every ten seconds."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedbench.config.schema import RunConfig
from fedbench.runs.run import last_row

EVERY = 10.0  # seconds between lines where there is no terminal
_OFTEN = 0.5  # seconds between two looks at the files of several runs on a terminal
_SHOWN: ContextVar[bool] = ContextVar("shown", default=True)


@contextmanager
def hidden() -> Iterator[None]:
    """Show nothing of the runs inside this block: something else shows how far they are."""
    token = _SHOWN.set(False)
    try:
        yield
    finally:
        _SHOWN.reset(token)


@contextmanager
def shown_progress(title: str, total: int, done: int = 0) -> Iterator[Callable[..., None]]:
    """Show the progress of a run inside this block, on standard error.

    Args:
        title: Title of the run.
        total: Number of rounds.
        done: Number of rounds already done.

    Yields:
        A function to be called after every round with its number, its number of clients, and what was measured of the
        model, or None.
    """
    terminal, shown = sys.stderr.isatty(), _SHOWN.get()
    start = said = time.perf_counter()
    measured, served = "", 0
    bars = _bars(shown and terminal)
    bar = bars.add_task(title, total=total, completed=done, facts="")

    def advance(round: int, clients: int, row: Mapping[str, Any] | None) -> None:
        nonlocal measured, served, said
        measured, served = measured if row is None else measured_text(row), served + clients
        if not shown:
            return
        now = time.perf_counter()
        facts = f"{measured}{served / max(1e-9, now - start):,.0f} clients/s"
        if terminal:
            bars.update(bar, completed=round, facts=facts)
        elif now - said >= EVERY:
            said = now
            left = f", {duration((now - start) * (total - round) / (round - done))} left" if round > done else ""
            _say(f"{title}: round {round} of {total}, {facts}{left}")

    with bars:
        yield advance


class PoolView:
    """Shows how far several runs are, through their files, whichever process carries them out.

    Args:
        total: Number of runs.

    Attributes:
        bars: The bar of all runs; a context manager inside which it is shown.
        every: Seconds from one call of ``look`` to the next.
    """

    def __init__(self, total: int) -> None:
        self._total, self._terminal = total, sys.stderr.isatty()
        self._began = self._said = time.monotonic()
        self.bars = _bars(self._terminal)
        self.every = _OFTEN if self._terminal else EVERY
        self._bar = self.bars.add_task("", total=total, facts="")

    def look(self, ended: Sequence[str], going: Iterable[RunConfig]) -> None:
        """Show how far the runs are, given the statuses of those that have ended, and those that are at work."""
        if self._terminal:
            self.bars.update(self._bar, completed=len(ended), facts=self.line(ended, going))
        elif time.monotonic() - self._said >= EVERY:
            self._said = time.monotonic()
            _say(self.line(ended, going))

    def line(self, ended: Sequence[str], going: Iterable[RunConfig]) -> str:
        """Return how far the runs are in one line."""
        rows = [(last_row(config.path / "rounds.jsonl") or {"round": 0}, config) for config in going]
        rounds = ", ".join(f"{row['round']}/{config.rounds}" for row, config in rows)
        states = [f"{n} {status}" for status, n in sorted(Counter(ended).items())]
        states += [f"{len(rows)} running (rounds {rounds})"] if rows else []
        rest = (time.monotonic() - self._began) * (self._total - len(ended)) / max(1, len(ended))
        left = f"; about {duration(rest)} left" if ended else ""
        return f"{len(ended)} of {self._total} runs are over: {', '.join(states)}{left}"


def _bars(shown: bool) -> Progress:
    """Return bars on standard error, or ones that are not shown."""
    numbers = (MofNCompleteColumn(), TimeRemainingColumn(), BarColumn(bar_width=10))
    texts = (TextColumn("{task.fields[facts]}"), TextColumn("{task.description}"))
    return Progress(*numbers, *texts, console=Console(stderr=True), transient=True, disable=not shown)


def _say(line: str) -> None:
    """Print a line: one write, so that lines of several processes do not mix."""
    sys.stderr.write(f"fedbench: {line}\n")
    sys.stderr.flush()


def measured_text(row: Mapping[str, Any]) -> str:
    """Return the mean accuracy and that of the worst 30 % in percent, with a space behind, as far as they are known."""
    names = (("accuracy_mean", "accuracy"), ("accuracy_worst30", "worst 30 %"))
    known = [(label, value) for key, label in names if (value := row.get(key)) is not None]
    return "".join(f"{label} {100 * value:.1f} % " for label, value in known)


def duration(seconds: float) -> str:
    """Return a time in seconds, minutes, hours or days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172800 else f"{seconds / 86400:.0f} days"

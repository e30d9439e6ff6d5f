"""How far runs are: on a terminal a bar, elsewhere a line at once and every ten seconds."""

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
from rich.table import Column

from fedbench.config.schema import RunConfig
from fedbench.runs.run import last_row

EVERY = 10.0  # seconds between lines where there is no terminal
_OFTEN = 0.5  # seconds between two looks at the files of several runs on a terminal
_MEASURED = (("accuracy_mean", "accuracy"), ("accuracy_worst30", "worst 30 %"))  # keys of a row, and their labels
_NOTEBOOK = "ipykernel"  # the module of a notebook's process, whose output redraws a line as a terminal does
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
        A function to be called after every round with its number, its number of clients, what was measured of the
        model, or None, and what comes next if that is no round.
    """
    terminal, shown = sys.stderr.isatty() or _NOTEBOOK in sys.modules, _SHOWN.get()
    start = said = time.perf_counter()
    measured, served = "", 0
    bars = _bars(shown and terminal)
    bar = bars.add_task(title, total=total, completed=done, facts="")
    if shown and (done or not terminal):
        begins = f"resuming at round {done} of {total}" if done else f"round 0 of {total}, evaluating the initial model"
        print(f"fedbench: {title}: {begins}", file=sys.stderr, flush=True)

    def advance(round: int, clients: int, row: Mapping[str, Any] | None, doing: str = "") -> None:
        nonlocal measured, served, start, said
        if not shown:
            return
        served += clients
        if row is not None:
            known = [(label, value) for key, label in _MEASURED if (value := row.get(key)) is not None]
            measured = "".join(f"{label} {100 * value:.1f} % " for label, value in known)
        now = time.perf_counter()
        rate = f"{served / max(1e-9, now - start):,.0f} clients/s"
        if not served:  # the time of the initial model is none of the rounds
            rate, start = f"evaluated in {duration(now - start)}", now
        facts = f"{measured}{doing or rate}"
        if terminal:
            bars.update(bar, completed=round, facts=facts)
        elif now - said >= EVERY:
            said = now
            left = f", {duration((now - start) * (total - round) / (round - done))} left" if round > done else ""
            print(f"fedbench: {title}: round {round} of {total}, {facts}{left}", file=sys.stderr, flush=True)

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
        self._total, self._terminal = total, sys.stderr.isatty() or _NOTEBOOK in sys.modules
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
            print(f"fedbench: {self.line(ended, going)}", file=sys.stderr, flush=True)

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
    # a narrow terminal cuts the text, and not the bar
    text = TextColumn("{task.fields[facts]} {task.description}", table_column=Column(no_wrap=True, ratio=1))
    columns = (MofNCompleteColumn(), TimeRemainingColumn(), BarColumn(bar_width=10), text)
    # where no widgets are installed, rich draws nothing in a notebook that it knows as one
    console = Console(stderr=True, force_jupyter=False, force_terminal=True if _NOTEBOOK in sys.modules else None)
    return Progress(*columns, console=console, transient=True, disable=not shown, expand=True)


def duration(seconds: float) -> str:
    """Return a time in seconds, minutes, hours or days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172800 else f"{seconds / 86400:.0f} days"

"""How far runs are: on a terminal a bar, elsewhere a line at once and every ten seconds."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from fedbench.config.schema import RunConfig
from fedbench.runs.run import last_row

EVERY = 10.0  # seconds between lines where there is no terminal
_NAMED = 8  # runs in a line; a cluster has a thousand of them
_OFTEN = 0.5  # seconds between two looks at the files of several runs on a terminal
_MEASURED = (("accuracy_mean", "accuracy"), ("accuracy_worst30", "worst 30 %"))  # keys of a row, and their labels
_NOTEBOOK = "ipykernel"  # the module of a notebook's process, whose output redraws a line as a terminal does
_SHOWN: ContextVar[bool] = ContextVar("shown", default=True)
_REPORT: ContextVar[Callable[[int], None] | None] = ContextVar("report", default=None)


@contextmanager
def hidden(report: Callable[[int], None] | None = None) -> Iterator[None]:
    """Show nothing of the runs inside this block: something else shows how far they are.

    Args:
        report: Called after every round with its number; None if nothing is to be called.
    """
    tokens = _SHOWN.set(False), _REPORT.set(report)
    try:
        yield
    finally:
        _SHOWN.reset(tokens[0])
        _REPORT.reset(tokens[1])


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
            if (report := _REPORT.get()) is not None:
                report(round)
            return
        served += clients
        if row is not None:
            known = [(label, value) for key, label in _MEASURED if (value := row.get(key)) is not None]
            measured = "".join(f"{label} {100 * value:.1f} % " for label, value in known)
        now = time.perf_counter()
        rate = f"{(each := served / max(1e-9, now - start)):,.{1 if each < 10 else 0}f} clients/s"
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


class RunProgress(NamedTuple):
    """How far a run is: the last round that is known of it, the number of its rounds, and the node that it is on."""

    round: int
    rounds: int
    node: str = ""


def run_progress(config: RunConfig) -> RunProgress:
    """Return how far a run is, by its files, whichever process of this machine carries it out."""
    row = last_row(config.path / "rounds.jsonl") or {"round": 0}
    return RunProgress(int(row["round"]), config.rounds)


class BatchProgress:
    """Shows how far several runs are.

    Args:
        total: Number of runs.

    Attributes:
        bars: The bar of all runs; a context manager inside which it is shown.
        every: Seconds from one call of ``show`` to the next.
    """

    def __init__(self, total: int) -> None:
        self._total, self._terminal = total, sys.stderr.isatty() or _NOTEBOOK in sys.modules
        self._began = self._said = time.monotonic()
        self.bars = _bars(self._terminal)
        self.every = _OFTEN if self._terminal else EVERY
        self._bar = self.bars.add_task("", total=total, facts="")

    def show(self, ended: Sequence[str], running: Sequence[RunProgress]) -> None:
        """Show how far the runs are, given the statuses of those that have ended, and those that are at work."""
        if self._terminal:
            self.bars.update(self._bar, completed=len(ended), facts=self.line(ended, running))
        elif time.monotonic() - self._said >= EVERY:
            self._said = time.monotonic()
            print(f"fedbench: {self.line(ended, running)}", file=sys.stderr, flush=True)

    def line(self, ended: Sequence[str], running: Sequence[RunProgress]) -> str:
        """Return how far the runs are in one line."""
        rounds = ", ".join(f"{run.round}/{run.rounds}{run.node and f' on {run.node}'}" for run in running[:_NAMED])
        rounds += f" and {len(running) - _NAMED} more" if len(running) > _NAMED else ""
        states = [f"{n} {status}" for status, n in sorted(Counter(ended).items())]
        states += [f"{len(running)} running (rounds {rounds})"] if running else []
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

"""Progress of runs: a bar on a terminal; elsewhere one line at the start and every ten seconds."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from fedbench.config.schema import RunConfig
from fedbench.runs.run import last_row

EVERY = 10.0  # seconds between lines without a terminal
_NAMED = 8  # maximum number of runs shown in a line; a cluster may run a thousand
_OFTEN = 0.5  # seconds between two reads of the files of several runs on a terminal
# keys of a row and their labels
_MEASURED = {"accuracy_mean": "accuracy", "accuracy_worst30": "worst 30 %"}
# receives the round and, before the first round, the estimated seconds of the run
Report: TypeAlias = Callable[[int, float], None]
Estimate: TypeAlias = tuple[float, str]  # seconds, and a text on their parts
_LISTENER: ContextVar[Report | None] = ContextVar("listener", default=None)
AFTER: ContextVar[int] = ContextVar("after", default=0)  # runs that follow the current one


def _ignore(round: int, estimated: float) -> None:
    """Ignore the progress of a run."""


@contextmanager
def hidden(report: Report = _ignore) -> Iterator[None]:
    """Hide the progress of runs inside this block, because something else shows it.

    Args:
        report: Function called after every round, and before the first one if the duration of the
            run can be estimated. By default, runs are not estimated.
    """
    token = _LISTENER.set(report)
    try:
        yield
    finally:
        _LISTENER.reset(token)


class _Display:
    """A progress bar on a terminal, or a line every ten seconds elsewhere.

    Args:
        title: Title of the bar.
        total: Number of steps.
        done: Number of steps already done.

    Attributes:
        bars: Context manager inside which the bar is shown.
        terminal: Whether the output is a terminal and shows a bar.
        start: Start time of the display, by the monotonic clock.
    """

    def __init__(
        self,
        title: str,
        total: int,
        done: int = 0,
    ) -> None:
        self.total = total
        self.terminal = sys.stderr.isatty()
        # a narrow terminal cuts off the text, not the bar
        text = TextColumn(
            "{task.fields[facts]} {task.description}",
            table_column=Column(no_wrap=True, ratio=1),
        )
        self.bars = Progress(
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            BarColumn(bar_width=10),
            text,
            console=Console(stderr=True),
            transient=True,
            disable=not self.terminal or _LISTENER.get() is not None,
            expand=True,
        )
        self._task = self.bars.add_task(
            title,
            total=total,
            completed=done,
            facts="",
        )
        self.start = time.monotonic()
        self._printed = self.start

    def update(
        self,
        completed: int,
        facts: str,
        line: str,
    ) -> None:
        """Show the facts in the bar, or print the line if none was printed for ten seconds."""
        now = time.monotonic()
        if self.terminal:
            self.bars.update(self._task, completed=completed, facts=facts)
        elif now - self._printed >= EVERY:
            self._printed = now
            print(f"fedbench: {line}", file=sys.stderr, flush=True)


class RunDisplay(_Display):
    """Display of the progress of one run.

    Args:
        title: Title of the run.
        total: Number of rounds.
        done: Number of rounds already done.
    """

    def __init__(
        self,
        title: str,
        total: int,
        done: int = 0,
    ) -> None:
        super().__init__(title, total, done)
        self._title = title
        self._done = done
        self._listener = _LISTENER.get()
        self._measured = ""
        if self._listener is None and (done or not self.terminal):
            begins = f"round 0 of {total}, evaluating the initial model"
            if done:
                begins = f"resuming at round {done} of {total}"
            print(f"fedbench: {title}: {begins}", file=sys.stderr, flush=True)

    def announce(self, estimate: Callable[[], Estimate | None]) -> None:
        """Show how long a new run will take, if it can be estimated."""
        if self._done or self._listener is _ignore:
            return
        if self.terminal:
            self.bars.update(self._task, facts="estimating the time")
        if (expected := estimate()) is None:
            return
        seconds, text = expected
        if self._listener is not None:
            self._listener(0, seconds)
            return
        line = f"{self._title}: {text}{_with_runs_after(seconds, seconds)}"
        print(f"fedbench: {line}", file=sys.stderr, flush=True)

    def evaluating(self, round: int, share: float) -> None:
        """Show the share of the examples that have been evaluated after a round."""
        if self._listener is None:
            facts = f"evaluating, {100 * share:.0f} % of the examples"
            where = f"{self._title}: round {round} of {self.total}"
            self.update(round, facts, f"{where}, {facts}")

    def advance(self, round: int, row: Mapping[str, Any] | None) -> None:
        """Show that a round has finished.

        Args:
            round: Number of the round.
            row: Measurements of the model, or None if it was not evaluated.
        """
        if self._listener is not None:
            self._listener(round, 0.0)
            return
        if row is not None:
            self._measured = ""
            for key, label in _MEASURED.items():
                if row.get(key) is not None:
                    self._measured += f", {label} {100 * row[key]:.1f} %"

        now = time.monotonic()
        left = ""
        if round == 0:  # evaluating the initial model is not part of the rounds
            self.start = now
        elif round > self._done:
            seconds_per_round = (now - self.start) / (round - self._done)
            seconds = seconds_per_round * (self.total - round)
            after = _with_runs_after(seconds_per_round * self.total, seconds)
            left = f", {duration(seconds)} left{after}"
        line = f"{self._title}: round {round} of {self.total}{self._measured}{left}"
        self.update(round, self._measured.removeprefix(", "), line)


def _with_runs_after(seconds: float, left: float) -> str:
    """Return the time left of a sweep as text, if all runs after the current one are alike.

    Args:
        seconds: Seconds of the current run.
        left: Seconds left of the current run.
    """
    count = AFTER.get()
    if not count:
        return ""
    return f", about {duration(left + count * seconds)} with the runs after it ({count})"


class RunProgress(NamedTuple):
    """The last known round of a run, its number of rounds, and the node that executes it.

    ``seconds`` is the estimated time for all rounds, or 0 if it is not known.
    """

    round: int
    rounds: int
    node: str = ""
    seconds: float = 0.0


def run_progress(config: RunConfig, estimated: Mapping[Path, float]) -> RunProgress:
    """Return the progress of a run from its files, whichever local process writes them.

    Args:
        config: The configuration of the run.
        estimated: Estimated seconds of runs by directory, used until a round has been recorded.
    """
    round = 0
    seconds = estimated.get(config.path, 0.0)
    with suppress(OSError, ValueError, TypeError, KeyError):  # the run itself reports bad files
        row = last_row(config.path / "rounds.jsonl") or {"round": 0}
        if row["round"]:
            seconds = (row["seconds_train"] + row["seconds_eval"]) / row["round"] * config.rounds
        round = int(row["round"])
    return RunProgress(round, config.rounds, seconds=seconds)


class BatchDisplay(_Display):
    """Display of the progress of several runs.

    Args:
        total: Number of runs.

    Attributes:
        every: Seconds between two calls of ``show``.
    """

    def __init__(self, total: int) -> None:
        super().__init__("", total)
        self.every = _OFTEN if self.terminal else EVERY

    def show(
        self,
        ended: Sequence[str],
        running: Sequence[RunProgress],
    ) -> None:
        """Show the progress of the runs, given the statuses of the runs that have ended."""
        line = self.line(ended, running)
        self.update(len(ended), line, line)

    def line(
        self,
        ended: Sequence[str],
        running: Sequence[RunProgress],
    ) -> str:
        """Return the progress of the runs as one line."""
        states = [f"{count} {status}" for status, count in sorted(Counter(ended).items())]
        if running:
            rounds = []
            for run in running[:_NAMED]:
                node = f" on {run.node}" if run.node else ""
                rounds.append(f"{run.round}/{run.rounds}{node}")
            more = f" and {len(running) - _NAMED} more" if len(running) > _NAMED else ""
            states.append(f"{len(running)} running (rounds {', '.join(rounds)}{more})")
        left = ""
        known = [run for run in running if run.seconds]
        if known:
            mean = fmean(run.seconds for run in known)
            active = [run.seconds * (1 - run.round / run.rounds) for run in known]
            others = self.total - len(ended) - len(known)
            seconds = max(*active, (sum(active) + others * mean) / len(running))
            left = f"; about {duration(seconds)} left"
        elif ended and len(ended) < self.total:
            seconds_per_run = (time.monotonic() - self.start) / len(ended)
            left = f"; about {duration(seconds_per_run * (self.total - len(ended)))} left"
        return f"{len(ended)} of {self.total} runs are over: {', '.join(states)}{left}"


def duration(seconds: float) -> str:
    """Return a duration as text in seconds, minutes, hours or days."""
    if seconds < 90:
        return f"{seconds:.2g} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172800 else f"{seconds / 86400:.0f} days"

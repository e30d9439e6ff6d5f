"""How far several runs are: on a terminal a bar for each of them, elsewhere a line every ten seconds.

Runs are followed through their files, so that it does not matter which process carries them out.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedbench.config.schema import RunConfig
from fedbench.runs import progress
from fedbench.runs.progress import Ticker, duration, hidden, measured_text
from fedbench.runs.run import last_row

_AGAIN = 0.5  # seconds between two looks at the files


@dataclass(frozen=True)
class _Going:
    """A run that has begun: its directory, its number of rounds, when it began, and its bar."""

    path: Path
    rounds: int
    began: float
    bar: TaskID | None


class PoolView:
    """Shows how far the runs are, inside a ``with`` block.

    Args:
        runs: Overrides per run; a single run shows itself.
        jobs: Number of runs at a time.
    """

    def __init__(self, runs: Sequence[Sequence[str]], jobs: int) -> None:
        self._names, self._jobs = told_apart(runs), jobs
        self._going: dict[int, _Going] = {}
        self._over: Counter[str] = Counter()
        self._took: list[float] = []
        self._open = ExitStack()
        self._bars: Progress | None = None

    def __enter__(self) -> PoolView:
        if len(self._names) < 2:
            return self
        self._open.enter_context(hidden())
        if not sys.stderr.isatty():
            self._open.enter_context(Ticker(self._say, progress.EVERY))
            return self
        columns = (MofNCompleteColumn(), TimeRemainingColumn(), BarColumn(bar_width=10))
        texts = (TextColumn("{task.fields[facts]}"), TextColumn("{task.description}"))
        self._bars = Progress(*columns, *texts, console=Console(stderr=True), transient=True)
        self._open.enter_context(self._bars)
        self._open.enter_context(Ticker(self._look, _AGAIN))
        self._all = self._bars.add_task("runs", total=len(self._names), facts="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def begins(self, number: int, config: RunConfig) -> None:
        """Note that a run begins."""
        name = self._names[number]
        bar = None if self._bars is None else self._bars.add_task(name, total=config.rounds, facts="")
        self._going[number] = _Going(config.path, config.rounds, time.monotonic(), bar)

    def ended(self, number: int, status: str) -> None:
        """Note the status in which a run has ended."""
        self._over[status] += 1
        run = self._going.pop(number, None)
        if run is not None:
            self._took.append(time.monotonic() - run.began)
        if self._bars is not None:
            if run is not None and run.bar is not None:
                self._bars.remove_task(run.bar)
            self._bars.update(self._all, completed=sum(self._over.values()), facts=self._states())

    def line(self) -> str:
        """Return how far the runs are in one line."""
        over = sum(self._over.values())
        left = ""
        if self._took:
            mean = sum(self._took) / len(self._took)
            left = f"; about {duration(mean * (len(self._names) - over) / self._jobs)} left"
        return f"{over} of {len(self._names)} runs are over: {self._states()}{left}"

    def _states(self) -> str:
        going = [f"{len(self._going)} running"] if self._going else []
        return ", ".join([f"{n} {status}" for status, n in sorted(self._over.items())] + going)

    def _say(self) -> None:
        sys.stderr.write(f"fedbench: {self.line()}\n")
        sys.stderr.flush()

    def _look(self) -> None:
        assert self._bars is not None
        for run in list(self._going.values()):
            try:
                row = last_row(run.path / "rounds.jsonl") or {}
            except (OSError, ValueError):
                continue  # the run itself reports what is wrong with its files
            if run.bar is not None and run.bar in self._bars.task_ids:
                self._bars.update(run.bar, completed=int(row.get("round", 0)), facts=measured_text(row))


def told_apart(runs: Sequence[Sequence[str]]) -> list[str]:
    """Return per run the overrides that not all runs have, or its number."""
    common = set.intersection(*(set(run) for run in runs)) if len(runs) > 1 else set()
    return [" ".join(o for o in run if o not in common) or f"run {n}" for n, run in enumerate(runs, 1)]

"""How far a sweep is: on a terminal a live table of its runs, elsewhere a line every ten seconds.

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
from typing import TYPE_CHECKING, Any

from fedbench.config.schema import RunConfig
from fedbench.runs import progress
from fedbench.runs.progress import Ticker, duration, hidden
from fedbench.runs.status import last_whole_row
from fedbench.runs.sweep_notes import Note, notes

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

_AGAIN = 0.5  # seconds between two drawings of the table
_COLOURS = {"failed": "red", "refused": "red", "diverged": "yellow", "running": "bold", "done": "green"}


@dataclass
class _Row:
    """One run, as far as it is known.

    Attributes:
        text: What distinguishes it from the other runs.
        state: waiting, running, or the status of its note.
        path: Directory of the run; None before it has begun.
        rounds: Its number of rounds.
        began: When it began, by the clock of this process.
        took: Seconds that it took.
        error: What ended it.
    """

    text: str
    state: str = "waiting"
    path: Path | None = None
    rounds: int | None = None
    began: float = 0.0
    took: float | None = None
    error: str | None = None

    def measured(self) -> dict[str, Any]:
        """Return the last evaluated round; nothing if there is none."""
        if self.path is None:
            return {}
        try:
            return last_whole_row(self.path / "rounds.jsonl")
        except (OSError, ValueError):  # the run itself reports what is wrong with its files
            return {}


class SweepView:
    """Shows how far the runs of a sweep are, inside a ``with`` block.

    Args:
        runs: Overrides per run.
        jobs: Number of runs at a time.
        console: Where the table is drawn; None is standard error.
    """

    def __init__(self, runs: Sequence[Sequence[str]], jobs: int, console: Console | None = None) -> None:
        self._rows = [_Row(text) for text in told_apart(runs)]
        self._jobs, self._console = jobs, console
        self._live: Live | None = None
        self._open = ExitStack()

    def __enter__(self) -> SweepView:
        if len(self._rows) < 2:
            return self
        self._open.enter_context(hidden())
        if self._console is None and not sys.stderr.isatty():
            self._open.enter_context(Ticker(self._say, progress.EVERY))
            return self
        from rich.console import Console  # late: elsewhere, nothing is drawn
        from rich.live import Live

        self._console = self._console or Console(stderr=True)
        # what is printed to a file or a pipe must not go to the terminal
        self._live = Live(
            console=self._console, auto_refresh=False, redirect_stdout=sys.stdout.isatty(), transient=True
        )
        self._open.enter_context(self._live)
        self._draw()
        self._open.enter_context(Ticker(self._draw, _AGAIN))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def begins(self, number: int, config: RunConfig | None) -> None:
        """Note that a run begins; its configuration is None if it could not be composed."""
        row = self._rows[number]
        row.state, row.began = "running", time.monotonic()
        if config is not None:
            row.path, row.rounds = config.path, config.rounds

    def ended(self, note: Note) -> None:
        """Note what became of a run."""
        row = self._rows[note.job]
        row.state, row.error, row.took = note.status, note.error, time.monotonic() - row.began

    def line(self) -> str:
        """Return how far the sweep is in one line."""
        counts = Counter(row.state for row in self._rows)
        over = len(self._rows) - counts["running"] - counts["waiting"]
        at = min(len(self._rows), over + counts["running"])
        states = [f"{n} {state}" for state in ("done", "diverged", "failed", "refused", "running", "waiting")
                  if (n := counts[state])]  # fmt: skip
        left = self._left()
        return f"run {at} of {len(self._rows)}: {', '.join(states)}" + (
            "" if left is None else f"; about {duration(left)} left"
        )

    def _left(self) -> float | None:
        """Return the seconds that the sweep still takes, from those of the runs so far; None if none are known."""
        now = time.monotonic()
        known = [row.took for row in self._rows if row.took is not None]
        left = []
        for row in self._rows:
            if row.state == "running" and (rest := _rest(row)) is not None:
                left.append(rest)
                known.append(now - row.began + rest)
        if not known:
            return None
        mean = sum(known) / len(known)
        unknown = sum(row.state in ("running", "waiting") for row in self._rows) - len(left)
        return (sum(left) + mean * unknown) / min(self._jobs, max(1, unknown + len(left)))

    def _say(self) -> None:
        going = [f"{row.text}: {_rounds(row)}" for row in self._rows if row.state == "running"]
        sys.stderr.write(f"fedbench: {self.line()}" + (f" ({'; '.join(going[:4])})" if going else "") + "\n")
        sys.stderr.flush()

    def _draw(self) -> None:
        assert self._live is not None
        self._live.update(self.table(self._live.console.height - 4), refresh=True)

    def table(self, most: int) -> Table:
        """Return the table of all runs, or of those that are going on or went wrong if there are too many.

        Args:
            most: Most rows.
        """
        from rich.table import Table

        table = Table(title=self.line(), title_justify="left", box=None, pad_edge=False)
        for name, right in (("run", True), ("state", False), ("rounds", True), ("accuracy", True),
                            ("worst 30 %", True), ("left", True), ("", False)):  # fmt: skip
            table.add_column(name, justify="right" if right else "left", no_wrap=True, overflow="ellipsis")
        rows = list(enumerate(self._rows, 1))
        if len(rows) > most:
            rows = [(n, r) for n, r in rows if r.state not in ("waiting", "done")][-max(1, most) :]
        for number, row in rows:
            table.add_row(str(number), *_cells(row), style=_COLOURS.get(row.state, "dim"))
        return table


def follow_notes(folder: Path, runs: int | None) -> Ticker:
    """Return what says every ten seconds how many runs of a sweep of Hydra's launchers are over."""

    def say() -> None:
        counts = Counter(note.status for note in notes(folder))
        ended = "".join(f", {n} {status}" for status, n in sorted(counts.items()))
        of = "" if runs is None else f" of {runs}"
        sys.stderr.write(f"fedbench: {sum(counts.values())}{of} runs are over{ended}\n")
        sys.stderr.flush()

    return Ticker(say, progress.EVERY)


def told_apart(runs: Sequence[Sequence[str]]) -> list[str]:
    """Return per run the overrides that not all runs have; all of them if there is one run."""
    common = set.intersection(*(set(run) for run in runs)) if len(runs) > 1 else set()
    return [" ".join(o for o in run if o not in common) or f"run {n}" for n, run in enumerate(runs, 1)]


def _cells(row: _Row) -> tuple[str, ...]:
    from rich.markup import escape

    at = row.measured()
    percent = [
        f"{100 * v:.2f} %" if (v := at.get(k)) is not None else "" for k in ("accuracy_mean", "accuracy_worst30")
    ]
    rest = _rest(row) if row.state == "running" else None
    about = row.text + (f": {row.error}" if row.error else "")
    return row.state, _rounds(row), *percent, "" if rest is None else duration(rest), escape(about)


def _rounds(row: _Row) -> str:
    return "" if row.rounds is None else f"{row.measured().get('round', 0)}/{row.rounds}"


def _rest(row: _Row) -> float | None:
    """Return the seconds that the other rounds of a run take, from those of its rounds so far."""
    at = row.measured()
    seconds, done = sum(at.get(f"seconds_{k}") or 0.0 for k in ("train", "eval")), at.get("round", 0)
    return None if not done or row.rounds is None else seconds / done * (row.rounds - done)

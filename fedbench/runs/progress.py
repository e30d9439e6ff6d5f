"""A progress bar, shown only on a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


class Bar:
    """Rounds, accuracy, clients per second and the time left, on standard error if that is a terminal.

    Args:
        title: Title of the run.
        total: Number of rounds.
        done: Number of rounds already done.
    """

    def __init__(self, title: str, total: int, done: int = 0) -> None:
        self._bar = _drawn() if sys.stderr.isatty() else None
        self._task = None if self._bar is None else self._bar.add_task(title, total=total, completed=done, facts="")
        self._accuracy, self._clients, self._start = "", 0, time.perf_counter()

    def __enter__(self) -> Bar:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, round: int, clients: int, accuracy: float | None) -> None:
        """Show that ``clients`` clients have completed ``round``, and the mean accuracy if it was measured."""
        if self._bar is None or self._task is None:
            return
        self._clients += clients
        if accuracy is not None:
            self._accuracy = f"accuracy {100 * accuracy:.1f} % "
        rate = self._clients / max(1e-9, time.perf_counter() - self._start)
        self._bar.update(self._task, completed=round, facts=f"{self._accuracy}{rate:,.0f} clients/s")


def _drawn() -> Progress:
    from rich.console import Console  # late: without a terminal, nothing is drawn
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    return Progress(
        MofNCompleteColumn(table_column=Column(no_wrap=True)),  # first: a narrow terminal cuts the last columns
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[facts]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
        TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", max_width=24)),
        BarColumn(bar_width=10),
        console=Console(stderr=True),
        transient=True,
    )

"""How far a download is: a bar on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Column

_EVERY = 10.0  # seconds from one line to the next


class Meter(Protocol):
    """Shows how far a download is."""

    def __call__(self, completed: int, total: int | None = None) -> None:
        """Show that ``completed`` bytes are there, of ``total`` where that is known."""


@contextmanager
def metering(name: str, total: int | None) -> Iterator[Meter]:
    """Show the progress of one file on standard error.

    Args:
        name: Name of the file.
        total: Its size in bytes, if known.
    """
    if not sys.stderr.isatty():
        yield _Lines(name, total)
        return
    with Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, max_width=60)),
        BarColumn(bar_width=20),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(name, total=total)
        yield lambda completed, total=None: bar.update(task, completed=completed, total=total)


class _Lines:
    """Prints a line every ten seconds, and nothing about a file that takes less."""

    def __init__(self, name: str, total: int | None) -> None:
        self.name, self.total = name, total
        self.since, self.before = time.monotonic(), 0

    def __call__(self, completed: int, total: int | None = None) -> None:
        self.total = self.total if total is None else total
        self.before = min(self.before, completed)  # a download that starts over
        now = time.monotonic()
        if (elapsed := now - self.since) < _EVERY:
            return
        of = "" if self.total is None else f" of {self.total / 1e6:.1f}"
        speed = (completed - self.before) / elapsed / 1e6
        print(f"fedbench: {self.name}: {completed / 1e6:.1f}{of} MB, {speed:.2f} MB/s", file=sys.stderr, flush=True)
        self.since, self.before = now, completed

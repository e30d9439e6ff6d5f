"""The runs of the papers that can be read, each paper's once, whatever is then computed from them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fedbench.papers.registry import Paper
from fedbench.runs.store import ResultStore, Run, with_readable

T = TypeVar("T")


class ReadableRuns:
    """The runs of papers on disk; those that cannot be read are left out and named on the standard error, once.

    Args:
        results: Directory of the runs.
        check: Whether damaged runs are looked for in all that a report reads, or found where they are read.
    """

    def __init__(self, results: Path, check: bool = True) -> None:
        self.results = results
        self.check = check
        self._runs: dict[str, list[Run]] = {}

    def computed(self, paper: Paper, work: Callable[[list[Run]], T]) -> T:
        """Return what comes of some work on the runs of a paper."""
        store = ResultStore(self.results / paper.id, check=self.check)
        new: list[str] = []
        if paper.id not in self._runs:
            self._runs[paper.id] = list(store)
            new = store.damaged
        found, damaged = with_readable(lambda runs, _: (work(runs), runs), self._runs[paper.id], new, store.root)
        answer, self._runs[paper.id] = found
        for why in damaged:
            print(f"fedbench: left out: {paper.id}/{why}", file=sys.stderr)
        return answer

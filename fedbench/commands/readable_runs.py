"""The runs of the papers that can be read, each paper's once, whatever is then computed from them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fedbench.papers.registry import Paper
from fedbench.runs.results import Results
from fedbench.runs.run import Run

T = TypeVar("T")


class ReadableRuns:
    """The runs of papers, on disk and in published reports; what cannot be read is left out and named, once.

    Its names go to the standard error.

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
        if paper.id not in self._runs:
            results = Results(self.results, [paper.id], below=paper.id, check=self.check)
            self._runs[paper.id] = list(results)
            for why in results.damaged:
                print(f"fedbench: left out: {why}", file=sys.stderr)
        return work(self._runs[paper.id])

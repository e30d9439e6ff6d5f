"""The runs of the papers that can be read, each paper's once, whatever is then computed from them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fedbench.papers.registry import Paper
from fedbench.runs.published import Published, WithPublished
from fedbench.runs.store import ResultStore, Run, with_readable

T = TypeVar("T")


class ReadableRuns:
    """The runs of papers, on disk and in published reports; what cannot be read is left out and named, once.

    Its names go to the standard error.

    Args:
        results: Directory of the runs.
        check: Whether damaged runs are looked for in all that a report reads, or found where they are read.
        published: Its published reports; None to read them here.
    """

    def __init__(self, results: Path, check: bool = True, published: Published | None = None) -> None:
        self.results = results
        self.check = check
        self.published = Published(results) if published is None else published
        self._runs: dict[str, list[Run]] = {}

    def computed(self, paper: Paper, work: Callable[[list[Run]], T]) -> T:
        """Return what comes of some work on the runs of a paper."""
        new: list[str] = []
        if paper.id not in self._runs:
            own = ResultStore(self.results, check=self.check, below=paper.id)
            store = WithPublished(own, self.published, [paper.id])
            self._runs[paper.id] = list(store)
            new = store.damaged
        found, damaged = with_readable(lambda runs, _: (work(runs), runs), self._runs[paper.id], new, self.results)
        answer, self._runs[paper.id] = found
        for why in damaged:
            print(f"fedbench: left out: {why}", file=sys.stderr)
        return answer

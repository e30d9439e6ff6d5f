"""Published reports as a cache: the folder ``published`` of a results directory, whose bundles count as finished runs.

The bundle in ``published/<name>`` has the runs of the experiments ``<name>/...``, so that a run is looked for in one
bundle. A finished run in its own directory comes before a published one, and a published one before a directory of an
unfinished run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from fedbench.core.errors import RequestError
from fedbench.runs.bundle import Bundle, Stored, is_bundle
from fedbench.runs.store import ResultStore, Run, relative_to

PUBLISHED = "published"


@dataclass(frozen=True)
class _Report:
    """The bundle of a published report, its finished runs by directory, as (row, outcome), and their ``ways``."""

    bundle: Bundle
    finished: dict[Path, tuple[int, str]]
    ways: frozenset[str]  # <experiment>/<algorithm>


class Published:
    """The finished runs of the published reports of a results directory, whose bundles are read when they are needed.

    Attributes:
        results: The results directory, below which the runs have their paths.
        damaged: Messages about bundles that cannot be read, by the name of their report; none of their runs counts.
    """

    def __init__(self, results: Path) -> None:
        self.results = results
        self.damaged: dict[str, str] = {}
        self._reports: dict[str, _Report | None] = {}

    def has(self, experiment: str, algo: str) -> bool:
        """Return whether an algorithm has finished runs of an experiment."""
        report = self._report(experiment.partition("/")[0])
        return report is not None and f"{experiment}/{algo}" in report.ways

    def outcome(self, path: Path) -> str:
        """Return what became of the finished run with a directory, ``done`` or ``diverged``; empty if it has none."""
        report = self._report(self._name(path))
        return "" if report is None else report.finished.get(path, (0, ""))[1]

    def run(self, path: Path) -> Run | None:
        """Return the finished run with a directory, if it is published."""
        if not self.outcome(path):
            return None
        found = self._runs(self._name(path), lambda report: [report.finished[path][0]])
        return found[0] if found else None

    def runs(self, name: str, check: bool = True) -> list[Run]:
        """Return the finished runs of a published report.

        Args:
            name: Name of its folder: that of the paper.
            check: Whether all tables of its bundle are read; without it, each is read when a run asks for it.
        """
        return self._runs(name, lambda report: [row for row, _ in report.finished.values()], check)

    def file(self, name: str, path: str) -> bytes | None:
        """Return a further file of the bundle of a published report, such as label counts; None if it has none."""
        report = self._report(name)
        return None if report is None else report.bundle.files.get(path)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.results).parts[0]

    def _runs(self, name: str, rows: Callable[[_Report], list[int]], check: bool = False) -> list[Run]:
        """Return runs of a report; none of a report whose bundle turns out to be damaged."""
        if (report := self._report(name)) is None:
            return []
        try:
            if check:
                report.bundle.check()
            return [report.bundle.run(row) for row in rows(report)]
        except RequestError as error:
            self._leave_out(name, error)
            return []

    def _report(self, name: str) -> _Report | None:
        """Return what a published report has; None if it has no bundle that can be read."""
        if name not in self._reports:
            self._reports[name] = None
            place = self.results / PUBLISHED / name
            if is_bundle(place):
                try:
                    self._reports[name] = _report(Bundle(place, check=False, home=self.results), name)
                except RequestError as error:
                    self._leave_out(name, error)
        return self._reports[name]

    def _leave_out(self, name: str, error: RequestError) -> None:
        self._reports[name] = None
        self.damaged[name] = relative_to(self.results, str(error))


def _report(bundle: Bundle, name: str) -> _Report:
    own = {path: found for path, found in bundle.finished().items() if path.startswith(f"{name}/")}
    ways = frozenset(path.rsplit("/", 2)[0] for path in own)
    return _Report(bundle, {bundle.home / path: found for path, found in own.items()}, ways)


class WithPublished:
    """The runs of a results directory: those in their own directories, and published ones that are not there.

    It has the interface of a directory of runs; runs come in the order of their paths, wherever they are stored.

    Args:
        own: The runs in their directories.
        published: The published reports of the results directory.
        names: Names of the published reports that count.
    """

    def __init__(self, own: ResultStore, published: Published, names: Collection[str]) -> None:
        self.root = own.root
        self.damaged: list[str] = []
        self._own, self._published, self._names = own, published, names

    @property
    def place(self) -> Path:
        """Directory of the plan and of the label counts."""
        return self.root

    def __iter__(self) -> Iterator[Run]:
        here = list(self._own)
        finished = {key for run in here if run.done for key in (run.path, run.identity)}
        there = {
            run.path: run
            for name in self._names
            for run in self._published.runs(name, self._own.check)
            if not {run.path, run.identity} & finished
        }
        broken = self._published.damaged
        self.damaged = [*self._own.damaged, *(broken[name] for name in self._names if name in broken)]
        yield from sorted([*(run for run in here if run.path not in there), *there.values()], key=lambda run: run.path)


def stored_with_published(folder: Path, names: Collection[str]) -> Stored:
    """Return the runs of a published report with a bundle, or of a results directory with its published reports.

    Args:
        folder: The directory.
        names: Names of the published reports that count, if it is a results directory.

    Raises:
        RequestError: If it is a published report whose bundle is damaged.
    """
    return Bundle(folder) if is_bundle(folder) else WithPublished(ResultStore(folder), Published(folder), names)

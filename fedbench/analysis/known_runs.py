"""The finished runs of known numbers, of a results directory or among the runs of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fedbench.config.compose import compose_run
from fedbench.papers.known.plan import Wanted
from fedbench.papers.plan import PlannedRun
from fedbench.runs.results import Results
from fedbench.runs.run import Run


class KnownRuns:
    """The finished runs of known numbers.

    Args:
        common: Overrides for all runs, such as results_dir.
        find: Returns the run with an experiment, and the directory of a finished run, if there is one.
    """

    def __init__(self, common: Sequence[str], find: Callable[[str, Path], Run | None]) -> None:
        self._common, self._find = common, find
        self._folders: dict[tuple[str, ...], Path] = {}

    def of(self, planned: Sequence[PlannedRun]) -> list[Run | None]:
        """Return the finished run of each planned one, or None."""
        return [self._find(run.experiment, self._folder(run) / f"seed_{run.seed}") for run in planned]

    def rounds(self, wanted: Wanted) -> int:
        """Return the number of rounds on record of a number's experiment."""
        chosen = [f"experiment={wanted.number.experiment}", f"algo={wanted.number.algo}"]
        return compose_run([*chosen, *self._common]).rounds

    def _folder(self, run: PlannedRun) -> Path:
        if run.setting not in self._folders:
            self._folders[run.setting] = compose_run([*run.setting, *self._common]).path.parent
        return self._folders[run.setting]


def finished_runs(common: Sequence[str], published: Results) -> KnownRuns:
    """Return the runs of a results directory: those in their directories, and published ones that are not there.

    Args:
        common: Overrides for all runs, such as results_dir.
        published: The published reports of the directory.
    """
    return KnownRuns(common, lambda _, path: published.find(path))


def runs_among(runs: Iterable[Run]) -> KnownRuns:
    """Return the finished runs among some, by experiment, algorithm, hash and seed."""
    found = {(run.meta["experiment"], *run.path.parts[-3:]): run for run in runs if run.done}
    return KnownRuns([], lambda experiment, path: found.get((experiment, *path.parts[-3:])))

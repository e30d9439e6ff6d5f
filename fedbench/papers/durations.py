"""Estimated durations of planned runs: from runs that are finished here, else from times that are part of fedbench."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean, median

from fedbench.core.trees import Tree, from_json
from fedbench.papers.plan import PlannedRun
from fedbench.papers.stored_durations import (
    StoredDurations,
    Timing,
    Work,
    mean_per_round,
    stored_durations,
    timing_of,
    work_of,
    work_of_run,
)
from fedbench.runs.run import DamagedRun, Run, is_done


@dataclass(frozen=True)
class Duration:
    """The time that runs take.

    Attributes:
        seconds: Sum over the runs with an estimate.
        rough: Whether part of the sum comes from runs of another setting, or of another machine.
        unknown: Number of runs without an estimate.
        stored: Whether part of the sum was measured on another machine.
    """

    seconds: float = 0.0
    rough: bool = False
    unknown: int = 0
    stored: bool = False

    def __add__(self, other: Duration) -> Duration:
        return Duration(
            self.seconds + other.seconds,
            self.rough or other.rough,
            self.unknown + other.unknown,
            self.stored or other.stored,
        )

    def __mul__(self, times: int) -> Duration:
        return Duration(self.seconds * times, self.rough, self.unknown * times, self.stored) if times else Duration()

    def text(self, at_once: int = 1) -> str:
        """Return the duration with several runs at once as text: ``~`` if it is rough, ``+ ?`` if runs are unknown."""
        if not self.seconds:
            return "unknown" if self.unknown else "–"
        return f"{'~' if self.rough else ''}{time_text(self.seconds / at_once)}{' + ?' if self.unknown else ''}"


@dataclass(frozen=True)
class _Finished:
    digest: str
    timing: Timing


class Durations:
    """Times of the runs of a results directory, and of others.

    The estimate for a planned run is, of the first of these that there are, the mean

    1. over finished runs of the same setting with other seeds;
    2. per round, over finished runs of its experiment with the same work in a round, of its algorithm or else of all;
    3. per round, over stored times of the same work, of its algorithm or else of all, times the ratio of this machine
       to that of the stored times: the median over what has been measured on both, 1 if there is nothing;
    4. per round, over finished runs of its experiment, of its algorithm or else of all.

    All but the first are rough.

    Args:
        results: Directory of the finished runs.
        others: Times measured elsewhere; those that are part of fedbench if it is None.
    """

    def __init__(self, results: Path, others: StoredDurations | None = None) -> None:
        self.results = results
        self.others = stored_durations() if others is None else others
        self._finished: dict[str, list[_Finished]] = {}
        self._known: dict[tuple[str, ...], Duration] = {}

    def of(self, runs: Iterable[PlannedRun]) -> Duration:
        """Return the estimated time of the runs that are not done."""
        return self.of_all(r for r in runs if not r.done)

    def of_all(self, runs: Iterable[PlannedRun]) -> Duration:
        """Return the estimated time of runs, whether or not they are done."""
        by_setting: dict[tuple[str, ...], list[PlannedRun]] = {}
        for run in runs:
            by_setting.setdefault(run.setting, []).append(run)
        return sum((self.of_one(alike[0]) * len(alike) for alike in by_setting.values()), Duration())

    def of_one(self, run: PlannedRun) -> Duration:
        """Return the estimated time of a run, whether or not it is done."""
        if run.setting not in self._known:
            self._known[run.setting] = self._estimate(run)
        return self._known[run.setting]

    def _estimate(self, run: PlannedRun) -> Duration:
        finished = self._in_experiment(run.experiment)
        digest = None if run.path is None else run.path.parent.name
        mine = [f for f in finished if f.timing.algo == run.algo]
        if same := [f.timing.seconds for f in mine if f.digest == digest]:
            return Duration(mean(same))
        if not (rounds := self._rounds(run)):
            return Duration(unknown=1)
        work = work_of(run.keys)
        alike = _of_work(mine, work) or _of_work(finished, work)
        if not alike and (there := self.others.find(run.experiment, run.algo, work)):
            return Duration(rounds * mean_per_round(there) * self.ratio, rough=True, stored=True)
        if like := alike or [f.timing for f in mine or finished]:
            return Duration(rounds * mean_per_round(like), rough=True)
        return Duration(unknown=1)

    @cached_property
    def ratio(self) -> float:
        """Time of a round here as a multiple of the time that is stored for it."""
        found = []
        for experiment in self.others.timings:
            for f in self._in_experiment(experiment):
                there = self.others.find(experiment, f.timing.algo, f.timing.work)
                if own := [t for t in there if t.algo == f.timing.algo]:
                    found.append(f.timing.per_round / mean_per_round(own))
        return median(found) if found else 1.0

    def _rounds(self, run: PlannedRun) -> int | None:
        if run.config is not None:
            return run.config.rounds
        return run.keys.get("rounds", self.others.rounds.get(run.experiment))

    def _in_experiment(self, experiment: str) -> list[_Finished]:
        if experiment not in self._finished:
            self._finished[experiment] = [
                _Finished(setting.name, t)
                for setting in sorted((self.results / experiment).glob("*/*"))
                for t in _of_setting(experiment, setting)
            ]
        return self._finished[experiment]


def _of_work(finished: Sequence[_Finished], work: Work) -> list[Timing]:
    return [f.timing for f in finished if f.timing.work == work]


def _of_setting(experiment: str, folder: Path) -> list[Timing]:
    """Return the times of the finished runs of a setting; those that cannot be read have none."""
    paths = [path for path in sorted(folder.glob("seed_*")) if is_done(path)]
    meta = {"experiment": experiment, "algo": folder.parent.name, **(_facts(paths[0]) if paths else {})}
    found = []
    for path in paths:
        try:
            found.append(timing_of(Run(path, {}, meta)))
        except DamagedRun:
            continue
    return [t for t in found if t is not None]


def _facts(path: Path) -> Tree:
    """Return what departs from the experiment in a run, and its model; nothing if that cannot be read."""
    try:
        facts = from_json((path / "meta.json").read_bytes())
        found = {key: facts[key] for key in ("departures", "model")}
        work_of_run(found)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}  # of a damaged run, which the report names
    return found


def time_text(seconds: float) -> str:
    """Return a time in words of a plan."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172800 else f"{seconds / 86400:.0f} days"

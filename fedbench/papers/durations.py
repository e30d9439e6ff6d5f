"""Estimated durations of planned runs, from the seconds that finished runs took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from fedbench.papers.plan import PlannedRun
from fedbench.runs.records import DamagedRun, is_done
from fedbench.runs.store import Run


@dataclass(frozen=True)
class Duration:
    """The time that runs take.

    Attributes:
        seconds: Sum over the runs with an estimate.
        rough: Whether part of the sum comes from runs of another setting.
        unknown: Number of runs without an estimate.
    """

    seconds: float = 0.0
    rough: bool = False
    unknown: int = 0

    def text(self, at_once: int = 1) -> str:
        """Return the duration with several runs at once as text: ``~`` if it is rough, ``+ ?`` if runs are unknown."""
        if not self.seconds:
            return "unknown" if self.unknown else "–"
        return f"{'~' if self.rough else ''}{_time_text(self.seconds / at_once)}{' + ?' if self.unknown else ''}"


@dataclass(frozen=True)
class _Finished:
    algo: str
    digest: str
    rounds: int
    seconds: float


class Durations:
    """Times of the finished runs of a results directory.

    The estimate for a planned run is the mean over runs of the same setting with other seeds. Without such runs it is
    rough: the mean time per round of its algorithm's runs in the same experiment, or of all algorithms there.
    """

    def __init__(self, results: Path) -> None:
        self.results = results
        self._finished: dict[str, list[_Finished]] = {}

    def of(self, runs: Iterable[PlannedRun]) -> Duration:
        """Return the estimated time of the runs that are not done."""
        every = [self._of_one(r) for r in runs if not r.done]
        return Duration(sum(d.seconds for d in every), any(d.rough for d in every), sum(d.unknown for d in every))

    def _of_one(self, run: PlannedRun) -> Duration:
        finished = self._in_experiment(run.experiment)
        if run.path is None or run.config is None or not finished:
            return Duration(unknown=1)
        if same := [f.seconds for f in finished if (f.algo, f.digest) == (run.algo, run.path.parent.name)]:
            return Duration(mean(same))
        like = [f for f in finished if f.algo == run.algo] or finished
        return Duration(run.config.rounds * mean(f.seconds / f.rounds for f in like), rough=True)

    def _in_experiment(self, experiment: str) -> list[_Finished]:
        if experiment not in self._finished:
            paths = sorted((self.results / experiment).glob("*/*/seed_*"))
            self._finished[experiment] = [f for path in paths if is_done(path) and (f := _read(path)) is not None]
        return self._finished[experiment]


def _read(path: Path) -> _Finished | None:
    try:
        last = Run(path, {}, {}).last_round()
    except DamagedRun:
        return None  # without a time; the report lists it as damaged
    rounds = int(last["round"])
    if not rounds:
        return None
    seconds = float(last["seconds_train"] + last["seconds_eval"])
    return _Finished(path.parent.parent.name, path.parent.name, rounds, seconds)


def _time_text(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172800 else f"{seconds / 86400:.0f} days"

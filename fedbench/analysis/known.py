"""Known numbers: what runs have measured of them, and whether it agrees with what others published."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Literal

from fedbench.analysis.claims.curves import rounds_to
from fedbench.analysis.known_runs import KnownRuns
from fedbench.core.errors import RequestError
from fedbench.core.metrics import metric_info
from fedbench.papers.known.plan import Wanted, wanted
from fedbench.papers.known.registry import Measure, Reference
from fedbench.papers.plan import PROFILES, PlannedRun
from fedbench.runs.run import Run

KnownVerdict = Literal["agrees", "differs", "measured", "incomplete", "not run"]


@dataclass(frozen=True)
class Tried:
    """A value of a tuned key.

    Attributes:
        measured: The number of its run, infinite if a target was not reached; None for a run that diverged or is not
            finished.
        state: What became of the run.
        score: What the values are ordered by, the best one first; None without a number.
    """

    value: float
    measured: float | None
    state: Literal["done", "diverged", "not run"]
    score: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class TunedGrid:
    """The values of a tuned key that were tried for an algorithm."""

    key: str
    tried: tuple[Tried, ...]

    @property
    def chosen(self) -> float | None:
        """The value whose run has the best number; None while a run is missing.

        Of values that do not reach the target, and of equal ones, the one with the best value in any round counts.
        """
        if any(t.state == "not run" for t in self.tried):
            return None
        return min(((t.score, t.value) for t in self.tried if t.score is not None), default=(None, None))[1]

    @property
    def at_edge(self) -> bool:
        """Whether the chosen value is the smallest or the largest, beyond which there may be better ones."""
        return self.chosen in (self.tried[0].value, self.tried[-1].value)


@dataclass(frozen=True)
class KnownResult:
    """What runs have measured of a known number, in the unit of the page.

    Attributes:
        values: The measured number by seed; infinite where a target was not reached.
        diverged: Seeds that diverged.
        grids: The grid of a tuned key for each algorithm; empty if nothing is tuned.
        unofficial: Sentences on data that are not the publisher's.
        seconds: Training and evaluation of the runs that count, all together.
        rounds: Rounds of the shortest run that counts; None without runs.
    """

    wanted: Wanted
    values: Mapping[int, float]
    diverged: tuple[int, ...]
    grids: Mapping[str, TunedGrid]
    unofficial: tuple[str, ...]
    seconds: float
    rounds: int | None = None

    @property
    def mean(self) -> float | None:
        """The mean over seeds; infinite if a seed did not reach the target."""
        return mean(self.values.values()) if self.values else None

    @property
    def std(self) -> float | None:
        """The sample standard deviation over seeds; None for fewer than two, or if a seed did not reach the target."""
        values = list(self.values.values())
        return stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else None

    @property
    def differences(self) -> list[tuple[str, float]]:
        """The mean minus each published value, by who published it."""
        m = self.mean
        if m is None or not math.isfinite(m):
            return []
        return [(p.by, m - p.value) for p in self.wanted.number.published if p.value is not None]

    @property
    def verdict(self) -> KnownVerdict:
        """Whether the mean lies within the band, once all seeds are done; a seed that diverged does not.

        Runs that end before the upper bound of the band cannot show that a target is reached too late. A number
        without a published value is measured only.
        """
        if not self.values and not self.diverged:
            return "not run"
        if len(self.values) + len(self.diverged) < self.wanted.seeds:
            return "incomplete"
        if self.too_short and not self.diverged:
            return "incomplete"
        if not self.wanted.number.published:
            return "measured"
        low, high = self.wanted.number.band
        m = self.mean
        if m is None or self.diverged or (low is not None and m < low) or (high is not None and m > high):
            return "differs"
        return "agrees" if math.isfinite(m) else "differs"

    @property
    def too_short(self) -> bool:
        """Whether a seed did not reach the target in fewer rounds than the band allows."""
        high, missed = self.wanted.number.band[1], any(math.isinf(v) for v in self.values.values())
        return missed and high is not None and self.rounds is not None and self.rounds < high

    @property
    def reduced(self) -> bool:
        """Whether the runs have less than the setting on record, or data of their own."""
        return bool(self.wanted.cut or self.unofficial or self.wanted.seeds < self.wanted.number.seeds)


def unit_of(measure: Measure, difference: bool) -> str:
    """Return the unit of a number on the page."""
    if measure.kind == "rounds_to":
        return "rounds"
    info = metric_info(measure.field)
    return info.difference_unit if difference else info.unit


def measured(run: Run, measure: Measure, rounds: int) -> float:
    """Return the number of a run, in the unit of the page.

    Args:
        run: A run that has ended.
        measure: What to read of it.
        rounds: The run's rounds on record. The rounds of a measure are scaled if the run has fewer.

    Raises:
        RequestError: If the run was not evaluated in these rounds.
    """
    info = metric_info(measure.field)
    curve = run.curves((measure.field,)).set_index("round")[measure.field].dropna()
    lower = info.direction == "lower"
    if measure.kind == "rounds_to":
        assert measure.target is not None
        return rounds_to(curve, measure.target, lower)
    if measure.kind == "best":
        return float(info.factor * (curve.min() if lower else curve.max()))
    assert measure.first is not None
    share = min(1.0, run.config["rounds"] / rounds)
    first = max(1, math.ceil(share * measure.first))
    last = first if measure.last is None else max(first, math.floor(share * measure.last))
    part = curve.loc[first:last]
    if part.empty:
        raise RequestError(f"{run.path} was not evaluated in rounds {first} to {last}; choose a smaller eval_every")
    return float(info.factor * part.mean())


def tuned_grid(wanted: Wanted, algo: str, runs: KnownRuns) -> TunedGrid | None:
    """Return what the runs of a grid have measured; None for a number without a grid."""
    grid = wanted.number.grid
    if grid is None:
        return None
    rounds = runs.rounds(wanted)
    found = zip(grid.values, runs.of(wanted.grid(algo)), strict=True)
    return TunedGrid(grid.key, tuple(_tried(value, run, wanted.number.measure, rounds) for value, run in found))


def _tried(value: float, run: Run | None, measure: Measure, rounds: int) -> Tried:
    if run is None:
        return Tried(value, None, "not run")
    if not run.counts:
        return Tried(value, None, "diverged")
    own = measured(run, measure, rounds)
    sign = metric_info(measure.field).sign
    best = sign * measured(run, Measure("best", measure.field), rounds)
    return Tried(value, own, "done", ((own if measure.kind == "rounds_to" else -sign * own), -best, value))


def grids_of(wanted: Wanted, runs: KnownRuns) -> dict[str, TunedGrid]:
    """Return the grid of every algorithm of a number; empty if nothing is tuned."""
    found = ((algo, tuned_grid(wanted, algo, runs)) for algo in wanted.number.algos)
    return {algo: grid for algo, grid in found if grid is not None}


def counting(wanted: Wanted, grids: Mapping[str, TunedGrid]) -> list[PlannedRun]:
    """Return the runs that count, of algorithms whose grid is complete."""
    found = []
    for algo in wanted.number.algos:
        tuned = grids[algo].chosen if algo in grids else None
        if algo not in grids or tuned is not None:
            found += wanted.runs(algo, tuned)
    return found


def result_of(wanted: Wanted, runs: KnownRuns) -> KnownResult:
    """Return what the runs of a number have measured.

    Args:
        wanted: The number.
        runs: The finished runs.
    """
    grids, rounds = grids_of(wanted, runs), runs.rounds(wanted)
    planned = counting(wanted, grids)
    values: dict[str, dict[int, float]] = {algo: {} for algo in wanted.number.algos}
    diverged: set[int] = set()
    unofficial: dict[str, None] = {}
    seconds, lengths = 0.0, []
    for plan, run in zip(planned, runs.of(planned), strict=True):
        if run is None:
            continue
        seconds += seconds_of(run)
        lengths.append(int(run.config["rounds"]))
        unofficial |= dict.fromkeys(run.unofficial)
        if run.counts:
            values[plan.algo][plan.seed] = measured(run, wanted.number.measure, rounds)
        else:
            diverged.add(plan.seed)
    own, other = wanted.number.algo, wanted.number.against
    numbers = values[own]
    if other is not None:
        numbers = {seed: v - values[other][seed] for seed, v in numbers.items() if seed in values[other]}
    numbers = dict(sorted((seed, v) for seed, v in numbers.items() if seed not in diverged))
    shortest = min(lengths, default=None)
    return KnownResult(wanted, numbers, tuple(sorted(diverged)), grids, tuple(unofficial), seconds, shortest)


def seconds_of(run: Run) -> float:
    """Return the seconds of training and evaluation of a finished run."""
    last = run.last_round()
    return float(last["seconds_train"] + last["seconds_eval"])


def results_on_record(references: Iterable[Reference], runs: KnownRuns) -> list[KnownResult]:
    """Return every number under the profile of which most has been run, in doubt the one nearest to the source."""
    every = [wanted(list(references), profile) for profile in PROFILES]
    return [max((result_of(w, runs) for w in forms), key=_share) for forms in zip(*every, strict=True)]


def used_runs(results: Iterable[KnownResult], runs: KnownRuns) -> list[Run]:
    """Return the finished runs that some numbers rest on: those that count and those of grids, each once."""
    found: dict[Path, Run] = {}
    for result in results:
        w = result.wanted
        planned = [*(run for algo in w.number.algos for run in w.grid(algo)), *counting(w, result.grids)]
        found |= {run.path: run for run in runs.of(planned) if run is not None}
    return list(found.values())


def _share(result: KnownResult) -> tuple[float, float]:
    """Return which share of a number's seeds, and of its grids, has been run."""
    tried = [t for grid in result.grids.values() for t in grid.tried]
    ended = sum(t.state != "not run" for t in tried)
    return (len(result.values) + len(result.diverged)) / result.wanted.seeds, ended / max(1, len(tried))

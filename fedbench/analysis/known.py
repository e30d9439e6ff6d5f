"""Known numbers: what runs have measured of them, and whether it agrees with what others published."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Literal

from fedbench.analysis.measures import rounds_to
from fedbench.analysis.metrics_catalogue import metric_info
from fedbench.core.errors import RequestError
from fedbench.papers.known.plan import Wanted
from fedbench.papers.known.registry import Measure
from fedbench.papers.plan import PlannedRun
from fedbench.runs.store import Run, read_run

KnownVerdict = Literal["agrees", "differs", "incomplete", "not run"]


@dataclass(frozen=True)
class KnownResult:
    """What runs have measured of a known number, in the unit of the page.

    Attributes:
        values: The measured number by seed; infinite where a target was not reached.
        diverged: Seeds that diverged.
        tuned: The chosen value of a tuned key for each algorithm; None while the grid is not complete.
        unofficial: Sentences on data that are not the publisher's.
        seconds: Training and evaluation of the runs that count, all together.
    """

    wanted: Wanted
    values: Mapping[int, float]
    diverged: tuple[int, ...]
    tuned: Mapping[str, float | None]
    unofficial: tuple[str, ...]
    seconds: float

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
        """Whether the mean lies within the band, once all seeds are done; a seed that diverged does not."""
        if not self.values and not self.diverged:
            return "not run"
        if len(self.values) + len(self.diverged) < self.wanted.seeds:
            return "incomplete"
        low, high = self.wanted.number.band
        m = self.mean
        if m is None or self.diverged or (low is not None and m < low) or (high is not None and m > high):
            return "differs"
        return "agrees" if math.isfinite(m) else "differs"

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


def best_of_grid(runs: Sequence[PlannedRun], wanted: Wanted, rounds: int) -> float | None:
    """Return the value of the tuned key whose run has the best measure; None while a run is missing.

    Of values that do not reach the target, and of equal ones, the one with the best value in any round counts.
    """
    grid, measure = wanted.number.grid, wanted.number.measure
    assert grid is not None
    if not all(run.done for run in runs):
        return None
    scored = []
    for run in runs:
        assert run.path is not None
        found = read_run(run.path)
        if found.counts:
            sign = 1.0 if measure.kind == "rounds_to" else -float(metric_info(measure.field).sign)
            best = measured(found, Measure("best", measure.field), rounds) * metric_info(measure.field).sign
            scored.append((sign * measured(found, measure, rounds), -best, float(run.wanted[grid.key])))
    return min(scored)[2] if scored else None


def result_of(
    wanted: Wanted, runs: Mapping[str, Sequence[PlannedRun]], tuned: Mapping[str, float | None], rounds: int
) -> KnownResult:
    """Return what the runs of a number have measured.

    Args:
        wanted: The number.
        runs: The runs that count, by algorithm, located.
        tuned: The chosen value of a tuned key, by algorithm.
        rounds: The rounds on record.
    """
    values: dict[str, dict[int, float]] = {algo: {} for algo in runs}
    diverged: set[int] = set()
    unofficial: dict[str, None] = {}
    seconds = 0.0
    for algo, planned in runs.items():
        for run in planned:
            if not run.done or run.path is None:
                continue
            found = read_run(run.path)
            last = found.last_round()
            seconds += float(last["seconds_train"] + last["seconds_eval"])
            unofficial |= dict.fromkeys(found.unofficial)
            if found.counts:
                values[algo][run.seed] = measured(found, wanted.number.measure, rounds)
            else:
                diverged.add(run.seed)
    own, other = wanted.number.algo, wanted.number.against
    numbers = values[own]
    if other is not None:
        numbers = {seed: v - values[other][seed] for seed, v in numbers.items() if seed in values[other]}
    numbers = dict(sorted((seed, v) for seed, v in numbers.items() if seed not in diverged))
    return KnownResult(wanted, numbers, tuple(sorted(diverged)), dict(tuned), tuple(unofficial), seconds)

"""Results of a benchmark: numbers and leads per setting, ranks and profiles over settings.

A held-out variant is treated like a setting of its own. Numbers are in the displayed unit, and a
diverged run is worse than every other.
"""

from collections.abc import (
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from math import (
    inf,
    isfinite,
    nan,
)
from operator import attrgetter
from statistics import mean
from typing import Literal

import numpy as np

from fedbench.analysis.claims.comparison import Comparison
from fedbench.analysis.matching import ALPHA
from fedbench.analysis.ranks import average_ranks
from fedbench.analysis.stats import (
    Paired,
    has_scale,
    paired,
    with_diverged,
)
from fedbench.analysis.stepdown import adjusted
from fedbench.analysis.table_model import Cell
from fedbench.benchmarks.definition import Benchmark
from fedbench.benchmarks.entries import Entry
from fedbench.core.metrics import MetricInfo, metric_info
from fedbench.runs.run import Run

Numbers = Mapping[int, float]  # by seed
State = Literal["ahead", "behind", "open"]


@dataclass(frozen=True)
class Result:
    """The result of a method in a setting or in its held-out variant.

    Attributes:
        numbers: Values of the last round by metric and seed. A method whose trials all diverged
            has no runs, and counts as diverged in every seed.
        seeds: The number of seeds of the benchmark.
        reason: Why numbers are missing; empty if none are.
    """

    numbers: Mapping[str, Numbers]
    seeds: int
    reason: str

    def cell(self, metric: str) -> Cell:
        """Return the values of a metric without those of diverged runs."""
        return Cell(tuple(filter(isfinite, self.numbers[metric].values())))

    def score(self, metric: str) -> float | None:
        """Return the mean over seeds, higher is better; None if a seed is missing.

        The score is negative infinity if a run diverged or every trial did.
        """
        values = self.numbers[metric].values()
        if len(values) < self.seeds:
            return None
        return metric_info(metric).sign * mean(values)


Results = Mapping[str, Result]  # by method


@dataclass(frozen=True)
class Lead:
    """The lead of one method over another, over their common seeds.

    Attributes:
        difference: Mean gain with its interval, and p-values; positive is better.
        p: The smaller one-sided p-value, adjusted for the number of leads by the step-down
            procedure (``fedbench.analysis.stepdown``).
        state: ``ahead`` or ``behind`` if the adjusted p-value of that direction is at most 5 %,
            else ``open``.
    """

    difference: Paired
    p: float
    state: State


# ---- numbers of methods


def results_of(
    benchmark: Benchmark,
    entries: Iterable[Entry],
    *,
    held_out: bool = False,
) -> dict[str, Results]:
    """Return the results by setting, in the order of the benchmark.

    Args:
        benchmark: The benchmark.
        entries: Its entries. Methods are put in alphabetical order.
        held_out: Whether to return the results in the held-out variants.
    """
    results: dict[str, dict[str, Result]] = {setting: {} for setting in benchmark.settings}
    for entry in sorted(entries, key=attrgetter("method")):
        runs = entry.held_out if held_out else entry.runs
        numbers = {}
        for name in benchmark.metrics:
            metric = metric_info(name)
            numbers[name] = _numbers(runs, metric)
            if entry.trials and entry.chosen is None:
                numbers[name] = dict.fromkeys(range(benchmark.seeds), -metric.sign * inf)
        outcomes = {run.meta["seed"]: run.outcome for run in runs}
        missing = []
        for seed in range(benchmark.seeds):
            outcome = outcomes.get(seed, "without a run")
            if outcome != "done":
                missing.append(f"seed {seed} {outcome}")
        results[entry.setting][entry.method] = Result(
            numbers,
            benchmark.seeds,
            reason=entry.reason or ", ".join(missing),
        )
    return dict(results)


def _numbers(runs: Sequence[Run], metric: MetricInfo) -> dict[int, float]:
    """Return the values of a metric by seed, infinitely bad for diverged runs."""
    numbers = {}
    for run in runs:
        seed = run.meta["seed"]
        if run.outcome == "diverged":
            numbers[seed] = -metric.sign * inf
        elif run.counts:
            value = run.last_round().get(metric.name)
            if value is not None:
                numbers[seed] = metric.factor * float(value)
    return numbers


# ---- leads


def leads(
    results: Results,
    metric: str,
    method: str,
    *,
    over: bool = False,
) -> dict[str, Lead]:
    """Return the leads of the other methods over one, tested together, by other method.

    Args:
        results: The results.
        metric: The metric.
        method: The one method. Methods are left out that share no seed with it, or diverged
            in the same ones.
        over: Whether to return the leads of the one method over the others instead.
    """
    sign = metric_info(metric).sign * (-1 if over else 1)
    one = results[method].numbers[metric] if method in results else {}
    tests = []
    differences = {}
    for other, result in results.items():
        numbers = result.numbers[metric]
        by_seed = {}
        for seed in sorted(numbers.keys() & one.keys()):
            by_seed[seed] = sign * (numbers[seed] - one[seed])
        counted = with_diverged(by_seed)
        if other != method and counted:
            differences[other] = paired(
                counted.values(),
                scaled=has_scale(by_seed),
            )
            tests.append(Comparison(other, differences=counted))

    ahead = adjusted(tests)
    behind = adjusted(tests, ahead=False)
    of_others = {}
    for other, p_ahead, p_behind in zip(
        differences,
        ahead,
        behind,
        strict=True,
    ):
        state: State = "open"
        if p_ahead <= ALPHA:
            state = "ahead"
        elif p_behind <= ALPHA:
            state = "behind"
        of_others[other] = Lead(
            differences[other],
            min(p_ahead, p_behind),
            state,
        )
    return of_others


# ---- over settings


def scores_of(settings: Collection[Results], metric: str) -> dict[str, list[float]]:
    """Return the score of each method in every setting; NaN where a seed is missing."""
    scores: dict[str, list[float]] = {}
    for method in sorted(set().union(*settings)):
        scores[method] = []
        for results in settings:
            score = None
            if method in results:
                score = results[method].score(metric)
            scores[method].append(nan if score is None else score)
    return scores


def ranked(scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the average ranks of methods over settings, each with the means over its seeds.

    A method with a diverged run, or whose trials all diverged, is the worst of its setting, tied
    with others like it. Methods that have not been run with every seed of every setting are left
    out.

    Args:
        scores: The scores, as ``scores_of`` returns them.
    """
    complete = {}
    for method, row in scores.items():
        if not np.isnan(row).any():
            complete[method] = row
    if not complete:
        return {}
    blocks = np.array(list(complete.values())).T
    return dict(zip(complete, average_ranks(blocks), strict=True))


def profile(scores: Mapping[str, Sequence[float]]) -> dict[str, np.ndarray]:
    """Return the gaps of each method to the best of each setting, in ascending order.

    The performance profile of a method is ρ(τ), the share of settings in which its gap is at most
    τ. Dolan & Moré (2002, Sec. 2) define the profile of costs with the ratio to the lowest cost.
    The difference from the best score is used here instead, because a ratio of accuracies depends
    on their level, and that of errors is unbounded near 0. As in their definition, a method that
    fails in a setting has an infinite gap there.

    Args:
        scores: Score of each method in every setting, higher is better; NaN or negative infinity
            for a failure.
    """
    values = np.array(list(scores.values()))
    values[np.isnan(values)] = -np.inf
    best = values.max(0)
    best[np.isneginf(best)] = 0.0  # no method has a score: every gap is infinite
    gaps = np.sort(best - values)
    return dict(zip(scores, gaps, strict=True))

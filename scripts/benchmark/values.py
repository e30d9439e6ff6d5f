"""Values of the benchmark: lines per table, setting and method, fronts, ranks over settings."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmark.comparisons import MEASURED, Comparisons
from benchmark.ranks import RankTest, rank_test
from fedbench.analysis.claims.comparison import ALPHA, Comparison
from fedbench.analysis.stats import Paired, paired, with_diverged
from fedbench.analysis.stepdown import adjusted

BASELINE = "fedavg"
COMPARED = ("accuracy_mean", "accuracy_worst10")  # higher is better in both


@dataclass(frozen=True)
class Number:
    """A mean over seeds.

    Attributes:
        mean: The mean.
        std: Sample standard deviation over seeds; None for a single one.
    """

    mean: float
    std: float | None


@dataclass(frozen=True)
class Lead:
    """The lead of a method over FedAvg, over the seeds.

    Attributes:
        difference: Mean difference with its interval, and p-values.
        state: ``ahead`` or ``behind`` if the p-value of that direction is at most 5 %, adjusted for
            the number of methods by the step-down procedure (``fedbench.analysis.stepdown``), else
            ``open``.
    """

    difference: Paired
    state: str


@dataclass(frozen=True)
class Line:
    """Results of a method in a setting.

    Attributes:
        numbers: Mean of each metric over the seeds with finished runs, if they have the metric.
        leads: Lead over FedAvg in each metric of ``COMPARED``; empty for FedAvg itself, and without
            runs.
        done: Number of the seeds with finished runs.
        reason: Why numbers or seeds are missing; empty if none are.
    """

    table: str
    setting: str
    method: str
    numbers: dict[str, Number]
    leads: dict[str, Lead]
    done: int
    reason: str


@dataclass(frozen=True)
class Front:
    """The Pareto front of a setting by the two metrics of ``COMPARED``.

    Attributes:
        methods: Names of the M methods.
        means: Means over the seeds [2, M]; NaN where a seed is missing.
        stds: Sample standard deviations over the seeds [2, M]; NaN for a single seed.
        member: Whether the method's means are on the front [M].
    """

    setting: str
    methods: tuple[str, ...]
    means: np.ndarray
    stds: np.ndarray
    member: np.ndarray


# ---- lines of tables


def lines_of(comparisons: Comparisons, table: str) -> list[Line]:
    """Return a line for every setting and method, by the order of settings and names of methods."""
    lines = []
    for setting in comparisons.settings:
        leads: dict[str, dict[str, Lead]] = defaultdict(dict)
        for metric in COMPARED:
            for method, lead in _leads(comparisons, table, setting, metric):
                leads[method][metric] = lead
        for method in comparisons.methods(table):
            line = _line(
                comparisons,
                table,
                setting,
                method,
                leads[method],
            )
            lines.append(line)
    return lines


def _leads(
    comparisons: Comparisons,
    table: str,
    setting: str,
    metric: str,
) -> Iterator[tuple[str, Lead]]:
    """Yield every method with runs and its lead over FedAvg; a diverged run is behind."""
    runs = comparisons.runs_of(table, setting)
    methods = sorted(set(runs["method"]))
    if BASELINE not in methods:
        return
    methods.remove(BASELINE)

    values = comparisons.values(
        table,
        setting,
        metric,
        [BASELINE, *methods],
    )
    values = np.where(np.isnan(values), -np.inf, values)
    with np.errstate(invalid="ignore"):  # NaN where both have no number
        differences = values[:, 1:] - values[:, :1]

    tests = []
    for method, column in zip(methods, differences.T, strict=True):
        by_seed = dict(enumerate(map(float, column)))
        test = Comparison(
            method,
            differences=with_diverged(by_seed),
        )
        tests.append(test)
    ahead = adjusted(tests)
    behind = adjusted(tests, ahead=False)

    for test, p_ahead, p_behind in zip(tests, ahead, behind, strict=True):
        state = "open"
        if p_ahead <= ALPHA:
            state = "ahead"
        elif p_behind <= ALPHA:
            state = "behind"
        difference = paired(test.differences.values())
        yield test.label, Lead(difference, state)


def _line(
    comparisons: Comparisons,
    table: str,
    setting: str,
    method: str,
    leads: dict[str, Lead],
) -> Line:
    runs_of_all = comparisons.runs_of(table, setting)
    runs = runs_of_all[runs_of_all["method"] == method]
    done = runs[runs["outcome"] == "done"]

    numbers = {}
    for metric in MEASURED:
        known = done[metric].dropna()
        std = None
        if len(known) > 1:
            std = float(known.std())
        if len(known):
            numbers[metric] = Number(float(known.mean()), std)
    if "bytes_up" in numbers:
        total = done["bytes_up"] + done["bytes_down"]
        per_round = total / done["rounds"]
        numbers["bytes_per_round"] = Number(float(per_round.mean()), None)

    if runs.empty:
        refused = comparisons.searches[setting]["refused"]
        reason = str(refused.get(method, "every trial of its rates diverged or failed"))
    else:
        reason = _missing(runs_of_all["seed"], runs)
    return Line(
        table=table,
        setting=setting,
        method=method,
        numbers=numbers,
        leads=leads,
        done=len(done),
        reason=reason,
    )


def _missing(every_seed: pd.Series, runs: pd.DataFrame) -> str:
    """Return the seeds of a method that have no numbers, with the reasons."""
    outcomes = dict(zip(runs["seed"], runs["outcome"], strict=True))
    seeds: dict[str, list[str]] = {}
    for seed in sorted(set(every_seed)):
        outcome = outcomes.get(seed, "without a run")
        if outcome != "done":
            seeds.setdefault(outcome, []).append(str(seed))

    texts = []
    for outcome, numbers in sorted(seeds.items()):
        noun = "seeds" if len(numbers) > 1 else "seed"
        texts.append(f"{noun} {', '.join(numbers)} {outcome}")
    return "; ".join(texts)


# ---- fronts


def front_of(comparisons: Comparisons, setting: str) -> Front:
    """Return the front of a setting over its methods with runs, with uniform weights."""
    runs = comparisons.runs_of("uniform", setting)
    methods = sorted(set(runs["method"]))
    means = []
    stds = []
    for metric in COMPARED:
        values = comparisons.values("uniform", setting, metric, methods)
        means.append(values.mean(0))
        std = np.full(len(methods), np.nan)
        if len(values) > 1:
            std = values.std(0, ddof=1)
        stds.append(std)
    return Front(
        setting=setting,
        methods=tuple(methods),
        means=np.stack(means),
        stds=np.stack(stds),
        member=on_front(*means),
    )


def on_front(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return whether points are on the front [M].

    A point is on the front unless another is at least as good in both metrics and better in one;
    equal points are on it together.

    Args:
        x: The first metric [M], higher is better. A point with NaN in either metric is not on the
            front and dominates none.
        y: The second metric [M], likewise.
    """
    known = ~(np.isnan(x) | np.isnan(y))
    x = np.where(known, x, -np.inf)
    y = np.where(known, y, -np.inf)
    # [point itself, every other point]
    as_good = (x >= x[:, None]) & (y >= y[:, None])
    better = (x > x[:, None]) | (y > y[:, None])
    dominated = (as_good & better).any(1)
    front: np.ndarray = known & ~dominated
    return front


# ---- ranks


def ranked(comparisons: Comparisons, table: str, metric: str) -> RankTest | None:
    """Return the ranks of methods over settings; None if there are too few to test.

    Each setting is a block with the means over its seeds. A method with a diverged run or without a
    successful trial is the worst of the setting, tied with others like it. Methods that a setting
    refuses are left out, because Friedman's test needs complete blocks. In the table with weights
    by size, methods with a rule of their own have the numbers of the table with uniform weights.
    """
    left_out = without_ranks(comparisons)
    methods = [m for m in comparisons.methods("uniform") if m not in left_out]
    if len(methods) < 3 or len(comparisons.settings) < 2:
        return None

    in_table = comparisons.methods(table)
    blocks = []
    for setting in comparisons.settings:
        means = []
        for method in methods:
            source = table if method in in_table else "uniform"
            values = comparisons.values(
                source,
                setting,
                metric,
                [method],
            )
            means.append(values.mean())
        blocks.append(means)
    return rank_test(methods, np.array(blocks))


def without_ranks(comparisons: Comparisons) -> list[str]:
    """Return the methods that are left out of ranks because a setting refuses them."""
    refused: set[str] = set()
    for search in comparisons.searches.values():
        refused |= search["refused"].keys()
    return sorted(refused)

"""Tests for differences between methods, on runs that differ in a single key, paired by seed.

The runs of a block are equal in everything except the compared key, the seed and the keys that do
not affect the results. If methods are compared, the keys of a method (``algo`` and ``local``) do
not separate blocks; a note reports differences in ``local``.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from math import isfinite
from statistics import mean
from typing import Any, TypeAlias

import numpy as np

from fedbench.analysis.ranks import average_ranks
from fedbench.analysis.settings import (
    SeedBlock,
    Setting,
    blocks_of,
    differing,
    rank,
)
from fedbench.analysis.stats import (
    Paired,
    has_scale,
    holm,
    least_p,
    paired,
    with_diverged,
)
from fedbench.analysis.table_model import Cell
from fedbench.core.config_values import WEIGHTS, config_value, weights_of
from fedbench.core.errors import RequestError
from fedbench.core.metrics import MetricInfo, metric_info
from fedbench.core.options import OpenUnit
from fedbench.core.validation import choice, validate
from fedbench.runs.run import Run

LISTED = 3  # maximum number of listed blocks with nothing to compare
# by method and seed, in the printed unit; infinitely bad if the run diverged
Numbers: TypeAlias = dict[str, dict[int, float]]


@dataclass(frozen=True)
class Difference:
    """The difference between two methods in a block, paired by seed.

    Attributes:
        first: The first method.
        second: The method that is subtracted from the first.
        adjusted: Two-sided p-value, adjusted by Holm's method over the block.
        ahead: Whether the first method is better (higher, if neither direction is better); None if
            undecided.
    """

    first: str
    second: str
    paired: Paired
    adjusted: float
    ahead: bool | None


@dataclass(frozen=True, kw_only=True)
class ComparedBlock(SeedBlock):
    """Settings that differ only in the compared key, and the differences between their results.

    Attributes:
        numbers: The numbers per method, without diverged runs.
        unpaired: Pairs of methods that share no seed and are therefore not tested.
        short: Numbers of paired seeds that are too small for any verdict.
        without_baseline: Whether the baseline has no runs in this block.
        unequal: Values of the clients' weights and of each local-solver key in which methods
            differ, by key and method; keys shown in the methods' names are left out.
    """

    numbers: dict[str, Cell]
    differences: tuple[Difference, ...]
    unpaired: tuple[tuple[str, str], ...]
    short: tuple[int, ...]
    without_baseline: bool
    unequal: dict[str, dict[str, str]]


@dataclass(frozen=True)
class OverBlocks:
    """Comparisons over several blocks.

    Attributes:
        counts: Numbers of blocks won, undecided and lost by the first method of each pair.
        short: Numbers of paired seeds that are too small for any verdict in a block.
        full: Number of blocks with runs of all methods.
        ranks: Average rank of each method over these blocks, where 1 is best and equal means share
            their ranks; empty if there are fewer than two blocks or fewer than three methods.
        diverged: Whether a run used for the ranks diverged.
    """

    counts: dict[tuple[str, str], tuple[int, int, int]]
    short: tuple[int, ...]
    full: int
    ranks: tuple[float, ...]
    diverged: bool


@dataclass(frozen=True)
class ComparedRuns:
    """Comparisons of the values of a key; the values are called methods here.

    Attributes:
        key: Configuration key whose values are compared.
        names: Names of the methods, in the order of the tables.
        baseline: The method that all others are compared with; None for all pairs.
        blocks: Blocks of runs that are equal in everything except the key.
        over_blocks: Comparisons over the blocks; None for a single block.
        alone: Blocks with nothing to compare.
        without: Number of runs without the key.
    """

    key: str
    metric: MetricInfo
    names: tuple[str, ...]
    baseline: str | None
    alpha: float
    blocks: tuple[ComparedBlock, ...]
    over_blocks: OverBlocks | None
    alone: tuple[SeedBlock, ...]
    without: int


def compare(
    runs: Sequence[Run],
    key: str,
    metric: str,
    baseline: str | None = None,
    alpha: float = 0.05,
) -> ComparedRuns:
    """Return comparisons of the values of a key.

    Args:
        runs: Runs on disk. Unfinished runs are not counted. A diverged run is counted as worse than
            its partner by the largest difference among the other seeds, but its numbers are
            excluded from means.
        key: ``algo``, ``data``, ``model`` or a dotted configuration key.
        metric: A key of ``rounds.jsonl``; its value in the last round is compared.
        baseline: The value that all others are compared with, given by its name in the tables or
            by the value alone. If None, all pairs are compared.
        alpha: Significance level of the tests, in (0, 1).

    Raises:
        RequestError: If the key, metric or baseline is unknown, the metric was not measured, the
            level is out of range, or no two values of the key can be compared.
        DamagedRun: If a run cannot be read.
    """
    validate("alpha", alpha, OpenUnit, remedy="0.05 is usual")
    blocks = blocks_of(runs, key)
    shown = [block for block in blocks if len(block.rows) > 1]
    alone = [block for block in blocks if len(block.rows) < 2]
    if not shown:
        contents = "; ".join(f"{block.title}: {block.content}" for block in alone[:LISTED])
        raise RequestError(
            f"nothing to compare: --compare {key} needs finished runs of at least two values of "
            f"{key} whose other settings are equal; found {contents}. Run more, for example "
            f"fedbench -m {key}=A,B seed=0,1,2"
        )
    done = [run for block in shown for run in block.runs]
    if not done:
        raise RequestError("all runs that could be compared diverged")
    entry = measured_metric(metric, done)

    rows: dict[str, Setting] = {}
    for block in shown:
        rows |= block.rows

    def order(name: str) -> tuple[Any, str]:
        return rank(rows[name].value), name

    names = sorted(rows, key=order)
    against = None if baseline is None else _baseline(baseline, rows)
    numbers: list[Numbers] = []
    compared: list[ComparedBlock] = []
    for block in shown:
        present = [name for name in names if name in block.rows]
        by_method = {name: block.rows[name].numbers(entry) for name in present}
        numbers.append(by_method)
        compared.append(_compared(block, by_method, entry, against, alpha))
    over_blocks = None
    if len(shown) > 1:
        over_blocks = _over_blocks(numbers, names, entry, alpha)
    with_key = sum(len(s.runs) for block in blocks for s in block.settings)
    return ComparedRuns(
        key=key,
        metric=entry,
        names=tuple(names),
        baseline=against,
        alpha=alpha,
        blocks=tuple(compared),
        over_blocks=over_blocks,
        alone=tuple(alone),
        without=len(runs) - with_key,
    )


def measured_metric(name: str, runs: Sequence[Run]) -> MetricInfo:
    """Return the entry of a metric that all runs measured in their last round.

    Raises:
        RequestError: If the metric is unknown or was not measured in all of the runs.
    """
    last = {run.path: run.last_round() for run in runs}
    measured: dict[str, Any] = {}
    for row in last.values():
        measured |= row
    measured.pop("round")
    choice("metric", name, measured)
    missing = [path for path, row in last.items() if row.get(name) is None]
    if missing:
        raise RequestError(
            f"{name} must have been measured in all runs that are compared, but is null in "
            f"{len(missing)} of {len(last)}, first in {missing[0]}; choose another metric"
        )
    return metric_info(name)


def _compared(
    block: SeedBlock,
    numbers: Numbers,
    metric: MetricInfo,
    baseline: str | None,
    alpha: float,
) -> ComparedBlock:
    if baseline is None:
        pairs = list(combinations(numbers, 2))
    elif baseline in numbers:
        pairs = [(name, baseline) for name in numbers if name != baseline]
    else:
        pairs = []
    tested: dict[tuple[str, str], Paired] = {}
    for pair in pairs:
        test = _difference(
            numbers,
            *pair,
            metric,
            1 - alpha,
        )
        if test is not None:
            tested[pair] = test

    adjusted = holm([test.two_sided for test in tested.values()])
    differences = []
    for pair, p in zip(tested, adjusted, strict=True):
        first, second = pair
        test = tested[pair]
        ahead = None if p > alpha else metric.sign * test.mean > 0
        differences.append(Difference(first, second, test, p, ahead))

    counts = [test.n for test in tested.values()]
    least = holm([min(1.0, 2 * least_p(n)) for n in counts])  # lower bounds of adjusted p-values
    short = [n for n, p in zip(counts, least, strict=True) if p > alpha]
    cells = {}
    for name, by_seed in numbers.items():
        finite = filter(isfinite, by_seed.values())
        cells[name] = Cell(tuple(finite))
    return ComparedBlock(
        block.title,
        block.key,
        block.settings,
        numbers=cells,
        differences=tuple(differences),
        unpaired=tuple(pair for pair in pairs if pair not in tested),
        short=tuple(short),
        without_baseline=baseline is not None and baseline not in numbers,
        unequal=_unequal(block.rows) if block.key == "algo" else {},
    )


def _unequal(rows: Mapping[str, Setting]) -> dict[str, dict[str, str]]:
    """Return the values of weights and local-solver keys in which methods differ, by method.

    Keys shown in the methods' names are left out.
    """
    methods = {name: s.facts for name, s in rows.items() if s.counted}
    unequal = {}
    for key in sorted(differing(list(methods.values()))):
        shown = all(f" {key}=" in name for name in methods)
        if key.startswith("local.") and not shown:
            values = {name: facts.get(key) for name, facts in methods.items()}
            unequal[key] = {name: config_value(value) for name, value in values.items()}

    weights = {}
    for name in methods:  # the facts of a setting may lack the default
        weight = weights_of(rows[name].runs[0].flat)
        if weight and not any(f" {key}=" in name for key in WEIGHTS):
            weights[name] = weight
    if len(set(weights.values())) > 1:
        unequal["the weights of clients"] = weights
    return unequal


def _baseline(given: str, rows: Mapping[str, Setting]) -> str:
    """Return the name of the row that matches a given name, or a given value of the key."""
    texts = {given}
    with suppress(ValueError):
        texts.add(config_value(float(given)))  # 1e-3 is 0.001
    fitting = []
    for name, s in rows.items():
        if texts & {name, s.base, config_value(s.value)}:
            fitting.append(name)
    if len(fitting) == 1:
        return fitting[0]
    return choice("baseline", given, sorted(fitting) or list(rows))


def _difference(
    numbers: Numbers,
    first: str,
    second: str,
    metric: MetricInfo,
    level: float = 0.95,
) -> Paired | None:
    """Return the first method minus the second by seed, or None if no pair is left.

    A diverged run counts as worse than the other run (``with_diverged``); seeds for which both
    runs diverged are left out. For a metric without a better direction, all pairs with a diverged
    run are left out.
    """
    a = numbers[first]
    b = numbers[second]
    seeds = sorted(a.keys() & b.keys())
    differences = {seed: a[seed] - b[seed] for seed in seeds}
    if metric.direction is None:
        differences = {seed: d for seed, d in differences.items() if isfinite(d)}
    counted = with_diverged(differences)
    if not counted:
        return None
    return paired(
        counted.values(),
        level,
        scaled=has_scale(differences),
    )


def _over_blocks(
    blocks: Sequence[Numbers],
    names: Sequence[str],
    metric: MetricInfo,
    alpha: float,
) -> OverBlocks:
    """Return comparisons of the methods over several blocks."""
    counts: dict[tuple[str, str], tuple[int, int, int]] = {}
    short: list[int] = []
    for a, b in combinations(names, 2):
        tests = []
        for numbers in blocks:
            if {a, b} <= numbers.keys():
                tests.append(_difference(numbers, a, b, metric))
        known = [test for test in tests if test is not None]
        if not known:
            continue
        decided = [test for test in known if test.two_sided <= alpha]
        won = sum(metric.sign * test.mean > 0 for test in decided)
        lost = len(decided) - won
        undecided = len(known) - len(decided)
        counts[a, b] = won, undecided, lost
        counts[b, a] = lost, undecided, won
        short += [test.n for test in known if 2 * least_p(test.n) > alpha]

    full = [numbers for numbers in blocks if len(numbers) == len(names)]
    scores = []
    for numbers in full:
        means = [mean(by_seed.values()) for by_seed in numbers.values()]
        scores.append([metric.sign * value for value in means])
    ranks: tuple[float, ...] = ()
    if len(names) > 2 and len(full) > 1:
        ranks = tuple(average_ranks(scores))
    return OverBlocks(
        counts=counts,
        short=tuple(short),
        full=len(full),
        ranks=ranks,
        diverged=bool(np.isinf(scores).any()),
    )

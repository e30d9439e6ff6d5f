"""Claims about tables: comparisons of the measured numbers of cells, and of the printed numbers."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from statistics import mean
from typing import Any

from fedbench.analysis.claims.comparison import (
    Comparison,
    above,
    aligned,
    contest,
    joined,
    leads,
    tested,
)
from fedbench.analysis.claims.verdict import Verdict
from fedbench.analysis.departures import PerUnit, Unit
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.analysis.stats import kendall
from fedbench.core.errors import RequestError
from fedbench.core.metrics import metric_info
from fedbench.core.validation import choice
from fedbench.papers.checks import Averages, Compare, EqualRows, Trend, WithinBand
from fedbench.papers.schema import Paper, PrintedMetric, Row


def rows_of(paper: Paper, part: str, setup: str) -> list[Row]:
    """Return the rows of a table or figure in a setup; rows of one method differ in hyperparameters."""
    return [row for row in paper.rows(part) if row.setup == setup]


def row_of(paper: Paper, part: str, setup: str, algo: str, **hyper: Any) -> Row:
    """Return the first row of a method in a table or figure with the given hyperparameters.

    Raises:
        RequestError: If no such row exists.
    """
    for row in rows_of(paper, part, setup):
        if row.algo == algo and hyper.items() <= row.hyperparameters.items():
            return row
    given = "".join(f" with {key} {value}" for key, value in hyper.items())
    raise RequestError(f"{part} has no row of {algo}{given} on {setup}")


def own_and_best_other(
    evidence: Evidence, table: str, setup: str, algo: str, metric: str
) -> tuple[dict[Unit, tuple[float, float]], list[MatchedRuns]]:
    """Return the number of a method and the best one of all others by unit, and the runs of all rows.

    A unit counts only if every row has it: the best number may be the one that is missing.
    """
    m = evidence.paper.metrics[metric]
    rows = rows_of(evidence.paper, table, setup)
    runs = evidence.comparable(rows)
    values = {row.algo: side.values(m) for row, side in zip(rows, runs, strict=True)}
    best = min if m.direction == "lower" else max
    numbers = aligned(values.pop(algo), *values.values())
    return {unit: (own, best(others)) for unit, (own, *others) in numbers.items()}, runs


def compare_rows(
    evidence: Evidence, better: Row, worse: Row, metric: str, by: float = 0.0, label: str = ""
) -> Comparison:
    """Return how far ``better`` is ahead of ``worse`` in a metric, paired by unit.

    Args:
        evidence: The runs.
        better: A row.
        worse: A row.
        metric: The metric.
        by: The lead that must be exceeded, in the printed unit; if it is negative, a lag that must
            not be reached.
        label: Description of the comparison; empty for one by what is compared.
    """
    m = evidence.paper.metrics[metric]
    one, two = evidence.comparable((better, worse))
    text = label or _label(evidence.paper, better, worse, m, by)
    numbers = one.values(m), two.values(m)
    return replace(contest(text, *numbers, _sign(m), one, two, margin=-by), unit=_unit(m))


def _label(paper: Paper, better: Row, worse: Row, metric: PrintedMetric, by: float) -> str:
    """Return what is compared; rows are named in full unless they are two methods in one setup."""
    elsewhere = better.setup != worse.setup
    full = elsewhere or better.algo == worse.algo
    one, two = (_name(paper, row, full) for row in (better, worse))
    where = "" if elsewhere else f" on {paper.setups[better.setup].title}"
    amount = _sign(metric) * by
    handicap = f" {'less' if amount > 0 else 'plus'} {abs(amount):g}" if by else ""
    return f"{metric.label} of {one}{handicap} against {two}{where}"


def _name(paper: Paper, row: Row, full: bool) -> str:
    name = paper.methods[row.algo].label
    if not full:
        return name
    for key, value in row.hyperparameters.items():
        if isinstance(value, float):
            name += f" {key}={value:g}"
    return f"{name} ({paper.setups[row.setup].title})"


def _sign(metric: PrintedMetric) -> float:
    return -1.0 if metric.direction == "lower" else 1.0


def _unit(metric: PrintedMetric) -> str:
    """Return the unit of differences in a metric, as the paper prints it."""
    info = metric_info(metric.field)
    return info.difference_unit if metric.factor == info.factor else ""


def compare(evidence: Evidence, check: Compare) -> Iterator[Comparison]:
    """Return the comparisons of each better method with each worse one, or with itself at another place.

    Where the methods on both sides are the same ones, a pair of them is one comparison of two
    parts.
    """
    if check.by < 0 and set(check.better) == set(check.worse):
        yield from _close_together(evidence, check)
        return
    paper = evidence.paper
    table = check.table
    for setup, metric, algo in product(check.setups, check.metrics, check.better):
        own = row_of(paper, table, setup, algo)
        if check.at is not None:
            rivals = [row_of(paper, check.at.table, check.at.setup, algo)]
        elif check.worse:
            rivals = [row_of(paper, table, setup, other) for other in check.worse if other != algo]
        else:
            rivals = [row for row in rows_of(paper, table, setup) if row is not own]
        for rival in rivals:
            yield compare_rows(evidence, own, rival, metric, check.by, check.label)


def _close_together(evidence: Evidence, check: Compare) -> Iterator[Comparison]:
    """Return a comparison per pair of methods: two one-sided tests that each is less behind the other than ``by``."""
    paper = evidence.paper
    for setup, metric, pair in product(check.setups, check.metrics, combinations(check.better, 2)):
        one, two = (row_of(paper, check.table, setup, algo) for algo in pair)
        parts = [
            compare_rows(evidence, *sides, metric, check.by) for sides in ((one, two), (two, one))
        ]
        names = " and ".join(paper.methods[algo].label for algo in pair)
        label = f"{paper.metrics[metric].label} of {names} less than {-check.by:g} apart"
        yield joined(f"{label} on {paper.setups[setup].title}", parts, every=True)


def trend(evidence: Evidence, check: Trend) -> Iterator[Comparison]:
    """Return, per method, the rank correlation of the metric with the steps."""
    paper = evidence.paper
    metric = paper.metrics[check.metric]
    rising = check.trend == "increasing"
    where = f" on {paper.setups[check.setup].title}" if check.setup else ""
    for algo in check.algo:
        runs = evidence.comparable(_steps(paper, check, algo))
        values = [step.values(metric) for step in runs]
        correlations = rank_correlations(runs, values, -_sign(metric) * math.inf)
        if not rising:
            correlations = {unit: -tau for unit, tau in correlations.items()}
        label = (
            f"rank correlation of {metric.label} of {paper.methods[algo].label} "
            f"with {check.over}{where}, {'rising' if rising else 'falling'}"
        )
        yield tested(label, correlations, runs)


def rank_correlations(
    steps: Sequence[MatchedRuns], values: Sequence[PerUnit], worst: float
) -> PerUnit:
    """Return the rank correlation of values with the steps, per unit that has an outcome at every step.

    A run that diverged has the worst value of all.
    """
    outcomes = [
        {**dict.fromkeys(runs.diverged, worst), **measured}
        for runs, measured in zip(steps, values, strict=True)
    ]
    return {unit: kendall(numbers) for unit, numbers in aligned(*outcomes).items()}


def _steps(paper: Paper, check: Trend, algo: str) -> list[Row]:
    """Return the rows of a method in the order of the steps."""
    if check.setup is None:
        return [row_of(paper, check.table, setup, algo) for setup in check.order]
    rows = [row for row in rows_of(paper, check.table, check.setup) if row.algo == algo]
    if len(rows) < 2 or any(check.over not in row.hyperparameters for row in rows):
        raise RequestError(
            f"{check.table} needs at least two rows of {algo} on {check.setup}, all with {check.over}"
        )
    return sorted(rows, key=lambda row: row.hyperparameters[check.over])


def averages(evidence: Evidence, check: Averages) -> Iterator[Comparison]:
    """Return how far the rows of one side are ahead of those of the other, averaged over pairs of rows.

    Pairs may be reduced or tuned in different ways, the two rows of a pair may not. A unit counts
    if all rows have it.
    """
    paper = evidence.paper
    m = paper.metrics[check.metric]
    sides = [
        [row_of(paper, side.table, *place) for place in product(side.setups, side.algos)]
        for side in (check.better, check.worse)
    ]
    pairs = [evidence.comparable(pair) for pair in zip(*sides, strict=True)]
    ahead = [leads(one.values(m), two.values(m), _sign(m)) for one, two in pairs]
    differences = {unit: mean(numbers) - check.by for unit, numbers in aligned(*ahead).items()}

    runs = [side for pair in pairs for side in pair]
    if all(one.cuts == two.cuts for one, two in pairs):
        runs = [replace(side, cuts=()) for side in runs]
    compared = above(check.label, differences, runs)
    untuned = compared.complete and any(one.searched != two.searched for one, two in pairs)
    yield replace(compared, unit=_unit(m), untuned=untuned)


def within_band(evidence: Evidence, check: WithinBand) -> Iterator[Comparison]:
    """Return the comparison of a row's number with a band."""
    paper = evidence.paper
    metric = paper.metrics[check.metric]
    row = row_of(paper, check.table, check.setup, check.algo, **check.hyperparameters)
    hyper = "".join(f" {key}={value}" for key, value in check.hyperparameters.items())
    label = f"{metric.label} of {paper.methods[check.algo].label}{hyper}"
    yield band(label, evidence.find(row), metric, check.low, check.high)


def band(
    label: str, runs: MatchedRuns, metric: PrintedMetric, low: float, high: float
) -> Comparison:
    """Return the comparison of two parts: a metric is above the lower end of a band, and below its upper end.

    Two one-sided tests show equivalence within the band, and one of them that it is outside: a
    number is always on the right side of one end, so that they are no comparisons of their own. A
    run that diverged counts as outside at both ends, and so does a run that has at least the band's
    rounds and never reaches its target; a shorter one is left out.
    """
    values = runs.values(metric)
    outside = dict.fromkeys(runs.diverged, -math.inf)
    if metric.target is not None:
        for unit, curve in runs.curve(metric.field).items():
            if unit not in values and curve.index[-1] >= high:
                outside[unit] = -math.inf

    above_low = {unit: value - low for unit, value in values.items()}
    below_high = {unit: high - value for unit, value in values.items()}
    ends = [
        tested(f"{label} at least {low:g}", above_low | outside, [runs]),
        tested(f"{label} at most {high:g}", below_high | outside, [runs]),
    ]
    compared = joined(f"{label} from {low:g} to {high:g}", ends, every=True)
    return replace(compared, unit=_unit(metric))


# ---- without comparisons


def equal_rows(paper: Paper, check: EqualRows) -> Verdict:
    """Return the verdict on printed numbers of two tables that are to be equal.

    Raises:
        RequestError: If a compared row or number does not exist.
    """
    table, other = check.tables
    compared = list(product(check.setups, check.algo, check.metrics))
    differing = []
    for setup, algo, metric in compared:
        one = row_of(paper, table, setup, algo)
        two = row_of(paper, other, setup, algo, **check.hyperparameters)
        for row in (one, two):
            choice(f"the number of {algo} on {setup}", metric, row.values)
        if one.values[metric] != two.values[metric]:
            numbers = f"{one.values[metric]} and {two.values[metric]}"
            differing.append(f"{paper.metrics[metric].label} {numbers} on {setup}")
    if differing:
        return Verdict("fails", f"printed numbers differ: {'; '.join(differing)}", "print")
    return Verdict("holds", f"all {len(compared)} printed numbers agree", "print")

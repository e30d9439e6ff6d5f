"""Claims about tables: comparisons of measured numbers and of printed numbers."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from statistics import mean
from typing import Any

from fedbench.analysis.claims.comparison import (
    RATIO,
    Comparison,
    above,
    aligned,
    contest,
    joined,
    leads,
    logs,
    scaled,
    tested,
)
from fedbench.analysis.claims.verdict import Verdict
from fedbench.analysis.departures import PerUnit, Unit
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.analysis.stats import kendall
from fedbench.core.errors import RequestError
from fedbench.core.metrics import metric_info
from fedbench.core.validation import choice
from fedbench.papers.checks import (
    Averages,
    Compare,
    EqualRows,
    Trend,
    WithinBand,
)
from fedbench.papers.schema import Paper, PrintedMetric, Row


def rows_of(
    paper: Paper,
    part: str,
    setup: str,
) -> list[Row]:
    """Return the rows of a table or figure in a setup.

    Rows of one method differ in their hyperparameters.
    """
    return [row for row in paper.rows(part) if row.setup == setup]


def row_of(
    paper: Paper,
    part: str,
    setup: str,
    algo: str,
    **hyper: Any,
) -> Row:
    """Return the first row of a method in a table or figure with the given hyperparameters.

    Raises:
        RequestError: If no such row exists.
    """
    for row in rows_of(paper, part, setup):
        if row.algo == algo and hyper.items() <= row.hyperparameters.items():
            return row
    given = "".join(f" with {key} {value}" for key, value in hyper.items())
    raise RequestError(f"{part} has no row of {algo}{given} on {setup}")


def number_and_best_other(
    evidence: Evidence,
    table: str,
    setup: str,
    algo: str,
    metric: str,
) -> tuple[dict[Unit, tuple[float, float]], list[MatchedRuns]]:
    """Return, by unit, a method's number and the best other number, and the runs of all rows.

    Only units that occur in all rows are used, because a missing number could be the best one.
    """
    printed = evidence.paper.metrics[metric]
    rows = rows_of(evidence.paper, table, setup)
    runs = evidence.comparable(rows)
    values = {}
    for row, side in zip(rows, runs, strict=True):
        values[row.algo] = side.values(printed)
    best = min if printed.direction == "lower" else max
    by_unit = aligned(values.pop(algo), *values.values())
    pairs = {}
    for unit, (number, *others) in by_unit.items():
        pairs[unit] = number, best(others)
    return pairs, runs


def compare_rows(
    evidence: Evidence,
    better: Row,
    worse: Row,
    metric: str,
    by: float = 0.0,
    label: str = "",
) -> Comparison:
    """Return the comparison of ``better`` with ``worse`` in a metric, paired by unit.

    Args:
        evidence: The paper and the runs.
        better: The row that should be ahead.
        worse: The row that should be behind.
        metric: Id of the metric.
        by: The lead that must be exceeded, in the printed unit. A negative value is a lag that must
            not be reached.
        label: Description of the comparison; if empty, it is generated.

    Raises:
        RequestError: If there is a margin for numbers of rounds to a target.
    """
    paper = evidence.paper
    printed = paper.metrics[metric]
    one, two = evidence.comparable((better, worse))
    if not label:
        label = _label(paper, better, worse, printed, by)
    if printed.target is not None:
        if by:
            raise RequestError(
                f"by is {by:g}, but {metric} counts rounds to a target, which are compared as "
                "ratios; leave it out"
            )
        return rounds_compared(label, one, two, printed)
    comparison = contest(
        label,
        one.values(printed),
        two.values(printed),
        _sign(printed),
        one,
        two,
        margin=-by,
    )
    return replace(comparison, unit=_unit(printed))


def rounds_compared(
    label: str,
    one: MatchedRuns,
    two: MatchedRuns,
    metric: PrintedMetric,
) -> Comparison:
    """Return the comparison of two methods by the rounds to a target, as a ratio (``rounds_to``).

    Units in which neither run reaches the target are left out; if there are no others, the
    comparison is undecided.
    """
    first, second = rounds_to(metric, (one, two))
    both = one.runs.keys() & two.runs.keys()
    reached = one.values(metric) | two.values(metric)
    if both and not reached:
        label = f"{label} (neither gets there)"
        return tested(label, dict.fromkeys(both, 0.0), (one, two))
    compared = contest(label, logs(first), logs(second), -1.0, one, two)
    return replace(compared, unit=RATIO)


def rounds_to(metric: PrintedMetric, sides: Sequence[MatchedRuns]) -> list[PerUnit]:
    """Return the rounds to a metric's target per side and unit.

    In a unit in which some runs reach the target, the others count as reaching it together, one
    round after their ends. If one of them ended before another run reached the target, their order
    is not known, and they have no number.
    """
    reached = [side.values(metric) for side in sides]
    lengths = [side.lengths(metric.field) for side in sides]
    numbers = [dict(of_side) for of_side in reached]
    for unit in set().union(*reached):
        last = max(of_side[unit] for of_side in reached if unit in of_side)
        missed = []
        for length, of_side in zip(lengths, reached, strict=True):
            if unit in length and unit not in of_side:
                missed.append(length[unit])
        if missed and min(missed) >= last:
            for length, of_side in zip(lengths, numbers, strict=True):
                if unit in length:
                    of_side.setdefault(unit, 1 + max(missed))
    return numbers


def _label(
    paper: Paper,
    better: Row,
    worse: Row,
    metric: PrintedMetric,
    by: float,
) -> str:
    """Return a label for a comparison, with full row names unless two methods share a setup."""
    elsewhere = better.setup != worse.setup
    full = elsewhere or better.algo == worse.algo
    one = _name(paper, better, full)
    two = _name(paper, worse, full)
    where = "" if elsewhere else f" on {paper.setups[better.setup].title}"
    amount = _sign(metric) * by
    handicap = f" {'less' if amount > 0 else 'plus'} {abs(amount):g}" if by else ""
    return f"{metric.label} of {one}{handicap} against {two}{where}"


def _name(
    paper: Paper,
    row: Row,
    full: bool,
) -> str:
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
    """Return the unit of differences in a printed metric."""
    info = metric_info(metric.field)
    return info.difference_unit if metric.factor == info.factor else ""


def compare(evidence: Evidence, check: Compare) -> Iterator[Comparison]:
    """Yield comparisons of each better method with each worse one, or with its own row in ``at``.

    If ``by`` is negative and both sides list the same methods, each pair of methods gives one
    comparison with two parts.
    """
    if check.by < 0 and set(check.better) == set(check.worse):
        yield from _close_together(evidence, check)
        return
    paper = evidence.paper
    table = check.table
    for setup, metric, algo in product(check.setups, check.metrics, check.better):
        row = row_of(paper, table, setup, algo)
        if check.at is not None:
            rivals = [row_of(paper, check.at.table, check.at.setup, algo)]
        elif check.worse:
            others = [other for other in check.worse if other != algo]
            rivals = [row_of(paper, table, setup, other) for other in others]
        else:
            rivals = [other for other in rows_of(paper, table, setup) if other is not row]
        for rival in rivals:
            yield compare_rows(evidence, row, rival, metric, check.by, check.label)


def _close_together(evidence: Evidence, check: Compare) -> Iterator[Comparison]:
    """Yield a comparison per pair of methods, which must differ by less than the margin ``by``.

    The comparison consists of two one-sided tests: neither method is behind the other by the
    margin.
    """
    paper = evidence.paper
    pairs = combinations(check.better, 2)
    for setup, metric, (first, second) in product(check.setups, check.metrics, pairs):
        one = row_of(paper, check.table, setup, first)
        two = row_of(paper, check.table, setup, second)
        parts = []
        for better, worse in ((one, two), (two, one)):
            parts.append(compare_rows(evidence, better, worse, metric, check.by))
        names = f"{paper.methods[first].label} and {paper.methods[second].label}"
        label = f"{paper.metrics[metric].label} of {names} less than {-check.by:g} apart"
        yield joined(f"{label} on {paper.setups[setup].title}", parts, every=True)


def trend(evidence: Evidence, check: Trend) -> Iterator[Comparison]:
    """Yield a comparison per method: the rank correlation of the metric with the steps."""
    paper = evidence.paper
    metric = paper.metrics[check.metric]
    sign = 1 if check.trend == "increasing" else -1
    direction = "rising" if sign > 0 else "falling"
    where = f" on {paper.setups[check.setup].title}" if check.setup else ""
    for algo in check.algo:
        runs = evidence.comparable(_steps(paper, check, algo))
        values = [step.values(metric) for step in runs]
        if metric.target is not None:
            values = rounds_to(metric, runs)
        worst = -_sign(metric) * math.inf
        correlations = rank_correlations(runs, values, worst)
        label = (
            f"rank correlation of {metric.label} of {paper.methods[algo].label} "
            f"with {check.over}{where}, {direction}"
        )
        yield tested(label, scaled(correlations, sign), runs)


def rank_correlations(
    steps: Sequence[MatchedRuns],
    values: Sequence[PerUnit],
    worst: float,
) -> PerUnit:
    """Return the rank correlation of values with the steps, per unit.

    Only units with an outcome at every step are used. A diverged run has the value ``worst``.
    """
    outcomes = []
    for runs, measured in zip(steps, values, strict=True):
        lost = dict.fromkeys(runs.diverged, worst)
        outcomes.append(lost | measured)
    return {unit: kendall(numbers) for unit, numbers in aligned(*outcomes).items()}


def _steps(
    paper: Paper,
    check: Trend,
    algo: str,
) -> list[Row]:
    """Return the rows of a method in the order of the steps."""
    if check.setup is None:
        return [row_of(paper, check.table, setup, algo) for setup in check.order]
    every_row = rows_of(paper, check.table, check.setup)
    rows = [row for row in every_row if row.algo == algo]
    named = all(check.over in row.hyperparameters for row in rows)
    if len(rows) < 2 or not named:
        raise RequestError(
            f"{check.table} needs at least two rows of {algo} on {check.setup}, "
            f"all with {check.over}"
        )
    return sorted(rows, key=lambda row: row.hyperparameters[check.over])


def averages(evidence: Evidence, check: Averages) -> Iterator[Comparison]:
    """Yield the comparison of the rows of two sides, by the mean lead over pairs of rows.

    Different pairs may be reduced or tuned in different ways, but the two rows of a pair may not.
    Only units that occur in all rows are used.

    Raises:
        RequestError: If the metric is a number of rounds to a target.
    """
    paper = evidence.paper
    metric = paper.metrics[check.metric]
    if metric.target is not None:
        raise RequestError(
            f"{check.metric} counts rounds to a target, which some runs may not reach; averages "
            "need another metric, and kind: compare compares its rows"
        )
    rows = []
    for side in (check.better, check.worse):
        names = product(side.setups, side.algos)
        rows.append([row_of(paper, side.table, setup, algo) for setup, algo in names])
    better, worse = rows
    sign = _sign(metric)
    pairs = []
    ahead = []
    for pair in zip(better, worse, strict=True):
        one, two = evidence.comparable(pair)
        pairs.append((one, two))
        lead = leads(one.values(metric), two.values(metric), sign)
        ahead.append(lead)
    by_unit = aligned(*ahead)
    differences = {unit: mean(numbers) - check.by for unit, numbers in by_unit.items()}

    runs = [side for pair in pairs for side in pair]
    if all(one.cuts == two.cuts for one, two in pairs):
        runs = [replace(side, cuts=()) for side in runs]
    compared = above(check.label, differences, runs)
    unlike = any(one.searched != two.searched for one, two in pairs)
    yield replace(
        compared,
        unit=_unit(metric),
        untuned=compared.complete and unlike,
    )


def within_band(evidence: Evidence, check: WithinBand) -> Iterator[Comparison]:
    """Yield the comparison of a row's number with a band."""
    paper = evidence.paper
    metric = paper.metrics[check.metric]
    row = row_of(
        paper,
        check.table,
        check.setup,
        check.algo,
        **check.hyperparameters,
    )
    hyper = "".join(f" {key}={value}" for key, value in check.hyperparameters.items())
    label = f"{metric.label} of {paper.methods[check.algo].label}{hyper}"
    yield band(label, evidence.find(row), metric, check.low, check.high)


def band(
    label: str,
    runs: MatchedRuns,
    metric: PrintedMetric,
    low: float,
    high: float,
) -> Comparison:
    """Return the comparison of a metric with a band: above its lower end, and below its upper end.

    Both one-sided tests together show equivalence within the band; a single one can show that the
    number is outside. They are not separate comparisons, because every number is on the right side
    of at least one end. A diverged run counts as outside at both ends. The same applies, if the
    metric has a target, to a run that does not reach it but lasts at least until the band's upper
    end; shorter runs are left out.
    """
    values = runs.values(metric)
    outside = dict.fromkeys(runs.diverged, -math.inf)
    if metric.target is not None:
        for unit, curve in runs.curve(metric.field).items():
            if unit not in values and curve.index[-1] >= high:
                outside[unit] = -math.inf

    above_low = scaled(values, 1.0, -low)
    below_high = scaled(values, -1.0, high)
    ends = [
        tested(f"{label} at least {low:g}", above_low | outside, [runs]),
        tested(f"{label} at most {high:g}", below_high | outside, [runs]),
    ]
    compared = joined(f"{label} from {low:g} to {high:g}", ends, every=True)
    return replace(compared, unit=_unit(metric))


# ---- claims without comparisons


def equal_rows(paper: Paper, check: EqualRows) -> Verdict:
    """Return the verdict on printed numbers of two tables that should be equal.

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

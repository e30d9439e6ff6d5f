"""Claims about tables: comparisons of the measured numbers of cells, and of the printed numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from statistics import mean
from typing import Any

from fedbench.analysis.claims.comparison import Comparison, above, between, contest, joined, tested
from fedbench.analysis.claims.verdict import Verdict
from fedbench.analysis.departures import Unit
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.analysis.stats import kendall
from fedbench.core.errors import RequestError
from fedbench.core.metrics import metric_info
from fedbench.papers.checks import Averages, Compare, EqualRows, Trend, WithinBand
from fedbench.papers.schema import Paper, PrintedMetric, Row


class Cells:
    """The numbers that claims about tables compare."""

    def __init__(self, paper: Paper, evidence: Evidence) -> None:
        self.paper, self.evidence = paper, evidence

    def rows(self, table: str, setup: str) -> list[Row]:
        """Return all rows of a setup; a method has several rows if their hyperparameters differ."""
        return [r for r in self.paper.tables[table].rows if r.setup == setup]

    def row(self, table: str, setup: str, algo: str, /, **hyper: Any) -> Row:
        """Return the first row of a method with the given hyperparameters.

        Raises:
            RequestError: If no such row exists.
        """
        rows = [r for r in self.rows(table, setup) if r.algo == algo]
        if fitting := [r for r in rows if all(r.hyperparameters.get(k) == v for k, v in hyper.items())]:
            return fitting[0]
        given = "".join(f" with {k} {v}" for k, v in hyper.items())
        raise RequestError(f"{table} has no row of {algo}{given} on {setup}")

    def compare(
        self, table: str, better: Row, worse: Row, metric: str, other_table: str = "", by: float = 0.0, label: str = ""
    ) -> Comparison:
        """Return how far ``better`` is ahead of ``worse`` in a metric, paired by unit.

        Args:
            table: The table of ``better``.
            better: A row.
            worse: A row.
            metric: The metric.
            other_table: The table of ``worse``, if it is another one.
            by: The lead that must be exceeded, in the printed unit; if it is negative, a lag that must not be reached.
            label: Description of the comparison; empty for one by what is compared.
        """
        m = self.paper.metrics[metric]
        one, two = self.evidence.comparable(self.paper, (better, worse))
        a = one.values(m, self.paper.tables[table].round)
        b = two.values(m, self.paper.tables[other_table or table].round)
        sign = -1.0 if m.direction == "lower" else 1.0
        if label:
            return replace(contest(label, a, b, sign, one, two, margin=-by), unit=_unit(m))
        names = [self._name(r, both=better.setup != worse.setup or better.algo == worse.algo) for r in (better, worse)]
        twice = "" if names[0] != names[1] else f" ({worse.setup})"
        label = f"{m.label} of {names[0]}{_handicap(sign * by)} against {names[1]}{twice}"
        where = "" if better.setup != worse.setup else f" on {self.paper.setups[better.setup].title}"
        return replace(contest(label + where, a, b, sign, one, two, margin=-by), unit=_unit(m))

    def _name(self, row: Row, both: bool) -> str:
        hyper = " ".join(f"{k}={v:g}" for k, v in row.hyperparameters.items() if isinstance(v, float))
        name = self.paper.methods[row.algo].label
        return f"{name} {hyper} ({self.paper.setups[row.setup].title})".replace("  ", " ") if both else name


def _unit(metric: PrintedMetric) -> str:
    """Return the unit of differences in a metric, as the paper prints it."""
    info = metric_info(metric.field)
    return info.difference_unit if metric.factor == info.factor else ""


def _handicap(amount: float) -> str:
    """Return the words for an amount that is taken from a number before it is compared."""
    return "" if not amount else f" less {amount:g}" if amount > 0 else f" plus {-amount:g}"


def compare(cells: Cells, check: Compare) -> list[Comparison]:
    """Return the comparisons of each better method with each worse one, or with itself at another place.

    Where the methods on both sides are the same ones, a pair of them is one comparison of two parts.
    """
    if check.by < 0 and set(check.better) == set(check.worse):
        return _close_together(cells, check)
    out = []
    for setup, metric, algo in product(check.setups, check.metrics, check.better):
        own, table = cells.row(check.table, setup, algo), check.table
        if check.at is not None:
            table = check.at.table
            rivals = [cells.row(table, check.at.setup, algo)]
        elif check.worse:
            rivals = [cells.row(table, setup, other) for other in check.worse if other != algo]
        else:
            rivals = [r for r in cells.rows(table, setup) if r is not own]
        out += [cells.compare(check.table, own, r, metric, table, check.by, check.label) for r in rivals]
    return out


def _close_together(cells: Cells, check: Compare) -> list[Comparison]:
    """Return a comparison per pair of methods: two one-sided tests that each is less behind the other than ``by``."""
    out = []
    for setup, metric, pair in product(check.setups, check.metrics, combinations(check.better, 2)):
        one, two = (cells.row(check.table, setup, algo) for algo in pair)
        parts = [cells.compare(check.table, a, b, metric, by=check.by) for a, b in ((one, two), (two, one))]
        names = " and ".join(cells.paper.methods[algo].label for algo in pair)
        label = f"{cells.paper.metrics[metric].label} of {names} less than {-check.by:g} apart"
        out.append(joined(f"{label} on {cells.paper.setups[setup].title}", parts, every=True))
    return out


def trend(cells: Cells, check: Trend) -> list[Comparison]:
    """Return, per method, the rank correlation of the metric with the steps."""
    metric = cells.paper.metrics[check.metric]
    rising = check.trend == "increasing"
    out = []
    for algo in check.algo:
        rows = _steps(cells, check, algo)
        found = cells.evidence.comparable(cells.paper, rows)
        correlations = _correlations(found, metric, cells.paper.tables[check.table].round)
        where = f" on {cells.paper.setups[check.setup].title}" if check.setup else ""
        sign, word = (1.0, "rising") if rising else (-1.0, "falling")
        label = (
            f"rank correlation of {metric.label} of {cells.paper.methods[algo].label} with {check.over}{where}, {word}"
        )
        out.append(tested(label, {s: sign * tau for s, tau in correlations.items()}, found))
    return out


def _correlations(found: Sequence[MatchedRuns], metric: PrintedMetric, which: str) -> dict[Unit, float]:
    """Return the rank correlation of the values with the steps, per unit that has an outcome at every step.

    A run that diverged has the worst value of all.
    """
    worst = math.inf if metric.direction == "lower" else -math.inf
    values = [{**dict.fromkeys(f.diverged, worst), **f.values(metric, which)} for f in found]
    units = set(values[0]).intersection(*values)
    return {s: kendall([v[s] for v in values]) for s in sorted(units)}


def _steps(cells: Cells, check: Trend, algo: str) -> Sequence[Row]:
    if check.setup is None:
        return [cells.row(check.table, s, algo) for s in check.order]
    rows = [r for r in cells.rows(check.table, check.setup) if r.algo == algo]
    if len(rows) < 2 or any(check.over not in row.hyperparameters for row in rows):
        raise RequestError(f"{check.table} needs at least two rows of {algo} on {check.setup}, all with {check.over}")
    return sorted(rows, key=lambda r: r.hyperparameters[check.over])


def averages(cells: Cells, check: Averages) -> list[Comparison]:
    """Return how far the rows of one side are ahead of those of the other, averaged over pairs of rows.

    Pairs may be reduced or tuned in different ways, the two rows of a pair may not. A unit counts if all rows have it.
    """
    m = cells.paper.metrics[check.metric]
    sign = -1.0 if m.direction == "lower" else 1.0
    rows = [
        [cells.row(side.table, setup, algo) for setup, algo in product(side.setups, side.algos)]
        for side in (check.better, check.worse)
    ]
    pairs = [cells.evidence.comparable(cells.paper, pair) for pair in zip(*rows, strict=True)]
    rounds = [cells.paper.tables[side.table].round for side in (check.better, check.worse)]
    leads = []
    for pair in pairs:
        a, b = (found.values(m, which) for found, which in zip(pair, rounds, strict=True))
        leads.append({u: sign * (a[u] - b[u]) - check.by for u in a.keys() & b.keys()})
    units = sorted(set(leads[0]).intersection(*leads))
    uneven = any(one.cuts != two.cuts for one, two in pairs)
    found = [f if uneven else replace(f, cuts=()) for pair in pairs for f in pair]
    compared = above(check.label, {u: mean(lead[u] for lead in leads) for u in units}, found)
    untuned = compared.complete and any(one.searched != two.searched for one, two in pairs)
    return [replace(compared, unit=_unit(m), untuned=untuned)]


def within_band(cells: Cells, check: WithinBand) -> list[Comparison]:
    """Return the comparison of a row's number with a band (``between``).

    A run that has at least the band's rounds and never reaches its target counts as outside; a shorter one is left out.
    """
    m = cells.paper.metrics[check.metric]
    row = cells.row(check.table, check.setup, check.algo, **check.hyperparameters)
    found = cells.evidence.find(cells.paper, row)
    values = found.values(m, cells.paper.tables[check.table].round)
    curve = found.curve(m.field) if m.target is not None else ()
    missed = {u for u in curve if u not in values and found.runs[u].config["rounds"] >= check.high}
    with_values = "".join(f" {k}={v}" for k, v in check.hyperparameters.items())
    name = f"{m.label} of {cells.paper.methods[check.algo].label}{with_values}"
    return [replace(between(name, values, check.low, check.high, found, missed), unit=_unit(m))]


# ---- without comparisons


def equal_rows(paper: Paper, check: EqualRows) -> Verdict:
    """Return the verdict on printed numbers of two tables that are to be equal.

    Raises:
        RequestError: If a compared row or number does not exist.
    """
    cells, (table, other) = Cells(paper, Evidence([])), check.tables
    differing, total = [], 0
    for setup, algo, metric in product(check.setups, check.algo, check.metrics):
        total += 1
        one, two = cells.row(table, setup, algo), cells.row(other, setup, algo, **check.hyperparameters)
        for row in (one, two):
            if metric not in row.values:
                raise RequestError(f"the row of {row.algo} on {setup} prints no {metric}")
        if one.values[metric] != two.values[metric]:
            differing.append(f"{paper.metrics[metric].label} {_apart(one, two, metric)} on {setup}")
    if differing:
        return Verdict("fails", f"printed numbers differ: {'; '.join(differing)}", "print")
    return Verdict("holds", f"all {total} printed numbers agree", "print")


def _apart(one: Row, two: Row, metric: str) -> str:
    a, b = one.values[metric], two.values[metric]
    return f"{a.mean:g} and {b.mean:g}" if a.mean != b.mean else f"{a.mean:g} with ± {a.std} and ± {b.std}"

"""Claims about tables: comparisons of the measured numbers of cells, and of the printed numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Any

from fedbench.analysis.comparison import Comparison, best_of, contest
from fedbench.analysis.matching import Evidence
from fedbench.core.errors import RequestError
from fedbench.papers.checks import (
    Best,
    Compare,
    CompareTables,
    EqualCells,
    EqualRows,
    Monotone,
    NotBest,
    PrintedRow,
    Rank,
)
from fedbench.papers.registry import Paper, Row


class Cells:
    """The numbers that claims about tables compare."""

    def __init__(self, paper: Paper, evidence: Evidence) -> None:
        self.paper, self.evidence = paper, evidence

    def rows(self, table: str, setup: str) -> list[Row]:
        """Return all rows of a setup; a method has several rows if their hyperparameters differ."""
        return [r for r in self.paper.tables[table].rows if r.setup == setup]

    def row(self, table: str, setup: str, algo: str, /, last: bool = False, **hyper: Any) -> Row:
        """Return the first row of a method with the given hyperparameters, or the last.

        Raises:
            RequestError: If no such row exists.
        """
        rows = [r for r in self.rows(table, setup) if r.algo == algo]
        if fitting := [r for r in rows if all(r.hyperparameters.get(k) == v for k, v in hyper.items())]:
            return fitting[-1 if last else 0]
        given = "".join(f" with {k} {v}" for k, v in hyper.items())
        raise RequestError(f"{table} has no row of {algo}{given} on {setup}")

    def rivals(self, check: NotBest) -> Iterator[tuple[Row, list[Row], str]]:
        """Yield the method's row, all other rows, and the metric, for each setup and metric of a check."""
        for setup, metric in product(check.setups, check.metrics):
            own = self.row(check.table, setup, check.algo, last=True)
            yield own, [r for r in self.rows(check.table, setup) if r is not own], metric

    def compare(
        self, table: str, better: Row, worse: Row, metric: str, other_table: str | None = None, margin: float = 0.0
    ) -> Comparison:
        """Return how far ``better`` is ahead of ``worse`` in a metric, paired by unit.

        Args:
            table: Id of the table.
            better: Row that is ahead.
            worse: Row that is behind.
            metric: Id of the metric.
            other_table: Id of the table of ``worse``, if it is another one.
            margin: How far ``better`` may be behind and still be at least level, in the unit of the metric.
        """
        m = self.paper.metrics[metric]
        one, two = self.evidence.comparable(self.paper, (better, worse))
        a = one.values(m, self.paper.tables[table].round)
        b = two.values(m, self.paper.tables[other_table or table].round)
        sign = -1.0 if m.direction == "lower" else 1.0
        names = [self._name(r, both=better.setup != worse.setup or better.algo == worse.algo) for r in (better, worse)]
        label = f"{m.label} of {names[0]} against {names[1]}" + ("" if names[0] != names[1] else f" ({worse.setup})")
        where = "" if better.setup != worse.setup else f" on {self.paper.setups[better.setup].title}"
        within = f", at most {margin:g} behind" if margin else ""
        return contest(label + where + within, a, b, sign, one, two, margin=margin)

    def _name(self, row: Row, both: bool) -> str:
        hyper = " ".join(f"{k}={v:g}" for k, v in row.hyperparameters.items() if isinstance(v, float))
        name = self.paper.methods[row.algo].label
        return f"{name} {hyper} ({self.paper.setups[row.setup].title})".replace("  ", " ") if both else name


def best(cells: Cells, check: Best) -> list[Comparison]:
    """Return the comparisons of a method with every other row."""
    return [
        cells.compare(check.table, own, r, metric, margin=check.margin)
        for own, rivals, metric in cells.rivals(check)
        for r in rivals
    ]


def not_best(cells: Cells, check: NotBest) -> list[Comparison]:
    """Return, per setup and metric, the comparison of the best other row with the method's row."""
    label = f"{cells.paper.methods[check.algo].label} beaten"
    return [
        best_of(label, [cells.compare(check.table, r, own, metric) for r in rivals])
        for own, rivals, metric in cells.rivals(check)
    ]


def compare(cells: Cells, check: Compare) -> list[Comparison]:
    """Return the comparisons of each better method with each worse one."""
    return [
        cells.compare(
            check.table,
            cells.row(check.table, setup, a),
            cells.row(check.table, setup, b),
            check.metric,
            margin=check.margin,
        )
        for setup in check.setups
        for a in check.better
        for b in check.worse
    ]


def rank(cells: Cells, check: Rank) -> list[Comparison]:
    """Return the comparisons of each method with the next."""
    rows = [cells.row(check.table, check.setup, a) for a in check.order]
    return [cells.compare(check.table, a, b, check.metric) for a, b in pairwise(rows)]


def monotone(cells: Cells, check: Monotone) -> list[Comparison]:
    """Return the comparisons of each step with the next, per method."""
    rising = check.trend == "increasing"
    upwards = rising == (cells.paper.metrics[check.metric].direction != "lower")  # towards better values
    out = []
    for algo in check.algo:
        for a, b in pairwise(_steps(cells, check, algo)):
            ahead, behind = (b, a) if upwards else (a, b)
            out.append(cells.compare(check.table, ahead, behind, check.metric))
    return out


def _steps(cells: Cells, check: Monotone, algo: str) -> Sequence[Row]:
    if check.setup is None:
        return [cells.row(check.table, s, algo) for s in check.order]
    rows = [r for r in cells.rows(check.table, check.setup) if r.algo == algo]
    return sorted(rows, key=lambda r: r.hyperparameters[check.over])


def compare_tables(cells: Cells, check: CompareTables) -> list[Comparison]:
    """Return the comparisons of each method in one table and setup with itself in another."""
    one, two = check.better, check.worse
    return [
        cells.compare(
            one.table, cells.row(one.table, one.setup, a), cells.row(two.table, two.setup, a), check.metric, two.table
        )
        for a in check.algos
    ]


def printed_differences(paper: Paper, check: EqualRows | EqualCells) -> tuple[int, list[str]]:
    """Return the number of compared pairs of printed numbers, and a text for each pair that differs.

    Raises:
        RequestError: If a compared row or number does not exist.
    """
    cells = Cells(paper, Evidence([]))
    if isinstance(check, EqualRows):
        pairs = [tuple(PrintedRow(t, a) for t in check.tables) for a in check.algo]
    else:
        pairs = [(check.a, check.b)]
    differing, total = [], 0
    for setup in check.setups:
        for sides in pairs:
            one, two = (cells.row(s.table, setup, s.algo, **s.hyperparameters) for s in sides)
            for metric in check.metrics:
                total += 1
                for row in (one, two):
                    if metric not in row.values:
                        raise RequestError(f"the row of {row.algo} on {setup} prints no {metric}")
                if one.values[metric] != two.values[metric]:
                    differing.append(f"{paper.metrics[metric].label} {_apart(one, two, metric)} on {setup}")
    return total, differing


def _apart(one: Row, two: Row, metric: str) -> str:
    a, b = one.values[metric], two.values[metric]
    return f"{a.mean:g} and {b.mean:g}" if a.mean != b.mean else f"{a.mean:g} with ± {a.std} and ± {b.std}"

"""Claims of a paper, decided by paired tests over seeds, never by means alone.

A claim is a set of comparisons. It holds if each of them is significant by itself: where all must be shown, testing
each at level α keeps the level of the whole (intersection-union test; Berger, 1982). It fails if at least one is
significant the other way after Holm's correction for their number. Anything else is undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from fedbench.analysis.comparison import Comparison, best_of, compared, contest
from fedbench.analysis.matching import Evidence, Found
from fedbench.analysis.measures import curve_comparisons, special_comparisons
from fedbench.analysis.stats import holm, least_p
from fedbench.core.trees import listed
from fedbench.papers.registry import Claim, Metric, Paper, Row

ALPHA = 0.05
_PRINTED = ("equal_rows", "equal_cells")


@dataclass(frozen=True)
class Verdict:
    """What becomes of a claim.

    Attributes:
        verdict: holds, fails, undecided, not run or not testable.
        evidence: why, in one line.
        reduced: whether a number that it rests on was obtained under anything but the paper's setting.
        basis: what it rests on: runs, test (of the code) or print (the paper's own numbers).
    """

    verdict: str
    evidence: str
    reduced: bool = False
    basis: str = "runs"


def judge(paper: Paper, claim: Claim, evidence: Evidence) -> Verdict:
    """Return the verdict on a claim."""
    check = claim.check
    if check is None:
        return Verdict("not testable", "no comparison is named that could be tested")
    if check["kind"] == "test":
        return Verdict("holds", f"a property of the method, shown by {check['test']}", basis="test")
    if check["kind"] in _PRINTED:
        return _on_printed_numbers(paper, check)
    return decide(comparisons(paper, check, evidence) or [])


def comparisons(paper: Paper, check: Mapping[str, Any], evidence: Evidence) -> list[Comparison] | None:
    """Return the comparisons that a check consists of; None if it rests on no runs.

    Raises:
        LookupError, StopIteration, RuntimeError, TypeError, ValueError: if it names what the paper does not have.
    """
    kind = check["kind"]
    if kind == "test":
        return None
    if kind in _PRINTED:
        _on_printed_numbers(paper, check)
        return None
    if kind in _TABLES:
        return _TABLES[kind](_Cells(paper, evidence), check)
    if kind == "curves":
        return curve_comparisons(paper, check, evidence)
    return special_comparisons(paper, check, evidence)


def decide(comparisons: Sequence[Comparison]) -> Verdict:
    """Return the verdict that comparisons, all of which are to be shown, come to; those without numbers have not run.

    One that lacks some of its parts counts as run only if it is significant without them.
    """
    if not comparisons:
        return Verdict("not testable", "it names nothing that is compared")
    run = [c for c in comparisons if c.greater is not None and (c.complete or c.greater <= ALPHA)]
    reduced = any(c.reduced for c in run)
    if not run:
        return Verdict("not run", f"0 of {len(comparisons)} comparisons have been run{_unevenly(comparisons)}")
    against = holm([c.less for c in run])  # type: ignore[misc]
    worst = min(range(len(run)), key=lambda i: against[i])
    if against[worst] <= ALPHA:
        return Verdict(
            "fails", f"{run[worst].text()}; p = {against[worst]:.4f} the other way{_among(len(run))}", reduced
        )
    if len(run) < len(comparisons):
        shown = sum((c.greater or 0.0) <= ALPHA for c in run)
        text = f"{len(run)} of {len(comparisons)} comparisons have been run: {shown} significant, none against it"
        return Verdict("not run", text + _unevenly(comparisons), reduced)
    weakest = max(run, key=lambda c: c.greater or 0.0)
    if weakest.greater is not None and weakest.greater <= ALPHA:
        return Verdict("holds", f"{_all(len(run))}; the weakest: {weakest.text()}, p = {weakest.greater:.4f}", reduced)
    return Verdict("undecided", _undecided(weakest), reduced)


def _unevenly(comparisons: Sequence[Comparison]) -> str:
    n = sum(c.uneven for c in comparisons)
    return f"; not compared, since the two sides are cut down in different ways: {n}" if n else ""


def _undecided(c: Comparison) -> str:
    text = f"{c.text()}, p = {c.greater:.4f}"
    if c.n and least_p(c.n) > ALPHA:
        text += (
            f"; {c.n} seed{'s' if c.n > 1 else ''} cannot give less than {least_p(c.n):g}: 5 can decide, 10 do so well"
        )
    return text


def _among(n: int) -> str:
    return f", corrected for {n} comparisons" if n > 1 else ""


def _all(n: int) -> str:
    return "the comparison is significant" if n == 1 else f"all {n} comparisons are significant"


class _Cells:
    """The numbers that table claims compare.

    Args:
        paper: the paper.
        evidence: the runs.
    """

    def __init__(self, paper: Paper, evidence: Evidence) -> None:
        self.paper, self.evidence = paper, evidence

    def rows(self, table: str, setup: str) -> list[Row]:
        """Return the rows of a setup; of those with other hyperparameters of one method all."""
        return [r for r in self.paper.tables[table].rows if r.setup == setup]

    def row(self, table: str, setup: str, algo: str, **hyper: Any) -> Row:
        """Return one row."""
        rows = [r for r in self.rows(table, setup) if r.algo == algo]
        return next(r for r in rows if all(r.hyperparameters.get(k) == v for k, v in hyper.items()))

    def compare(self, table: str, better: Row, worse: Row, metric: str, other_table: str | None = None) -> Comparison:
        """Return how far ``better`` is ahead of ``worse`` in a metric, paired by seed."""
        m = self.paper.metrics[metric]
        one, two = self.evidence.alike(self.paper, (better, worse))
        a = one.values(m, self.paper.tables[table].round)
        b = two.values(m, self.paper.tables[other_table or table].round)
        sign = -1.0 if m.direction == "lower" else 1.0
        names = [self._name(r, both=better.setup != worse.setup or better.algo == worse.algo) for r in (better, worse)]
        label = f"{m.label} of {names[0]} against {names[1]}" + ("" if names[0] != names[1] else f" ({worse.setup})")
        where = "" if better.setup != worse.setup else f" on {self.paper.setups[better.setup].title}"
        return contest(label + where, a, b, sign, one, two)

    def _name(self, row: Row, both: bool) -> str:
        hyper = " ".join(f"{k}={v:g}" for k, v in row.hyperparameters.items() if isinstance(v, float))
        name = self.paper.methods[row.algo].label
        return f"{name} {hyper} ({self.paper.setups[row.setup].title})".replace("  ", " ") if both else name


def _best(cells: _Cells, check: Mapping[str, Any]) -> list[Comparison]:
    out = []
    for setup in check["setups"]:
        rows = cells.rows(check["table"], setup)
        mine = [r for r in rows if r.algo == check["algo"]][-1]
        for metric in check["metrics"]:
            found = [cells.compare(check["table"], mine, r, metric) for r in rows if r is not mine]
            out += [_level_is_enough(c) for c in found] if check.get("ties") else found
    return out


def _level_is_enough(c: Comparison) -> Comparison:
    """Return a comparison in which level counts as ahead: never behind with n seeds has p = 2^-n (sign test)."""
    return replace(c, greater=min(c.greater, least_p(c.n))) if c.never_behind and c.greater is not None else c


def _not_best(cells: _Cells, check: Mapping[str, Any]) -> list[Comparison]:
    """In each setup and metric some row is ahead of the method's."""
    out = []
    for setup in check["setups"]:
        rows = cells.rows(check["table"], setup)
        mine = [r for r in rows if r.algo == check["algo"]][-1]
        label = f"{cells.paper.methods[check['algo']].label} beaten"
        for metric in check["metrics"]:
            parts = [cells.compare(check["table"], r, mine, metric) for r in rows if r is not mine]
            out.append(best_of(label, parts))
    return out


def _compare(cells: _Cells, check: Mapping[str, Any]) -> list[Comparison]:
    return [
        cells.compare(
            check["table"],
            cells.row(check["table"], setup, a),
            cells.row(check["table"], setup, b),
            check["metric"],
        )
        for setup in check["setups"]
        for a in listed(check["better"])
        for b in listed(check["worse"])
    ]


def _rank(cells: _Cells, check: Mapping[str, Any]) -> list[Comparison]:
    rows = [cells.row(check["table"], check["setup"], a) for a in check["order"]]
    return [cells.compare(check["table"], a, b, check["metric"]) for a, b in pairwise(rows)]


def _monotone(cells: _Cells, check: Mapping[str, Any]) -> list[Comparison]:
    rising = check["trend"] == "increasing"
    upwards = rising == (cells.paper.metrics[check["metric"]].direction != "lower")  # towards the better
    out = []
    for algo in listed(check["algo"]):
        if check["over"] == "setups":
            rows = [cells.row(check["table"], s, algo) for s in check["order"]]
        else:
            rows = [r for r in cells.rows(check["table"], check["setup"]) if r.algo == algo]
            rows.sort(key=lambda r: r.hyperparameters[check["over"]])
        for a, b in pairwise(rows):
            better, worse = (b, a) if upwards else (a, b)
            out.append(cells.compare(check["table"], better, worse, check["metric"]))
    return out


def _lead(cells: _Cells, check: Mapping[str, Any]) -> list[Comparison]:
    """A method's lead over the best of the others, as a ratio above 1 where it leads, is larger on one setup."""
    metric, table = cells.paper.metrics[check["metric"]], check["table"]
    titles = [cells.paper.setups[check[k]].title for k in ("larger", "smaller")]
    name = cells.paper.methods[check["algo"]].label
    label = f"lead of {name} over the best other in {metric.label}, as a ratio, on {titles[0]} against {titles[1]}"
    leads: list[dict[int, float]] = []
    found: list[Found] = []
    for setup in (check["larger"], check["smaller"]):
        rows = cells.rows(table, setup)
        sides = cells.evidence.alike(cells.paper, rows)
        values = [f.values(metric, cells.paper.tables[table].round) for f in sides]
        own = next(v for v, r in zip(values, rows, strict=True) if r.algo == check["algo"])
        rivals = [v for v, r in zip(values, rows, strict=True) if r.algo != check["algo"]]
        seeds = set(own).intersection(*rivals)  # with every rival: the best one may be missing
        leads.append({s: r for s in seeds if (r := _ratio(metric, own[s], [v[s] for v in rivals])) is not None})
        found += sides
    return [compared(label, leads[0], leads[1], 1.0, found)]


def _ratio(metric: Metric, own: float, rivals: Sequence[float]) -> float | None:
    best = min(rivals) if metric.direction == "lower" else max(rivals)
    above, below = (best, own) if metric.direction == "lower" else (own, best)
    return above / below if below else None


def _compare_setups(cells: _Cells, check: Mapping[str, Any]) -> list[Comparison]:
    table, one, two = check["table"], check["better_setup"], check["worse_setup"]
    return [
        cells.compare(table, cells.row(table, one, a), cells.row(table, two, a), check["metric"])
        for a in check["algos"]
    ]


def _compare_tables(cells: _Cells, check: Mapping[str, Any]) -> list[Comparison]:
    one, two = check["better"], check["worse"]
    return [
        cells.compare(
            one["table"],
            cells.row(one["table"], one["setup"], a),
            cells.row(two["table"], two["setup"], a),
            check["metric"],
            two["table"],
        )
        for a in check["algos"]
    ]


_TABLES: dict[str, Callable[[_Cells, Mapping[str, Any]], list[Comparison]]] = {
    "best": _best,
    "not_best": _not_best,
    "compare": _compare,
    "rank": _rank,
    "monotone": _monotone,
    "lead": _lead,
    "compare_setups": _compare_setups,
    "compare_tables": _compare_tables,
}


def _apart(one: Row, two: Row, metric: str) -> str:
    a, b = one.values[metric], two.values[metric]
    return f"{a.mean:g} and {b.mean:g}" if a.mean != b.mean else f"{a.mean:g} with ± {a.std} and ± {b.std}"


def _on_printed_numbers(paper: Paper, check: Mapping[str, Any]) -> Verdict:
    """Return whether two tables print the same numbers: a claim that no run can decide."""
    cells = _Cells(paper, Evidence([]))
    sides = [check["a"], check["b"]] if check["kind"] == "equal_cells" else [{"table": t} for t in check["tables"]]
    differing, total = [], 0
    for setup in check["setups"]:
        for algo in listed(sides[0].get("algo", check.get("algo"))):
            one, two = (cells.row(s["table"], setup, algo, **s.get("hyperparameters", {})) for s in sides)
            for metric in check["metrics"]:
                total += 1
                if one.values[metric] != two.values[metric]:
                    differing.append(f"{paper.metrics[metric].label} {_apart(one, two, metric)} on {setup}")
    if differing:
        return Verdict("fails", f"printed numbers differ: {'; '.join(differing)}", basis="print")
    return Verdict("holds", f"all {total} printed numbers agree", basis="print")

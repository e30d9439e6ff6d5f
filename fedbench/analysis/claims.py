"""Claims of a paper, decided by paired tests over seeds, never by means alone.

A claim is a set of comparisons. It holds if each of them is significant by itself: where all must be shown, testing
each at level α keeps the level of the whole (intersection-union test; Berger, 1982). It fails if at least one is
significant the other way after Holm's correction for their number. Anything else is undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from fedbench.analysis import table_claims as tables
from fedbench.analysis.comparison import Comparison
from fedbench.analysis.matching import Evidence
from fedbench.analysis.measures import curve_comparisons, limit_comparisons
from fedbench.analysis.stats import holm, least_p
from fedbench.core.errors import RequestError
from fedbench.papers.checks import (
    Best,
    Compare,
    CompareTables,
    Curves,
    EqualCells,
    EqualRows,
    Function,
    Limit,
    Monotone,
    NotBest,
    PropertyTest,
    Rank,
)
from fedbench.papers.registry import Claim, Paper

ALPHA = 0.05

ClaimFunction: TypeAlias = Callable[[Paper, Evidence], list[Comparison]]
Functions: TypeAlias = Mapping[str, ClaimFunction]  # id of a claim -> the comparisons that it consists of
NO_FUNCTIONS: Functions = MappingProxyType({})
_Comparing: TypeAlias = Best | NotBest | Compare | Rank | Monotone | CompareTables | Curves | Limit


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim.

    Attributes:
        verdict: One of ``holds``, ``fails``, ``undecided``, ``not run`` and ``not testable``.
        evidence: The reason, in one line.
        reduced: Whether a number behind it was obtained under a setting other than the paper's.
        basis: Source of the verdict: ``runs``, ``test`` (of the code) or ``print`` (the paper's own numbers).
    """

    verdict: str
    evidence: str
    reduced: bool = False
    basis: str = "runs"


def judge(paper: Paper, claim: Claim, evidence: Evidence, functions: Functions = NO_FUNCTIONS) -> Verdict:
    """Return the verdict on a claim.

    Args:
        paper: The paper.
        claim: One of its claims.
        evidence: The runs.
        functions: The paper's own checks, by the id of the claim.
    """
    match claim.check:
        case None:
            return Verdict("not testable", "the claim names no comparison that could be tested")
        case PropertyTest(test=test):
            return Verdict("holds", f"a property of the method, shown by {test}", basis="test")
        case EqualRows() | EqualCells() as check:
            total, differing = tables.printed_differences(paper, check)
            if differing:
                return Verdict("fails", f"printed numbers differ: {'; '.join(differing)}", basis="print")
            return Verdict("holds", f"all {total} printed numbers agree", basis="print")
        case Function():
            return decide(functions[claim.id](paper, evidence))
        case check:
            return decide(_comparisons(paper, check, evidence))


def refuse_bad_checks(paper: Paper, functions: Functions = NO_FUNCTIONS) -> None:
    """Run the checks of all claims without any runs, to find faults in the paper's file.

    Raises:
        RequestError: With the paper, the claim and its first fault: a function or a row that does not exist, or a check
            that compares nothing.
    """
    nothing = Evidence([])
    for claim in paper.claims:
        where = f"{paper.id}.yaml: claims: {claim.id}"
        try:
            match claim.check:
                case None | PropertyTest():
                    continue
                case EqualRows() | EqualCells() as check:
                    compared = tables.printed_differences(paper, check)[0]
                case Function():
                    if claim.id not in functions:
                        raise RequestError(
                            f"kind: function needs a function {claim.id} in fedbench/papers/claims/{paper.id}.py"
                        )
                    compared = len(functions[claim.id](paper, nothing))
                case check:
                    compared = len(_comparisons(paper, check, nothing))
        except RequestError as error:
            raise RequestError(f"{where}: {error}") from error
        if not compared:
            raise RequestError(f"{where}: the check compares nothing; see its methods, setups and hyperparameters")


def _comparisons(paper: Paper, check: _Comparing, evidence: Evidence) -> list[Comparison]:
    cells = tables.Cells(paper, evidence)
    match check:
        case Best():
            return tables.best(cells, check)
        case NotBest():
            return tables.not_best(cells, check)
        case Compare():
            return tables.compare(cells, check)
        case Rank():
            return tables.rank(cells, check)
        case Monotone():
            return tables.monotone(cells, check)
        case CompareTables():
            return tables.compare_tables(cells, check)
        case Curves():
            return curve_comparisons(paper, check, evidence)
        case Limit():
            return limit_comparisons(paper, check, evidence)


def decide(comparisons: Sequence[Comparison]) -> Verdict:
    """Return the verdict on comparisons that must all be significant; those without numbers have not been run.

    A comparison that lacks some of its parts counts as run only if it is significant without them.
    """
    if not comparisons:
        return Verdict("not testable", "the claim names nothing to compare")
    run = [c for c in comparisons if c.greater is not None and (c.complete or c.greater <= ALPHA)]
    reduced = any(c.reduced for c in run)
    if not run:
        return Verdict("not run", f"0 of {len(comparisons)} comparisons have been run{_uneven_note(comparisons)}")
    against = holm([c.less for c in run])  # type: ignore[misc]
    worst = min(range(len(run)), key=lambda i: against[i])
    if against[worst] <= ALPHA:
        return Verdict(
            "fails", f"{run[worst].text()}; p = {against[worst]:.4f} the other way{_corrected_for(len(run))}", reduced
        )
    if len(run) < len(comparisons):
        shown = sum((c.greater or 0.0) <= ALPHA for c in run)
        text = f"{len(run)} of {len(comparisons)} comparisons have been run: {shown} significant, none against it"
        return Verdict("not run", text + _uneven_note(comparisons), reduced)
    weakest = max(run, key=lambda c: c.greater or 0.0)
    if weakest.greater is not None and weakest.greater <= ALPHA:
        return Verdict(
            "holds", f"{_all_significant(len(run))}; the weakest: {weakest.text()}, p = {weakest.greater:.4f}", reduced
        )
    return Verdict("undecided", _undecided(weakest), reduced)


def _uneven_note(comparisons: Sequence[Comparison]) -> str:
    n = sum(c.uneven for c in comparisons)
    return f"; not compared, since the two sides are reduced in different ways: {n}" if n else ""


def _undecided(c: Comparison) -> str:
    text = f"{c.text()}, p = {c.greater:.4f}"
    if c.n and least_p(c.n) > ALPHA:
        seeds = f"{c.n} seed{'s' if c.n > 1 else ''}"
        text += f"; {seeds} cannot give less than {least_p(c.n):g}; at least 5 seeds are needed, 10 are recommended"
    return text


def _corrected_for(n: int) -> str:
    return f", corrected for {n} comparisons" if n > 1 else ""


def _all_significant(n: int) -> str:
    return "the comparison is significant" if n == 1 else f"all {n} comparisons are significant"

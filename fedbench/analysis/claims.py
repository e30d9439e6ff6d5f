"""Claims of a paper, decided by paired tests over seeds, never by means alone.

A claim is a set of comparisons. It holds if each of them is significant by itself: where all must be shown, testing
each at level α keeps the level of the whole (intersection-union test; Berger, 1982). It fails if at least one is
significant the other way after Holm's correction for their number. Anything else is undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from fedbench.analysis import table_claims as tables
from fedbench.analysis.comparison import Comparison
from fedbench.analysis.matching import Evidence
from fedbench.analysis.measures import curve_comparisons, limit_comparisons
from fedbench.analysis.stats import holm, least_p
from fedbench.core.errors import RequestError
from fedbench.papers.checks import (
    All,
    Best,
    Check,
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
# kind of a check of tables -> the comparisons that it consists of
_OF_TABLES: dict[type, Callable[[tables.Cells, Any], list[Comparison]]] = {
    Best: tables.best,
    NotBest: tables.not_best,
    Compare: tables.compare,
    Rank: tables.rank,
    Monotone: tables.monotone,
    CompareTables: tables.compare_tables,
}


@dataclass(frozen=True)
class Counts:
    """Numbers of comparisons of a claim.

    Attributes:
        total: All comparisons.
        run: Those with numbers.
        ahead: Those whose mean lead is above 0.
        behind: Those whose mean lead is below 0.
        significantly_ahead: Those with a p-value of at most 5 % that the first side is ahead, each by itself.
        significantly_behind: Those with a p-value of at most 5 % that the first side is behind, each by itself.
    """

    total: int = 0
    run: int = 0
    ahead: int = 0
    behind: int = 0
    significantly_ahead: int = 0
    significantly_behind: int = 0


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim.

    Attributes:
        verdict: One of ``holds``, ``fails``, ``undecided``, ``partly measured``, ``not run`` and ``not testable``.
        evidence: The reason, in one line.
        reduced: Whether a number behind it was obtained under a setting other than the paper's.
        basis: Source of the verdict: ``runs``, ``proof`` (a test of the code) or ``print`` (the paper's own numbers).
        comparisons: All comparisons, run or not, with their adjusted p-values.
        counts: Numbers of comparisons.
        worst: The comparison that is most against the claim; None if none has been run.
        by_group: Verdict on the comparisons of each setup, by its title; empty if there is only one.
    """

    verdict: str
    evidence: str
    reduced: bool = False
    basis: str = "runs"
    comparisons: tuple[Comparison, ...] = ()
    counts: Counts = Counts()
    worst: Comparison | None = None
    by_group: Mapping[str, Verdict] = field(default_factory=dict)


def judge(paper: Paper, claim: Claim, evidence: Evidence, functions: Functions = NO_FUNCTIONS) -> Verdict:
    """Return the verdict on a claim of a paper; ``functions`` are the paper's own checks."""
    match claim.check:
        case None:
            return Verdict("not testable", "the claim names no comparison that could be tested")
        case PropertyTest(test=test):
            return Verdict("holds", f"a property of the method, shown by {test}", basis="proof")
        case EqualRows() | EqualCells() as check:
            total, differing = tables.printed_differences(paper, check)
            if differing:
                return Verdict("fails", f"printed numbers differ: {'; '.join(differing)}", basis="print")
            return Verdict("holds", f"all {total} printed numbers agree", basis="print")
        case _:
            return decide(_comparisons(paper, claim, evidence, functions))


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
                case _:
                    compared = len(_comparisons(paper, claim, nothing, functions))
        except RequestError as error:
            raise RequestError(f"{where}: {error}") from error
        if not compared:
            raise RequestError(f"{where}: the check compares nothing; see its methods, setups and hyperparameters")


def _comparisons(paper: Paper, claim: Claim, evidence: Evidence, functions: Functions) -> list[Comparison]:
    return _checked(paper, claim, claim.check, evidence, functions)


def _checked(
    paper: Paper, claim: Claim, given: Check | None, evidence: Evidence, functions: Functions
) -> list[Comparison]:
    match given:
        case All(checks=checks):
            return [c for check in checks for c in _checked(paper, claim, check, evidence, functions)]
        case Curves() as check:
            return curve_comparisons(paper, check, evidence)
        case Limit() as check:
            return limit_comparisons(paper, check, evidence)
        case Function():
            if claim.id not in functions:
                raise RequestError(
                    f"kind: function needs a function {claim.id} in fedbench/papers/claims/{paper.id}.py"
                )
            return functions[claim.id](paper, evidence)
        case check:
            return _OF_TABLES[type(check)](tables.Cells(paper, evidence), check)


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
    against, worst = min(zip(holm([c.less or 0.0 for c in run]), run, strict=True), key=lambda pair: pair[0])
    if against <= ALPHA:
        corrected = f", corrected for {len(run)} comparisons" if len(run) > 1 else ""
        return Verdict("fails", f"{worst.text()}; p = {against:.4f} the other way{corrected}", reduced)
    if len(run) < len(comparisons):
        shown = sum((c.greater or 0.0) <= ALPHA for c in run)
        text = f"{len(run)} of {len(comparisons)} comparisons have been run: {shown} significant, none against it"
        return Verdict("not run", text + _uneven_note(comparisons), reduced)
    weakest = max(run, key=lambda c: c.greater or 0.0)
    text = f"{weakest.text()}, p = {weakest.greater:.4f}"
    if (weakest.greater or 0.0) <= ALPHA:
        all_of_them = "the comparison is" if len(run) == 1 else f"all {len(run)} comparisons are"
        return Verdict("holds", f"{all_of_them} significant; the weakest: {text}", reduced)
    if weakest.n and least_p(weakest.n) > ALPHA:
        seeds, least = f"{weakest.n} seed{'s' if weakest.n > 1 else ''}", least_p(weakest.n)
        text += f"; {seeds} cannot give less than {least:g}; at least 5 seeds are needed, 10 are recommended"
    return Verdict("undecided", text, reduced)


def _uneven_note(comparisons: Sequence[Comparison]) -> str:
    n = sum(c.uneven for c in comparisons)
    return f"; not compared, since the two sides are reduced in different ways: {n}" if n else ""

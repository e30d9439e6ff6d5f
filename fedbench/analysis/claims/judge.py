"""Claims of a paper, judged by the runs that their checks ask for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from statistics import mean
from typing import Any, TypeAlias

from fedbench.analysis.claims import tables
from fedbench.analysis.claims.comparison import Comparison
from fedbench.analysis.claims.curves import curve_comparisons, limit_comparisons
from fedbench.analysis.claims.verdict import ALPHA, Verdict, decide
from fedbench.analysis.matching import Evidence
from fedbench.core.errors import RequestError
from fedbench.papers.checks import (
    All,
    Averages,
    Best,
    Check,
    Compare,
    CompareTables,
    EqualCells,
    EqualRows,
    Function,
    Monotone,
    NotBehind,
    NotBest,
    PropertyTest,
    Trend,
    WithinBand,
)
from fedbench.papers.curve_checks import Curves, Limit
from fedbench.papers.schema import Claim, Paper

OwnCheck: TypeAlias = Callable[[Paper, Evidence], list[Comparison]]
# kind of a check of tables -> the comparisons that it consists of
_OF_TABLES: dict[type, Callable[[tables.Cells, Any], list[Comparison]]] = {
    Best: tables.best,
    NotBest: tables.not_best,
    Compare: tables.compare,
    Monotone: tables.monotone,
    Trend: tables.trend,
    CompareTables: tables.compare_tables,
    Averages: tables.averages,
    NotBehind: tables.not_behind,
}


def judge(paper: Paper, claim: Claim, evidence: Evidence) -> Verdict:
    """Return the verdict on a claim of a paper."""
    match claim.check:
        case None:
            return Verdict("not testable", "the claim names no comparison that could be tested")
        case PropertyTest(test=test, shows=shows):
            how = "shown" if shows == "holds" else "refuted"
            return Verdict(shows, f"a property of the method, {how} by {test}", basis="proof")
        case EqualRows() | EqualCells() as check:
            total, differing = tables.printed_differences(paper, check)
            if differing:
                return Verdict("fails", f"printed numbers differ: {'; '.join(differing)}", basis="print")
            return Verdict("holds", f"all {total} printed numbers agree", basis="print")
        case WithinBand() as check:
            return _within_band(paper, check, evidence)
        case _:
            found = decide(comparisons_of(paper, claim, evidence))
            by_group = {title: _as_reduced(claim, one) for title, one in found.by_group.items()}
            return replace(_as_reduced(claim, found), by_group=by_group)


def _within_band(paper: Paper, check: WithinBand, evidence: Evidence) -> Verdict:
    """Return the verdict on a mean over seeds, which has one once all seeds of the paper have run.

    A run that ends before the upper bound of the band cannot show that a target is reached too late.
    """
    found = tables.mean_over_seeds(paper, check, evidence)
    low, high = (-math.inf if check.low is None else check.low), (math.inf if check.high is None else check.high)
    done = f"{len(found.values)} of {found.wanted} seeds have a number"
    if not found.seeds:
        return Verdict("not run", f"none of {found.wanted} seeds has run")
    if found.seeds < found.wanted:
        return Verdict("partly measured", f"{done}; the mean has a verdict once all have run", found.reduced)
    if found.missed and not found.diverged and min(found.missed) < high < math.inf:
        return Verdict("partly measured", f"{done}; the others have fewer rounds than the band allows", found.reduced)
    if found.missed or found.diverged:
        return Verdict("fails", f"{done}; {found.diverged} diverged", found.reduced)
    centre = mean(found.values)
    inside = low <= centre <= high
    said = f"mean {centre:.4g} over {done}, {'within' if inside else 'outside'} {low:g} to {high:g}"
    return Verdict("holds" if inside else "fails", said, found.reduced)


def _as_reduced(claim: Claim, found: Verdict) -> Verdict:
    """Return a verdict, undecided if it is one that runs at reduced settings cannot give on this claim."""
    can = {"decide": ("holds", "fails"), "support": ("holds",), "refute": ("fails",), "neither": ()}[claim.reduced]
    if found.verdict not in {"holds", "fails"} - {*can} or not _by_reduced_runs(found):
        return found
    what = "show" if found.verdict == "holds" else "refute"
    return replace(found, verdict="undecided", evidence=f"{found.evidence}; runs at reduced settings cannot {what} it")


def _by_reduced_runs(found: Verdict) -> bool:
    """Return whether a verdict needs runs at reduced settings; one comparison at full settings can refute a claim."""
    if found.verdict == "fails":
        return all(c.reduced for c in found.comparisons if c.against_p is not None and c.against_p <= ALPHA)
    return found.reduced


def refuse_bad_checks(paper: Paper) -> None:
    """Run the checks of all claims without any runs, to find faults in the paper's file.

    Raises:
        RequestError: With the paper, the claim and its first fault: a function or a row that does not exist, a check
            that compares nothing, or ``reduced`` without ``needs``.
    """
    nothing = Evidence([])
    for claim in paper.claims:
        where = f"{paper.id}.yaml: claims: {claim.id}"
        if claim.reduced != "decide" and not claim.needs:
            raise RequestError(
                f"{where}: reduced: {claim.reduced} asks for needs, which says what the other verdict takes"
            )
        try:
            match claim.check:
                case None | PropertyTest():
                    continue
                case EqualRows() | EqualCells() as check:
                    compared = tables.printed_differences(paper, check)[0]
                case WithinBand() as check:
                    compared = tables.mean_over_seeds(paper, check, nothing).wanted
                case _:
                    compared = len(comparisons_of(paper, claim, nothing))
        except RequestError as error:
            raise RequestError(f"{where}: {error}") from error
        if not compared:
            raise RequestError(f"{where}: the check compares nothing; see its methods, setups and hyperparameters")


def comparisons_of(paper: Paper, claim: Claim, evidence: Evidence) -> list[Comparison]:
    """Return the comparisons of a claim, not judged; none if it is not decided by runs."""
    if isinstance(claim.check, None | PropertyTest | EqualRows | EqualCells | WithinBand):
        return []
    return _checked(paper, claim, claim.check, evidence)


def _checked(paper: Paper, claim: Claim, given: Check | None, evidence: Evidence) -> list[Comparison]:
    match given:
        case All(checks=checks):
            return [c for check in checks for c in _checked(paper, claim, check, evidence)]
        case Curves() as check:
            return curve_comparisons(paper, check, evidence)
        case Limit() as check:
            return limit_comparisons(paper, check, evidence)
        case Function():
            return own_check(paper.id, claim.id)(paper, evidence)
        case check:
            return _OF_TABLES[type(check)](tables.Cells(paper, evidence), check)


def own_check(paper: str, claim: str) -> OwnCheck:
    """Return the check of a claim by a function of its own.

    Args:
        paper: Id of the paper, the name of the module in this package.
        claim: Id of the claim, the name of the function.

    Raises:
        RequestError: If there is no such function.
    """
    module = f"{__package__}.{paper}"
    found: OwnCheck | None = getattr(import_module(module), claim, None) if find_spec(module) else None
    if found is None:
        raise RequestError(f"kind: function needs a function {claim} in {module.replace('.', '/')}.py")
    return found

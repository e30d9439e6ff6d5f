"""Claims of a paper, judged by the runs that their checks ask for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from statistics import mean
from typing import TypeAlias

from fedbench.analysis.claims import tables
from fedbench.analysis.claims.comparison import Comparison, best_of, worst_of
from fedbench.analysis.claims.curves import curve_comparisons, limit_comparisons
from fedbench.analysis.claims.verdict import ALPHA, Verdict, decide
from fedbench.analysis.matching import Evidence
from fedbench.core.errors import RequestError
from fedbench.papers.checks import (
    Averages,
    Check,
    Compare,
    Curves,
    EqualRows,
    Limit,
    PropertyTest,
    Several,
    Trend,
    WithinBand,
)
from fedbench.papers.schema import Claim, Paper

OwnCheck: TypeAlias = Callable[[Paper, Evidence], list[Comparison]]


def judge(paper: Paper, claim: Claim, evidence: Evidence) -> Verdict:
    """Return the verdict on a claim of a paper."""
    match claim.check:
        case None:
            return Verdict("not testable", "the claim names no comparison that could be tested")
        case PropertyTest(test=test, shows=shows):
            how = "shown" if shows == "holds" else "refuted"
            return Verdict(shows, f"a property of the method, {how} by {test}", basis="proof")
        case EqualRows() as check:
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
        RequestError: With the paper, the claim and its first fault: a function or a row that does not exist, or a
            check that compares nothing.
    """
    nothing = Evidence([])
    for claim in paper.claims.values():
        where = f"{paper.id}.yaml: claims: {claim.id}"
        try:
            match claim.check:
                case None | PropertyTest():
                    continue
                case EqualRows() as check:
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
    if isinstance(claim.check, None | PropertyTest | EqualRows | WithinBand):
        return []
    return _checked(paper, claim, claim.check, evidence)


def _checked(paper: Paper, claim: Claim, given: Check | None, evidence: Evidence) -> list[Comparison]:
    cells = tables.Cells(paper, evidence)
    match given:
        case Several(checks=checks):
            found = [c for check in checks for c in _checked(paper, claim, check, evidence)]
            if not given.label:
                return found
            return [(worst_of if given.kind == "all" else best_of)(given.label, found)] if found else []
        case Compare():
            found = tables.compare(cells, given)
        case Trend():
            found = tables.trend(cells, given)
        case Averages():
            found = tables.averages(cells, given)
        case Curves():
            found = curve_comparisons(paper, given, evidence)
        case Limit():
            found = limit_comparisons(paper, given, evidence)
        case _:
            found = own_check(paper.id, claim.id)(paper, evidence)
    return found


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

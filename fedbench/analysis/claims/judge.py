"""Claims of a paper, judged by the runs that their checks ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import TypeAlias

from fedbench.analysis.claims import tables
from fedbench.analysis.claims.comparison import Comparison, joined
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
    Function,
    Limit,
    PropertyTest,
    Several,
    Trend,
    WithinBand,
)
from fedbench.papers.schema import Claim, Paper

OwnCheck: TypeAlias = Callable[[Paper, Evidence], list[Comparison]]


def judge(paper: Paper, claim: Claim, evidence: Evidence) -> Verdict:
    """Return the verdict on a claim of a paper.

    Raises:
        RequestError: With the first fault of its check: a function or a row that does not exist.
    """
    try:
        match claim.check:
            case None:
                return Verdict("not testable", "the claim names no comparison that could be tested")
            case PropertyTest(test=test, shows=shows):
                how = "shown" if shows == "holds" else "refuted"
                return Verdict(shows, f"a property of the method, {how} by {test}", basis="proof")
            case EqualRows() as check:
                return tables.equal_rows(paper, check)
            case WithinBand() as check:
                return tables.within_band(paper, check, evidence)
            case _:
                found = decide(comparisons_of(paper, claim, claim.check, evidence))
    except RequestError as error:
        raise RequestError(f"{paper.id}.yaml: claims: {claim.id}: {error}") from error
    by_group = {title: _as_reduced(claim, one) for title, one in found.by_group.items()}
    return replace(_as_reduced(claim, found), by_group=by_group)


def _as_reduced(claim: Claim, found: Verdict) -> Verdict:
    """Return a verdict, undecided if it is one that runs at reduced settings cannot give on this claim."""
    can = {"decide": ("holds", "fails"), "support": ("holds",), "refute": ("fails",), "neither": ()}[claim.reduced]
    if found.verdict not in {"holds", "fails"} - {*can} or not _by_reduced_runs(found):
        return found
    return replace(found, verdict="undecided", barred=found.verdict)


def _by_reduced_runs(found: Verdict) -> bool:
    """Return whether a verdict needs runs at reduced settings; one comparison at full settings can refute a claim."""
    if found.verdict == "fails":
        return all(c.reduced for c in found.run if (c.against_p or 0.0) <= ALPHA)
    return found.reduced


def comparisons_of(paper: Paper, claim: Claim, check: Check, evidence: Evidence) -> list[Comparison]:
    """Return the comparisons of a check of a claim, not judged."""
    cells = tables.Cells(paper, evidence)
    match check:
        case Several(checks=checks):
            found = [c for part in checks for c in comparisons_of(paper, claim, part, evidence)]
            return [joined(check.label, found, check.kind == "all")] if check.label else found
        case Compare():
            return tables.compare(cells, check)
        case Trend():
            return tables.trend(cells, check)
        case Averages():
            return tables.averages(cells, check)
        case Curves():
            return curve_comparisons(paper, check, evidence)
        case Limit():
            return limit_comparisons(paper, check, evidence)
        case Function():
            return own_check(paper.id, claim.id)(paper, evidence)
        case _:
            raise RequestError(f"{check.kind} is not decided by comparisons; make it a claim of its own")


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

"""Verdicts on the claims of a paper, from the runs that their checks need."""

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, TypeAlias

from fedbench.analysis.claims import table_claims
from fedbench.analysis.claims.comparison import Comparison, joined
from fedbench.analysis.claims.curve_claims import curve_comparisons, limit_comparisons
from fedbench.analysis.claims.verdict import Verdict, decide
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
from fedbench.papers.readings import ADOPTED, Reading
from fedbench.papers.schema import Claim

Readings: TypeAlias = Mapping[Reading, Verdict]
ClaimCheck: TypeAlias = Callable[[Evidence], Iterable[Comparison]]
_COMPARISONS: dict[type, Callable[[Evidence, Any], Iterable[Comparison]]] = {
    Compare: table_claims.compare,
    Trend: table_claims.trend,
    Averages: table_claims.averages,
    WithinBand: table_claims.within_band,
    Curves: curve_comparisons,
    Limit: limit_comparisons,
}


def judge(claim: Claim, evidence: Evidence) -> Verdict:
    """Return the verdict on a claim of a paper.

    Raises:
        RequestError: If the claim's check names a function or a row that does not exist.
    """
    try:
        match claim.check:
            case None:
                return Verdict("not testable", "the claim names no comparison that could be tested")
            case PropertyTest(test=test, shows=shows):
                how = "shown" if shows == "holds" else "refuted"
                return Verdict(shows, f"a property of the method, {how} by {test}", "test")
            case EqualRows() as check:
                return table_claims.equal_rows(evidence.paper, check)
            case _:
                return decide(comparisons_of(claim, claim.check, evidence), evidence.alpha)
    except RequestError as error:
        raise RequestError(f"{evidence.paper.id}.yaml: claims: {claim.id}: {error}") from error


def judge_readings(
    claim: Claim,
    evidence: Evidence,
    required: Collection[str] | None = None,
) -> Readings:
    """Return the verdict on a claim under each reading of its paper, the adopted one first.

    A reading is left out if its numbers equal those of a reading that is closer to the adopted one.

    Args:
        claim: The claim.
        evidence: The paper and the runs.
        required: Variants that must have been run if the verdict is to count; all if None.
    """
    verdicts = {}
    numbers: dict[Reading, list[object]] = {}
    for reading in evidence.paper.readings.every():
        verdict = judge(claim, evidence.under(reading))
        numbers[reading] = _numbers(verdict.outcome)
        if not any(numbers[near] == numbers[reading] for near in reading.nearer()):
            verdicts[reading] = verdict

    adopted = verdicts[ADOPTED]
    if adopted.word != "not run":
        missing = []
        for name in evidence.paper.readings.variants:
            judged = verdicts.get(Reading(variant=name), adopted)
            needed = required is None or name in required
            if needed and judged.word == "not run":
                missing.append(name)
        verdicts[ADOPTED] = replace(adopted, unread=tuple(missing))
    return verdicts


def comparable(readings: Readings) -> dict[Reading, Verdict]:
    """Return the counted readings of the same kind as the adopted one: full or scaled down.

    A reading is counted if its blocks allowed either outcome.
    """
    adopted = readings[ADOPTED]
    scaled = adopted.outcome is not adopted
    comparable = {}
    for reading, verdict in readings.items():
        outcome = verdict.outcome
        if outcome.counts and (outcome is not verdict) == scaled:
            comparable[reading] = outcome
    return comparable


def differing(readings: Readings) -> list[Reading] | None:
    """Return the counted readings whose verdict differs from that of the adopted reading.

    Only the differing readings closest to the adopted one are returned. The result is None if no
    other reading is counted.
    """
    words = {reading: verdict.word for reading, verdict in comparable(readings).items()}
    if ADOPTED not in words or len(words) < 2:
        return None
    others = [reading for reading, word in words.items() if word != words[ADOPTED]]
    axes = {reading: len(reading.differs_from(ADOPTED)) for reading in others}
    fewest = min(axes.values(), default=0)
    return [reading for reading in others if axes[reading] == fewest]


def _numbers(verdict: Verdict) -> list[object]:
    """Return the numbers behind a verdict, for comparing readings."""
    numbers = attrgetter(
        "label",
        "mean",
        "greater",
        "less",
        "n",
        "blocks",
    )
    return list(map(numbers, verdict.comparisons))


def comparisons_of(
    claim: Claim,
    check: Check,
    evidence: Evidence,
) -> list[Comparison]:
    """Return the comparisons of a claim's check, not yet judged."""
    if isinstance(check, Several):
        parts: list[Comparison] = []
        for part in check.checks:
            parts += comparisons_of(claim, part, evidence)
        if not check.label:
            return parts
        return [joined(check.label, parts, every=check.kind == "all")]
    if isinstance(check, Function):
        function = claim_check(evidence.paper.id, claim.id)
        return list(function(evidence))
    if type(check) not in _COMPARISONS:
        raise RequestError(
            f"{check.kind} is not decided by comparisons; make it a claim of its own"
        )
    return list(_COMPARISONS[type(check)](evidence, check))


def claim_check(paper: str, claim: str) -> ClaimCheck:
    """Return the function that checks a claim.

    Args:
        paper: Id of the paper, which is also the name of the module in this package.
        claim: Id of the claim, with which the function's name begins, as in
            ``c14_lead_grows_with_skew``.

    Raises:
        RequestError: If there is no such function.
    """
    module = f"{__package__}.{paper}"
    functions = vars(import_module(module)) if find_spec(module) else {}
    for name, function in functions.items():
        if name.startswith(f"{claim}_"):
            check: ClaimCheck = function
            return check
    raise RequestError(
        f"kind: function needs a function {claim}_... in {module.replace('.', '/')}.py"
    )


def code_digest(claim: Claim, paper: str) -> str:
    """Return a digest of the function that checks a claim, without its docstring.

    The digest is empty if no function belongs to the check.
    """
    if not _needs_code(claim.check):
        return ""
    source = textwrap.dedent(inspect.getsource(claim_check(paper, claim.id)))
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    body = function.body
    if ast.get_docstring(function) is not None:
        body = body[1:]
    code = ast.dump(ast.Module(body, []))
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def _needs_code(check: Check | None) -> bool:
    if isinstance(check, Several):
        return any(map(_needs_code, check.checks))
    return isinstance(check, Function)

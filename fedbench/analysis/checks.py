"""Whether the checks of a paper's claims can be carried out: looked through before anything is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedbench.analysis.claims import comparisons
from fedbench.analysis.matching import Evidence
from fedbench.analysis.measures import MEASURES
from fedbench.core.errors import RequestError, nearest
from fedbench.core.trees import listed
from fedbench.papers.reading import is_field
from fedbench.papers.registry import Paper, Row

# of a kind of check: keys that it must have, and that it may have
KINDS: dict[str, tuple[str, str]] = {
    "best": ("table setups metrics algo", "ties"),
    "not_best": ("table setups metrics algo", ""),
    "compare": ("table setups metric better worse", ""),
    "rank": ("table setup metric order", ""),
    "monotone": ("table metric algo over trend", "order setup"),
    "lead": ("table metric algo larger smaller", ""),
    "compare_setups": ("table metric algos better_setup worse_setup", ""),
    "compare_tables": ("metric algos better worse", ""),
    "equal_rows": ("tables setups metrics algo", ""),
    "equal_cells": ("a b setups metrics", ""),
    "curves": ("figure better worse measure fields", "setups threshold"),
    "curve_steps": ("figure algo measure field order trend", ""),
    "runs": ("figure setup pairs", "steeper"),
    "dominance": ("figure setup front dominated fields", ""),
    "symmetric": ("figure setup algo parameter pairs field margin", ""),
    "limit": ("figure methods measure field", "at_least at_most reference"),
    "rounds_to_target": ("figure setup algo field target rounds others_rounds", ""),
    "two_clients": ("figure algo", ""),
    "test": ("test", ""),
}
_TRENDS = ("increasing", "decreasing")
_WITHOUT_FIELD = ("below", "cka")  # measures of clients and of moments


def refuse_bad_checks(paper: Paper) -> None:
    """Look through the checks of all claims.

    Raises:
        RequestError: naming the paper, the claim and the first fault.
    """
    for claim in paper.claims:
        if claim.check is not None and (fault := next(_faults(paper, claim.check), None)):
            raise RequestError(f"{paper.id}.yaml: claims: {claim.id}: {fault}")


def _faults(paper: Paper, check: Mapping[str, Any]) -> Iterator[str]:
    kind = check.get("kind")
    if kind not in KINDS:
        yield f"kind must be one of {', '.join(KINDS)}; got {kind!r}{nearest(str(kind), KINDS)}"
    needed, allowed = (words.split() for words in KINDS[str(kind)])
    for key in needed:
        if key not in check:
            yield f"a check of kind {kind} needs {', '.join(needed)}; {key} is missing"
    for key in check:
        if key not in ("kind", *needed, *allowed):
            yield f"a check of kind {kind} has no key {key}{nearest(key, [*needed, *allowed])}"
    if "trend" in check and check["trend"] not in _TRENDS:
        yield f"trend must be one of {', '.join(_TRENDS)}; got {check['trend']!r}"
    for measure in listed(check.get("measure", [])):
        if measure not in MEASURES[str(kind)]:
            yield f"measure must be one of {', '.join(MEASURES[str(kind)])}; got {measure!r}"
    for field in _fields(check):
        if not is_field(field) and check.get("measure") not in _WITHOUT_FIELD:
            yield f"field {field!r} is none of a run's numbers, such as train_loss or accuracy_mean"
    yield from _references(paper, check)
    yield from _nonsense(paper, check)
    try:
        found = comparisons(paper, check, Evidence([]))
    except (LookupError, StopIteration, RuntimeError, TypeError, ValueError) as error:
        yield f"it names what is not there, or lacks something: {type(error).__name__} {error}".rstrip()
    else:
        if found is not None and not found:
            yield "it names nothing that is compared; look at its methods, setups and hyperparameters"


def _nonsense(paper: Paper, check: Mapping[str, Any]) -> Iterator[str]:
    """Give what can be carried out and says nothing."""
    if not isinstance(check.get("ties", True), bool):
        yield f"ties must be true or false; got {check['ties']!r}"
    if check["kind"] == "limit" and ("at_least" in check) == ("at_most" in check):
        yield "a limit has either at_least or at_most"
    if check.get("measure") == "seconds_over" and "reference" not in check:
        yield "seconds_over needs reference, the method whose seconds are compared"
    if check["kind"] == "lead" and check["larger"] == check["smaller"]:
        yield "larger and smaller must be two setups"
    if check["kind"] == "lead":
        for setup in (check["larger"], check["smaller"]):
            algos = [r.algo for r in paper.tables[check["table"]].rows if r.setup == setup]
            if algos.count(check["algo"]) != 1 or len(algos) < 2:
                yield f"a lead on {setup} takes one row of {check['algo']} and another method's; there are {algos}"
    if check["kind"] == "compare" and set(listed(check["better"])) & set(listed(check["worse"])):
        yield "a method cannot be both better and worse"
    if check["kind"] in ("curves", "dominance", "limit"):
        figure = paper.figures[check["figure"]]
        setups = check.get("setups") or listed(check.get("setup", list(figure.setups)))
        for key in ("better", "worse", "front", "dominated", "methods", "reference"):
            for spec in listed(check.get(key, [])):
                for setup in setups:
                    if not any(r.setup == setup and _fits(r, spec) for r in figure.rows):
                        yield f"{key} {spec!r} selects no run of {check['figure']} on {setup}"


def _fits(row: Row, spec: Any) -> bool:
    if spec in ("others", "all"):
        return True
    wanted = {"algo": spec} if isinstance(spec, str) else spec
    have = {**row.hyperparameters, "algo": row.algo}
    return all(have.get(k) == v for k, v in wanted.items())


def _fields(check: Mapping[str, Any]) -> list[Any]:
    entries = [check, *check.get("steeper", []), *(p for p in check.get("pairs", []) if isinstance(p, Mapping))]
    return [f for e in entries for f in [*listed(e.get("fields", [])), *([e["field"]] if "field" in e else [])]]


def _references(paper: Paper, check: Mapping[str, Any]) -> Iterator[str]:
    """Give the names in a check that the paper does not have."""
    sides = [s for k in ("better", "worse", "a", "b") if isinstance(s := check.get(k), Mapping)]
    known: dict[str, Mapping[str, Any]] = {
        "table": paper.tables, "tables": paper.tables, "figure": paper.figures, "metric": paper.metrics,
        "metrics": paper.metrics, "algo": paper.methods, "algos": paper.methods, "setup": paper.setups,
        "setups": paper.setups, "larger": paper.setups, "smaller": paper.setups, "better_setup": paper.setups,
        "worse_setup": paper.setups,
    }  # fmt: skip
    for entry in (check, *sides):
        for key, there in known.items():
            for name in listed(entry.get(key, [])):
                if name not in there:
                    yield f"{key} {name!r} is not in the paper; there are {', '.join(there)}{nearest(str(name), there)}"
    for key in ("better", "worse", "methods", "reference", "front", "dominated"):
        for spec in listed(check.get(key, [])):
            if isinstance(spec, Mapping) and "table" in spec:
                continue  # a side of compare_tables, whose methods are in algos
            name = spec.get("algo") if isinstance(spec, Mapping) else spec
            if name not in (*paper.methods, "others", "all"):
                yield f"{key} {name!r} is no method of the paper{nearest(str(name), paper.methods)}"

"""The papers on record: a YAML file per paper in this folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fedbench.core.errors import RequestError
from fedbench.core.files import from_yaml
from fedbench.core.metrics import metric_info, weighted_or_not
from fedbench.papers.checks import All, Check
from fedbench.papers.curve_checks import Curves, Limit
from fedbench.papers.figures import Figure
from fedbench.papers.parsing import entries, one_of, parse
from fedbench.papers.readings import Readings
from fedbench.papers.schema import Claim, Contradiction, Gap, Head, Method, Paper, PrintedMetric, Setup, Table

LABELS = "labels"  # folder in the results directory: examples per client and class, by experiment
# in an order in which each section refers only to earlier ones
_SECTIONS: dict[str, Any] = {
    "gaps": Gap,
    "metrics": PrintedMetric,
    "methods": Method,
    "setups": Setup,
    "tables": Table,
    "figures": Figure,
    "claims": Claim,
    "contradictions": Contradiction,
}


@dataclass(frozen=True, eq=False)
class Home:
    """The place of an experiment in a paper.

    Attributes:
        paper: The paper.
        setup: The setup that the experiment carries out.
        table: The table that the experiment is named after, else the first one with the setup; None without a table.
    """

    paper: Paper
    setup: Setup
    table: Table | None


def home_of(experiment: str | None) -> Home | None:
    """Return the place of an experiment in the papers on record, or None if it belongs to none of them."""
    return None if experiment is None else _homes().get(experiment)


@cache
def _homes() -> dict[str, Home]:
    found = {}
    for paper in papers().values():
        for setup in paper.setups.values():
            tables = [t for t in paper.tables.values() if setup.id in t.setups]
            named = [t for t in tables if setup.experiment.startswith(f"{paper.id}/{t.id}_")]
            found[setup.experiment] = Home(paper, setup, next(iter([*named, *tables]), None))
    return found


@cache
def papers() -> dict[str, Paper]:
    """Return the papers on record, by id.

    Raises:
        RequestError: If a file is invalid.
    """
    return {p.id: p for p in map(read_paper, sorted(Path(__file__).parent.glob("*.yaml")))}


def read_paper(path: Path) -> Paper:
    """Return the paper of a YAML file.

    Raises:
        RequestError: With the file, the entry and its first fault.
    """
    try:
        content = from_yaml(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise RequestError(f"{path.name} is not valid YAML: {' '.join(str(error).split())}") from error
    try:
        return _paper(content, path.stem)
    except ValueError as error:
        raise RequestError(f"{path.name}: {error}") from error


def _paper(content: Any, name: str) -> Paper:
    if not isinstance(content, Mapping):
        raise RequestError(f"the file must be a mapping with paper, {', '.join(_SECTIONS)}; got {content!r}")
    for key in ("paper", *_SECTIONS):
        if key not in content:
            raise RequestError(f"the file lacks {key}; it needs paper, {', '.join(_SECTIONS)}")
    for key in content:
        one_of(key, ("paper", *_SECTIONS, "readings"), "key")
    head = parse(Head, content["paper"], "paper")
    if head.id != name:
        raise RequestError(f"the id of a paper is the name of its file, {name}; got {head.id!r}")
    known: dict[str, dict[str, Any]] = {}
    for section, kind in _SECTIONS.items():
        known[section] = entries(kind, section, content[section], known)
    return Paper(
        id=head.id,
        name=head.name,
        citation=f"{', '.join(head.authors)}: {head.title}. {head.venue}, {head.year}",
        **{s: known[s] for s in ("metrics", "methods", "setups", "tables", "figures")},
        claims=tuple(known["claims"].values()),
        gaps=tuple(known["gaps"].values()),
        contradictions=tuple((x.id, f"{x.statement} {x.resolution}") for x in known["contradictions"].values()),
        readings=parse(Readings, content.get("readings", {}), "readings", known),
    )


def curve_fields(paper: Paper) -> list[str]:
    """Return the keys that a paper reads at all rounds, in both weightings of the clients."""
    named = {name for figure in paper.figures.values() for name in getattr(figure.spec, "fields", ())}
    named |= {name for claim in paper.claims if claim.check is not None for name in _fields_of(claim.check)}
    named |= {m.field for m in paper.metrics.values() if m.target is not None or m.rounds is not None}
    both = {twin for name in named for w in (True, False) if (twin := weighted_or_not(name, w)) is not None}
    return sorted({key for name in both for key in metric_info(name).needs or (name,)})


def _fields_of(check: Check) -> Iterator[str]:
    if isinstance(check, All):
        for part in check.checks:
            yield from _fields_of(part)
    elif isinstance(check, Curves):
        yield from check.fields
    elif isinstance(check, Limit):
        yield check.field

"""The front page of a directory of published reports: ``fedbench report results/published``.

It shows what the ``summary.json`` of every report says, and the sentences of its ``learnt.yaml``, which hold for its
runs only::

    figure: figure3                      # the picture of the report that says most
    sentences:
    - text: AdaFedAdam is ahead of ...
      claim: c13
      verdict: holds
      readings: 'depends on: weighting'  # as in tables/<paper>_claims.csv; left out where it is empty
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import yaml

from fedbench.analysis.table import Coverage
from fedbench.core.errors import RequestError, nearest
from fedbench.core.files import NotWritten, from_yaml, replace_file
from fedbench.papers.parsing import Entry, parse
from fedbench.report.format import Judged, coverage_text
from fedbench.report.page import claim_anchor, render
from fedbench.report.plots import DrawnFigure
from fedbench.report.write import SUMMARY, environment_items
from fedbench.runs.bundle import is_bundle
from fedbench.runs.results import Results

FILE = "learnt.yaml"
_PAGE = "index.html"
_DECIDED = ("holds", "fails")


@dataclass(frozen=True)
class Sentence(Entry):
    """A sentence on what was learnt, with the claim that it rests on and the verdict that it states."""

    text: str
    claim: str
    verdict: str
    readings: str = ""


@dataclass(frozen=True)
class Learnt(Entry):
    """What was learnt from a report, and the name of the picture that says most, such as ``figure2_distribution``."""

    sentences: tuple[Sentence, ...] = ()
    figure: str | None = None


@dataclass(frozen=True)
class ClaimStates:
    """Numbers of claims by state. Every claim has one state.

    Attributes:
        states: By ``fedbench.report.format.Judged.state``.
        robust: Of those that hold or fail, those that are robust.
        reduced: Of those that hold, fail or depend on the reading, those whose runs are reduced.
    """

    states: Counter[str]
    robust: int = 0
    reduced: int = 0

    @property
    def total(self) -> int:
        """All claims."""
        return self.states.total()

    @property
    def testable(self) -> int:
        """Those that runs can decide."""
        return self.total - self.states["without runs"] - self.states["not testable"]

    @property
    def settled(self) -> int:
        """Those that runs decide or show to depend on the reading."""
        return self.states["holds"] + self.states["fails"] + self.states["depends"]


def claim_states(claims: Sequence[Judged]) -> ClaimStates:
    """Return how many claims are in which state."""
    return ClaimStates(
        Counter(claim.state for claim in claims),
        sum(claim.state in _DECIDED and claim.headline == "robust" for claim in claims),
        sum(claim.state in (*_DECIDED, "depends") and claim.reduced for claim in claims),
    )


@dataclass(frozen=True)
class PaperSummary:
    """A paper on the front page: what its report says in ``summary.json``, and what was learnt from it."""

    id: str
    title: str
    citation: str
    coverage: Coverage
    claims: tuple[Judged, ...]
    runs: int
    hours: float
    learnt: tuple[tuple[Sentence, Judged, str], ...]
    figures: tuple[DrawnFigure, ...]

    @property
    def states(self) -> ClaimStates:
        """Its claims by state."""
        return claim_states(self.claims)


def is_collection(folder: Path) -> bool:
    """Return whether a directory contains published reports, at least one of them with a bundle, and no runs."""
    if is_bundle(folder) or not any(is_bundle(child) for child in folder.iterdir() if child.is_dir()):
        return False
    store = Results(folder)
    return not any(True for _ in store) and not store.damaged


def write_overview(folder: Path) -> str:
    """Write the front page of published reports into their directory and return where.

    Raises:
        RequestError: If a summary is missing or invalid, a sentence states another verdict than its claim has, or the
            page cannot be written.
    """
    papers: list[PaperSummary] = []
    environment: dict[str, Counter[str]] = {}
    others = []
    for place in sorted(child for child in folder.iterdir() if (child / _PAGE).is_file()):
        found = _read(place)
        mine = [_paper(entry, place) for entry in found.get("papers", []) if entry["id"] == place.name]
        papers += mine
        others += [] if mine else [(_title(place), f"{place.name}/{_PAGE}")]
        for key, counts in found.get("environment", {}).items():
            environment.setdefault(key, Counter()).update(counts)
    coverage = sum((p.coverage for p in papers), Coverage())
    states = claim_states([claim for p in papers for claim in p.claims])
    html = render(
        "front.html",
        title="fedbench: evidence",
        papers=papers,
        coverage=coverage,
        states_of_all=states,
        others=others,
        environment=environment_items({key: dict(sorted(counts.items())) for key, counts in environment.items()}),
        claim_anchor=claim_anchor,
    )
    try:
        replace_file(folder / _PAGE, html)
    except NotWritten as error:
        raise RequestError(str(error)) from error
    said = (
        f"{len(papers)} papers: {coverage_text(coverage)}; of {states.total} claims {states.states['holds']} hold, "
        f"{states.states['fails']} fail, {states.states['depends']} depend on the reading; "
        f"{sum(p.runs for p in papers)} runs, {sum(p.hours for p in papers):.1f} hours"
    )
    return f"{said}\nwritten: {folder / _PAGE}"


def _read(place: Path) -> dict[str, Any]:
    """Return the summary of a report; nothing for a page that has none."""
    file = place / SUMMARY
    if not file.exists() and not is_bundle(place):
        return {}
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        remedy = f"write the report again: fedbench report {place} --into {place}"
        raise RequestError(f"{file} cannot be read: {error}; {remedy}") from error
    return found


def _paper(entry: Mapping[str, Any], place: Path) -> PaperSummary:
    claims = tuple(Judged(**claim) for claim in entry["claims"])
    learnt = _read_learnt(place)
    by_id = {claim.id: claim for claim in claims}
    _refuse_stale(learnt, by_id, place)
    sentences = tuple((s, by_id[s.claim], claim_anchor(entry["id"], s.claim)) for s in learnt.sentences)
    return PaperSummary(
        id=entry["id"],
        title=entry["title"],
        citation=entry["citation"],
        coverage=Coverage(**entry["coverage"]),
        claims=claims,
        runs=entry["runs"],
        hours=entry["hours"],
        learnt=sentences,
        figures=() if learnt.figure is None else (_figure(entry, learnt.figure, place),),
    )


def _read_learnt(place: Path) -> Learnt:
    """Return what was learnt from a report; nothing if it has no such file."""
    file = place / FILE
    if not file.exists():
        return Learnt()
    try:
        return parse(Learnt, from_yaml(file.read_text(encoding="utf-8")) or {})
    except (OSError, ValueError, RequestError, yaml.YAMLError) as error:
        raise RequestError(f"{file}: {error}") from error


def _refuse_stale(learnt: Learnt, claims: Mapping[str, Judged], place: Path) -> None:
    """Refuse sentences that state another verdict than the report has."""
    faults = []
    for s in learnt.sentences:
        if s.claim not in claims:
            faults.append(f"{s.claim} is unknown{nearest(s.claim, [*claims])}: {s.text}")
            continue
        stated, found = verdict_text(s.verdict, s.readings), claims[s.claim]
        if stated != (given := verdict_text(found.verdict, found.readings)):
            faults.append(f"{s.claim} is stated as {stated!r}, and the runs give {given!r}: {s.text}")
    if faults:
        raise RequestError("\n".join([f"{place / FILE}: correct these sentences, or remove them", *faults]))


def verdict_text(verdict: str, readings: str) -> str:
    """Return a verdict with what its readings amount to: 'holds; depends on: weighting'."""
    return f"{verdict}; {readings}" if readings and readings != verdict else verdict


def _figure(entry: Mapping[str, Any], name: str, place: Path) -> DrawnFigure:
    """Return a picture of a report."""
    figures = {figure["name"].partition("/")[2]: figure for figure in entry["figures"]}
    if name not in figures:
        hint = f"it must be one of {', '.join(figures)}{nearest(name, figures)}"
        raise RequestError(f"{place / FILE}: figure: {name} has no picture; {hint}")
    svg = place / "figures" / f"{entry['id']}_{name}.svg"
    return DrawnFigure(**figures[name], svg=svg.read_text(encoding="utf-8"))


def _title(place: Path) -> str:
    title = re.search(r"<title>(.*?)</title>", (place / _PAGE).read_text(encoding="utf-8"), re.S)
    return unescape(title[1]).strip() if title else place.name

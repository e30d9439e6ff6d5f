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

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from fedbench.core.errors import RequestError, nearest
from fedbench.core.files import NotWritten, from_yaml, replace_file
from fedbench.papers.parsing import Entry, parse
from fedbench.report.format import Judged, coverage_text, environment_items
from fedbench.report.page import render
from fedbench.report.paper import SUMMARY, PaperSummary, Summary, all_papers
from fedbench.report.plots import DrawnFigure
from fedbench.report.write import SUMMARY_FILE
from fedbench.runs.bundle import is_bundle
from fedbench.runs.results import Results

FILE = "learnt.yaml"
_PAGE = "index.html"


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
    reports, others = [], []
    environment: dict[str, Counter[str]] = {}
    for place in sorted(child for child in folder.iterdir() if (child / _PAGE).is_file()):
        summary = _read(place)
        for key, counts in summary.environment.items():
            environment.setdefault(key, Counter()).update(counts)
        mine = [paper for paper in summary.papers if paper.id == place.name]
        reports += [(paper, *_learnt(paper, place)) for paper in mine]
        others += [] if mine else [(place.name, f"{place.name}/{_PAGE}")]
    total = all_papers([paper for paper, _, _ in reports])
    html = render(
        "front.html",
        title="fedbench: evidence",
        reports=reports,
        links_to=[(f"{paper.id}/{_PAGE}", paper) for paper, _, _ in reports],
        total=total,
        others=others,
        environment=environment_items({key: dict(sorted(counts.items())) for key, counts in environment.items()}),
    )
    try:
        replace_file(folder / _PAGE, html)
    except NotWritten as error:
        raise RequestError(str(error)) from error
    said = f"{len(reports)} papers: {coverage_text(total.coverage)}; {total.states.text}"
    return f"{said}; {total.runs} runs, {total.hours:.1f} hours\nwritten: {folder / _PAGE}"


def _read(place: Path) -> Summary:
    """Return the summary of a report; nothing for a page that has none."""
    file = place / SUMMARY_FILE
    if not file.exists() and not is_bundle(place):
        return Summary()
    try:
        return SUMMARY.validate_json(file.read_bytes())
    except (OSError, ValueError) as error:
        remedy = f"write the report again: fedbench report {place} --into {place}"
        raise RequestError(f"{file} cannot be read: {error}; {remedy}") from error


def _learnt(paper: PaperSummary, place: Path) -> tuple[list[tuple[Sentence, Judged]], list[DrawnFigure]]:
    """Return what was learnt from a report: sentences with their claims, and a picture; nothing if it has no such file.

    Raises:
        RequestError: If the file is invalid, or a sentence states another verdict than the report has.
    """
    file, claims = place / FILE, {claim.id: claim for claim in paper.claims}
    if not file.exists():
        return [], []
    try:
        learnt = parse(Learnt, from_yaml(file.read_text(encoding="utf-8")) or {})
    except (OSError, ValueError, RequestError, yaml.YAMLError) as error:
        raise RequestError(f"{file}: {error}") from error
    faults = []
    for s in learnt.sentences:
        if s.claim not in claims:
            faults.append(f"{s.claim} is unknown{nearest(s.claim, claims)}: {s.text}")
            continue
        stated, found = _verdict_text(s), _verdict_text(claims[s.claim])
        if stated != found:
            faults.append(f"{s.claim} is stated as {stated!r}, and the runs give {found!r}: {s.text}")
    if faults:
        raise RequestError("\n".join([f"{file}: correct these sentences, or remove them", *faults]))
    return [(s, claims[s.claim]) for s in learnt.sentences], _figure(paper, learnt.figure, place)


def _verdict_text(of: Sentence | Judged) -> str:
    """Return a verdict with what its readings amount to: 'holds; depends on: weighting'."""
    return f"{of.verdict}; {of.readings}" if of.readings not in ("", of.verdict) else of.verdict


def _figure(paper: PaperSummary, name: str | None, place: Path) -> list[DrawnFigure]:
    """Return a picture of a report; none if none is named."""
    if name is None:
        return []
    figures = {figure.name.partition("/")[2]: figure for figure in paper.figures}
    if name not in figures:
        hint = f"it must be one of {', '.join(figures)}{nearest(name, figures)}"
        raise RequestError(f"{place / FILE}: figure: {name} has no picture; {hint}")
    svg = place / "figures" / f"{paper.id}_{name}.svg"
    return [replace(figures[name], svg=svg.read_text(encoding="utf-8"))]

"""The front page of a directory of published reports: ``fedbench report results/published``.

Everything on it follows from the bundles of the reports and from their ``learnt.yaml``. The same reports give the same
bytes.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from html import unescape
from pathlib import Path

from fedbench.analysis.coverage import coverage
from fedbench.analysis.matching import Evidence
from fedbench.analysis.tables import paper_table
from fedbench.core.errors import RequestError, nearest
from fedbench.core.files import NotWritten, replace_file
from fedbench.papers.ledger import Ledger, read_ledger
from fedbench.papers.readings import ADOPTED
from fedbench.papers.registry import papers
from fedbench.papers.schema import Paper
from fedbench.report.claim_views import claim_views
from fedbench.report.drawing import Drawing
from fedbench.report.export import claims_csv, headline
from fedbench.report.figures import FigureMaker
from fedbench.report.front_views import FrontView, LearntView, ReportView, claim_states
from fedbench.report.learnt import FILE, Learnt, read_learnt, refuse_stale
from fedbench.report.page import assets, claim_anchor, environment
from fedbench.report.views import ClaimView, FigureView
from fedbench.report.words import HEADLINES, claim_mark, coverage_text, mark
from fedbench.report.write import environment_of
from fedbench.runs.bundle import Bundle, is_bundle
from fedbench.runs.results import Results
from fedbench.runs.run import Run

_PAGE = "index.html"
_OLDER = (
    "This report is older than bundles: it does not keep its runs, and its verdicts follow an earlier encoding of the "
    "claims. Nothing of it is counted here."
)
_NONE = "There is no report yet."


def is_collection(folder: Path) -> bool:
    """Return whether a directory contains published reports, at least one of them with a bundle, and no runs."""
    if is_bundle(folder) or not any(is_bundle(child) for child in folder.iterdir() if child.is_dir()):
        return False
    store = Results(folder)
    return not any(True for _ in store) and not store.damaged


def write_front(folder: Path) -> str:
    """Write the front page of published reports into their directory and return where.

    Raises:
        RequestError: If a bundle is damaged, a sentence states another verdict than its claim has, or the page cannot
            be written.
    """
    runs: list[Run] = []
    reports = tuple(_report(paper, folder, runs) for paper in papers().values())
    view = FrontView(
        reports=reports,
        others=_others(folder),
        environment=environment_of(runs),
    )
    html = environment().get_template("front.html").render(title="fedbench: evidence", view=view, **assets("front.css"))
    try:
        replace_file(folder / _PAGE, html)
    except NotWritten as error:
        raise RequestError(str(error)) from error
    return f"{_said(view)}\nwritten: {folder / _PAGE}"


def _said(view: FrontView) -> str:
    """Return the front page in a line."""
    c, n = view.coverage, view.claims
    return (
        f"{len(view.reports)} papers: {coverage_text(c)}; of {n.total} claims {n.states['holds']} hold, "
        f"{n.states['fails']} fail, {n.states['depends']} depend on the reading; {view.runs} runs, "
        f"{view.hours:.1f} hours"
    )


def _hours(runs: Sequence[Run]) -> float:
    last = (run.last_round() for run in runs if run.done)
    return sum(float(row["seconds_train"] + row["seconds_eval"]) for row in last) / 3600


def _report(paper: Paper, folder: Path, every: list[Run]) -> ReportView:
    """Return a paper on the front page; its runs are added to ``every``."""
    place = folder / paper.id
    bundle = Bundle(place) if is_bundle(place) else None
    runs = [] if bundle is None else bundle.runs()
    every += runs
    evidence, ledger = Evidence(runs), Ledger() if bundle is None else read_ledger(bundle.place)
    claims = claim_views(paper, evidence, () if runs else (ADOPTED,))  # without runs, no reading gives another verdict
    learnt = Learnt() if bundle is None else read_learnt(place)
    if bundle is not None:
        _name_if_outdated(place, paper, claims)
        refuse_stale(learnt, {c.id: (c.verdict, headline(c)) for c in claims}, place)
    exists = (place / _PAGE).exists()
    return ReportView(
        id=paper.id,
        title=paper.name,
        citation=paper.citation,
        href=f"{paper.id}/{_PAGE}" if exists else "",
        note="" if bundle is not None else _OLDER if exists else _NONE,
        coverage=coverage(paper_table(paper, t, evidence, ledger) for t in paper.tables.values()),
        claims=claim_states(claims),
        runs=len(runs),
        hours=_hours(runs),
        figures=() if learnt.figure is None else (_figure(paper, evidence, learnt.figure, place),),
        learnt=tuple(_learnt(learnt, {c.id: c for c in claims}, paper.id)),
    )


def _name_if_outdated(place: Path, paper: Paper, claims: Sequence[ClaimView]) -> None:
    """Say on the standard error if a report shows other claims than its runs give now."""
    file = place / "tables" / f"{paper.id}_claims.csv"
    if not file.exists() or file.read_text(encoding="utf-8") != claims_csv(claims):
        print(
            f"fedbench: {place} shows other claims than its runs give now; write it again: "
            f"fedbench report {place} --into {place}",
            file=sys.stderr,
        )


def _learnt(learnt: Learnt, claims: Mapping[str, ClaimView], paper: str) -> list[LearntView]:
    found = []
    for s in learnt.sentences:
        claim = claims[s.claim]
        marks = [(m := claim_mark(claim.basis, claim.verdict), m.word)]
        if claim.multiverse is not None and claim.multiverse.headline != claim.verdict:
            marks.append((HEADLINES[claim.multiverse.headline], headline(claim)))
        if claim.reduced:
            marks.append(((m := mark("row", "reduced")), m.word))
        href = f"{paper}/{_PAGE}#{claim_anchor(paper, claim.id)}"
        found.append(LearntView(s.text, s.claim, href, tuple(marks)))
    return found


def _figure(paper: Paper, evidence: Evidence, name: str, place: Path) -> FigureView:
    """Return a picture of a paper, drawn from the bundle of its report."""
    figures = [f for f in paper.figures.values() if name == f.id or name.startswith(f"{f.id}_")]
    known = [f.id for f in paper.figures.values()]
    drawn: list[FigureView] = []
    with tempfile.TemporaryDirectory() as room, Drawing() as drawing:
        maker = FigureMaker(paper, evidence, place / "evidence", Path(room), drawing)
        for figure in figures:
            drawn += maker.one(figure)
    found = [view for view in drawn if view.name == f"{paper.id}/{name}" and view.svg]
    if not found:
        known = [view.name.partition("/")[2] for view in drawn if view.svg] or known
        raise RequestError(
            f"{place / FILE}: figure: {name} has no picture; it must be one of {', '.join(known)}{nearest(name, known)}"
        )
    return found[0]


def _others(folder: Path) -> tuple[tuple[str, str], ...]:
    """Return further reports in the directory, those of no paper, as (title of their page, href)."""
    found = []
    for child in sorted(folder.iterdir()):
        if not child.name.startswith(".") and child.name not in papers() and (child / _PAGE).is_file():
            title = re.search(r"<title>(.*?)</title>", (child / _PAGE).read_text(encoding="utf-8"), re.S)
            found.append((unescape(title[1]).strip() if title else child.name, f"{child.name}/{_PAGE}"))
    return tuple(found)

"""A report about a paper: its tables, figures and claims, and the words for claims, in files and on the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter

from fedbench.analysis.claims.comparison import Comparison
from fedbench.analysis.claims.multiverse import Headline, Multiverse, is_measured
from fedbench.analysis.claims.verdict import ALPHA, Verdict
from fedbench.analysis.table import Coverage, TableData, coverage
from fedbench.papers.readings import ADOPTED, AXES
from fedbench.papers.schema import Claim, Paper
from fedbench.report.format import ClaimStates, Judged, claim_states, p_text, plural
from fedbench.report.plots import DrawnFigure
from fedbench.report.table import csv_text, markdown, table_of
from fedbench.runs.run import Run

Fields = dict[str, Any]
AXIS_WORDS = {"weighting": "weighting", "round": "round", "splits": "data splits", "variant": "settings"}
_PAIRS = 20  # most pairs whose differences are listed


@dataclass(frozen=True)
class PaperSummary:
    """The numbers of a report about a paper, as ``summary.json`` has them for the front page of published reports.

    Attributes:
        id: Id of the paper.
        title: Its name.
        citation: Its reference.
        coverage: How many of the printed numbers have been measured.
        claims: What is counted of its claims.
        runs: Number of runs.
        hours: Hours of training and evaluation.
        figures: The pictures, without their content.
    """

    id: str
    title: str
    citation: str
    coverage: Coverage
    claims: tuple[Judged, ...]
    runs: int
    hours: float
    figures: tuple[DrawnFigure, ...]

    @property
    def states(self) -> ClaimStates:
        """Its claims by state."""
        return claim_states(self.claims)


def all_papers(summaries: Sequence[PaperSummary]) -> PaperSummary:
    """Return the numbers of several papers together."""
    return PaperSummary(
        "",
        "all papers",
        "",
        sum((s.coverage for s in summaries), Coverage()),
        tuple(claim for s in summaries for claim in s.claims),
        sum(s.runs for s in summaries),
        sum(s.hours for s in summaries),
        (),
    )


@dataclass(frozen=True)
class Summary:
    """The content of ``summary.json``: the numbers of a report by paper, the environment of its runs, and its files."""

    papers: tuple[PaperSummary, ...] = ()
    environment: dict[str, dict[str, int]] = field(default_factory=dict)
    files: tuple[str, ...] = ()


SUMMARY = TypeAdapter(Summary)


@dataclass(frozen=True)
class PaperReport:
    """The content of a report about a paper.

    Attributes:
        paper: The paper.
        tables: Its tables with what was measured.
        figures: Its figures.
        claims: Its claims with their verdicts under every reading.
        runs: Its runs.
    """

    paper: Paper
    tables: tuple[TableData, ...]
    figures: tuple[DrawnFigure, ...]
    claims: tuple[tuple[Claim, Multiverse], ...]
    runs: tuple[Run, ...] = ()

    @cached_property
    def summary(self) -> PaperSummary:
        """Its numbers."""
        return PaperSummary(
            self.paper.id,
            self.paper.name,
            self.paper.citation,
            coverage(self.tables),
            tuple(judged(claim, found) for claim, found in self.claims),
            len(self.runs),
            sum(run.seconds for run in self.runs if run.done) / 3600,
            tuple(replace(figure, svg="") for figure in self.figures if figure.svg),
        )


# ---- files


def claims_files(report: PaperReport) -> dict[str, str]:
    """Return the files on the claims of a paper by name."""
    texts = {"claims.md": claims_markdown(report), "claims.csv": csv_text(claims_rows(report))}
    texts |= {"comparisons.csv": comparisons_csv(report), "readings.csv": readings_csv(report)}
    return {f"{report.paper.id}_{name}": text for name, text in texts.items()}


def claims_rows(report: PaperReport) -> list[Fields]:
    """Return the claims of a paper, a row each."""
    rows = []
    for claim, found in report.claims:
        verdict, one = found.adopted, judged(claim, found)
        row: Fields = {"id": claim.id, "verdict": one.verdict, "basis": one.basis, "readings": one.readings}
        row |= {"reduced": one.reduced, "printed": claim.printed, "text": claim.text, "tested": claim.tested}
        row |= {"beyond": claim.beyond, "refuted": claim.refuted, "needs": needs(claim, verdict)}
        rows.append(row | {"where": claim.reference, "counts": counts_text(verdict), "evidence": reason(verdict)})
    return rows


def claims_markdown(report: PaperReport) -> str:
    """Return the claims of a paper as Markdown."""
    heads = ("id", "verdict", "basis", "readings", "printed", "text", "where", "counts", "evidence")
    rows = []
    for row in claims_rows(report):
        verdict = row["verdict"] + (" (reduced)" if row["reduced"] else "")
        rows.append(tuple((row | {"verdict": verdict})[head] for head in heads))
    return markdown([table_of("", heads, rows)], f"{report.paper.name}: claims")


def comparisons_csv(report: PaperReport) -> str:
    """Return all comparisons of claims as CSV with plain numbers, a row per comparison."""
    rows: list[Fields] = []
    for claim, found in report.claims:
        for c in found.adopted.comparisons:
            row: Fields = {"claim": claim.id, "group": c.group, "label": c.label, "direction": direction(c)}
            row |= {"lead": c.mean, "lower": c.low, "upper": c.high, "unit": c.unit, "pairs": c.n, "blocks": c.blocks}
            rows.append(row | {"for_p": c.greater, "against_p": c.less, "adjusted_p": c.against_p})
    return csv_text(rows)


def readings_csv(report: PaperReport) -> str:
    """Return verdicts under every reading as CSV, a row per reading; an axis without alternatives is empty."""
    rows: list[Fields] = []
    for claim, found in report.claims:
        axes = axes_of(found) if found.headline is not None else []
        for reading, verdict in found.verdicts.items() if axes else ():
            choices = {AXIS_WORDS[a]: choice_text(report.paper, a, getattr(reading, a)) for a in axes}
            row: Fields = {"claim": claim.id, **dict.fromkeys(AXIS_WORDS.values(), ""), **choices}
            row |= {"adopted": reading == ADOPTED, "verdict": read_as(verdict), "blocks": blocks_text(verdict)}
            rows.append(row | {"counts": reading_counts(verdict)})
    return csv_text(rows)


# ---- the words for claims


def judged(claim: Claim, found: Multiverse) -> Judged:
    """Return what pages count of a claim."""
    verdict, headline = found.adopted, found.headline
    details = "" if headline is None else headline_details(headline)
    word = "" if headline is None else headline.word
    return Judged(claim.id, verdict.verdict, verdict.basis, word, details, verdict.reduced)


def headline_details(headline: Headline) -> str:
    """Return the axes of a headline, such as ': weighting, round; not measured: data splits (so far against)'."""
    axes = ", ".join(AXIS_WORDS[axis] for axis in headline.axes)
    missing = ", ".join(
        AXIS_WORDS[a] + (" (so far against)" if a in headline.against else "") for a in headline.missing
    )
    return (f": {axes}" if axes else "") + (f"; not measured: {missing}" if missing else "")


def counts_text(verdict: Verdict) -> str:
    """Return how many comparisons point which way; empty if the claim has none."""
    n = verdict.counts
    if not n.total:
        return ""
    total = plural(n.total, "comparison")
    if not n.run:
        return f"{total}, none run"
    level = n.run - n.ahead - n.behind
    return (
        (f"{total}: " if n.run == n.total else f"{total}, {n.run} run: ")
        + f"{n.ahead} point the paper's way ({n.significantly_ahead} significant), "
        + f"{n.behind} against it ({n.significantly_behind} significant)"
        + (f", {level} level" if level else "")
    )


def reason(verdict: Verdict) -> str:
    """Return what a verdict rests on: the comparison that is most against the claim, and what could not be decided."""
    notes, c = [verdict.evidence] if verdict.evidence else [], verdict.worst
    if c is not None:
        which = "weakest" if "holds" in (verdict.verdict, verdict.barred) else "worst"
        notes.append(
            f"the {which}: {c.label}: {lead_text(c)} over {pairs_text(c)}, p = {p_text(c.greater)} for it, "
            f"{p_text(c.against_p)} against it"
        )
    if uneven := sum(c.uneven for c in verdict.comparisons):
        notes.append(f"not compared, since the two sides are reduced in different ways: {uneven}")
    if verdict.run and (lacking := lacking_text(verdict)):
        notes.append(lacking)
    if verdict.barred:
        notes.append(f"runs at reduced settings cannot {'show' if verdict.barred == 'holds' else 'refute'} it")
    return "; ".join(notes)


def lacking_text(verdict: Verdict) -> str:
    """Return which outcome the seeds or splits of a claim did not allow; empty if it could both hold and fail."""
    if verdict.lacking is None:
        return ""
    outcome, needed = verdict.lacking
    least = min(verdict.comparisons, key=lambda c: c.fewest)
    could = "could not hold" if outcome == "hold" else "not sure to fail"
    return f"{could} with {plural(least.fewest, least.blocks)} ({needed} needed)"


def needs(claim: Claim, verdict: Verdict) -> str:
    """Return what a decision needs; empty for a claim that is decided."""
    return claim.needs if verdict.verdict in ("undecided", "partly measured", "not run") else ""


def direction(c: Comparison) -> str:
    """Return where a comparison points, and whether significantly by itself; both ways by the same measure."""
    if c.mean is None:
        return "not comparable" if c.uneven else "not run"
    if not c.complete:
        return "incomplete"
    if c.greater is not None and c.greater <= ALPHA:
        return "significantly for"
    if c.less is not None and c.less <= ALPHA:
        return "significantly against"
    return "for" if c.mean > 0 else "against" if c.mean < 0 else "level"


def lead_text(c: Comparison) -> str:
    """Return the mean lead; empty for a comparison that has not been run."""
    if c.mean is None:
        return ""
    return _amount(c, c.mean) if math.isfinite(c.mean) else "diverged"


def _amount(c: Comparison, lead: float) -> str:
    return f"{lead:+.4g} {c.unit}".rstrip()


def interval_text(c: Comparison) -> str:
    """Return the 95 % interval of the mean lead; empty if there is none."""
    return "" if c.low is None or c.high is None else f"{c.low:+.4g} to {c.high:+.4g}"


def pairs_text(c: Comparison) -> str:
    """Return the number of pairs: '10 seeds'; empty for a comparison that has not been run."""
    return "" if c.mean is None else plural(c.n, c.blocks)


def differences(c: Comparison) -> list[tuple[str, str]]:
    """Return the lead in each block, or in each of the parts that the comparison consists of, as (name, text)."""
    if c.mean is None:
        return []
    if c.parts:
        return [
            (p.label, "not run" if p.mean is None else f"{_amount(p, p.mean)}, p = {p_text(p.greater)}")
            for p in c.parts
        ]
    return [(f"{c.blocks} {block}", _amount(c, d)) for block, d in sorted(c.differences.items())[:_PAIRS]]


def axes_of(found: Multiverse) -> list[str]:
    """Return the axes along which the readings of a claim differ."""
    return [axis for axis in AXES if any(axis in reading.differs_from(ADOPTED) for reading in found.verdicts)]


def read_as(verdict: Verdict) -> str:
    """Return the verdict under a reading, or that there are too few seeds or splits to decide."""
    if verdict.verdict != "undecided" or is_measured(verdict):
        return verdict.verdict
    fewest = min((c for c in verdict.comparisons if c.n), key=lambda c: c.n, default=None)
    return verdict.verdict if fewest is None else f"too few {fewest.blocks}s"


def blocks_text(verdict: Verdict) -> str:
    """Return the number of seeds or splits of a verdict's comparisons: '10 seeds', '2 to 6 splits'."""
    run = [c for c in verdict.comparisons if c.n]
    if not run:
        return ""
    low, high = min(c.n for c in run), max(c.n for c in run)
    return plural(high, run[0].blocks) if low == high else f"{low} to {plural(high, run[0].blocks)}"


def reading_counts(verdict: Verdict) -> str:
    """Return the counts of a verdict with the outcome that its blocks did not allow."""
    return "; ".join(filter(None, (counts_text(verdict), lacking_text(verdict))))


def choice_text(paper: Paper, axis: str, value: str | None) -> str:
    """Return the value of a reading along an axis in words."""
    if value is None or value == "adopted":
        return "as in the tables" if axis in ("weighting", "round") else "as in the experiments"
    if axis == "variant":
        return paper.readings.variants[value].title
    return {"fixed": "split of the experiments", "drawn": "all splits that have been run"}.get(value, value)


def alternatives(paper: Paper) -> list[tuple[str, str, str]]:
    """Return the alternatives that the readings of a paper combine, as (axis, value, why it is defensible)."""
    given = paper.readings
    found = [
        (AXIS_WORDS[axis], choice_text(paper, axis, value), why)
        for axis, values in (("weighting", given.weighting), ("round", given.round), ("splits", given.splits))
        for value, why in values.items()
    ]
    return [*found, *((AXIS_WORDS["variant"], v.title, v.why) for v in given.variants.values())]

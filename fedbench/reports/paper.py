"""A report about a paper: its tables, figures and claims, and the words for claims, in files and on the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter

from fedbench.analysis.claims.comparison import Comparison
from fedbench.analysis.claims.judge import Readings, comparable, differing
from fedbench.analysis.claims.verdict import Verdict
from fedbench.analysis.table_model import Coverage, TableData, coverage
from fedbench.papers.readings import ADOPTED, AXES, Reading
from fedbench.papers.schema import Claim, Paper
from fedbench.reports.format import SCALED, ClaimCounts, Judged, count_claims, p_text, plural
from fedbench.reports.plots import DrawnFigure
from fedbench.reports.text_table import csv_text, markdown, table_of
from fedbench.runs.run import Run

Fields = dict[str, Any]
AXIS_WORDS = {"weighting": "weighting", "round": "round", "splits": "data splits", "variant": "settings"}
_REDUCTIONS = 6  # most departures that are listed
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
        note: What a reader has to know before the counts.
    """

    id: str
    title: str
    citation: str
    coverage: Coverage
    claims: tuple[Judged, ...]
    runs: int
    hours: float
    figures: tuple[DrawnFigure, ...]
    note: str = ""

    @property
    def counts(self) -> ClaimCounts:
        """Its claims, counted."""
        return count_claims(self.claims)


def all_papers(summaries: Sequence[PaperSummary]) -> PaperSummary:
    """Return the numbers of several papers together."""
    return PaperSummary(
        "", "all papers", "", sum((s.coverage for s in summaries), Coverage()),
        tuple(claim for s in summaries for claim in s.claims),
        sum(s.runs for s in summaries), sum(s.hours for s in summaries), (),
    )  # fmt: skip


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
    claims: tuple[tuple[Claim, Readings], ...]
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
            self.paper.paper.note,
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
        verdict, one = found[ADOPTED], judged(claim, found)
        row: Fields = {"id": claim.id, "verdict": one.word, "counts": one.counts, "basis": one.basis}
        row |= {"counted": verdict.counts, "scaled": one.scaled, "readings": one.readings}
        row |= {"reduced": reductions(verdict) if one.scaled else ""}
        row |= {"printed": claim.printed, "text": claim.text, "tested": claim.tested, "beyond": claim.beyond}
        row |= {"refuted": claim.refuted, "needs": needs(claim, verdict), "where": claim.reference}
        rows.append(row | {"evidence": reason(verdict)})
    return rows


def claims_markdown(report: PaperReport) -> str:
    """Return the claims of a paper as Markdown."""
    heads = ("id", "verdict", "counts", "basis", "scaled", "readings", "printed", "text", "where", "evidence")
    rows = [tuple(row[head] for head in heads) for row in claims_rows(report)]
    return markdown([table_of("", heads, rows)], f"{report.paper.name}: claims")


def comparisons_csv(report: PaperReport) -> str:
    """Return all comparisons of claims as CSV with plain numbers, a row per comparison."""
    rows: list[Fields] = []
    for claim, found in report.claims:
        verdict = found[ADOPTED]
        shown = verdict.scaled or verdict
        for c, at_full in zip(shown.comparisons, verdict.comparisons, strict=True):
            row: Fields = {"claim": claim.id, "group": c.group, "label": c.label, "state": state_of(c)}
            row |= {"reduced": c.complete and not at_full.complete, "untuned": c.untuned, "lead": c.mean}
            row |= {"lower": c.low, "upper": c.high, "unit": c.unit, "pairs": c.n, "blocks": c.blocks}
            row |= {"for_p": c.greater, "against_p": c.less}
            rows.append(row | {"adjusted_for_p": c.for_p, "adjusted_against_p": c.against_p})
    return csv_text(rows)


def readings_csv(report: PaperReport) -> str:
    """Return verdicts under every reading as CSV, a row per reading; an axis without alternatives is empty."""
    rows: list[Fields] = []
    for claim, found in report.claims:
        axes = axes_of(found)
        for reading, verdict in found.items() if axes else ():
            choices = {AXIS_WORDS[a]: choice_text(report.paper, a, getattr(reading, a)) for a in axes}
            row: Fields = {"claim": claim.id, **dict.fromkeys(AXIS_WORDS.values(), ""), **choices}
            row |= {"adopted": reading == ADOPTED, "verdict": verdict.word, "scaled": scaled_word(verdict)}
            check = verdict.scaled
            row |= {"counts": counts_text(verdict), "scaled_counts": "" if check is None else counts_text(check)}
            rows.append(row | {"blocks": blocks_text(verdict.outcome)})
    return csv_text(rows)


# ---- the words for claims


def judged(claim: Claim, found: Readings) -> Judged:
    """Return what pages count of a claim."""
    verdict = found[ADOPTED]
    scaled = scaled_word(verdict) if verdict.word == "not run" else ""
    words = (counts_text(verdict), verdict.basis, one_way_text(verdict), scaled, readings_text(found))
    return Judged(claim.id, verdict.word, *words)


def scaled_word(verdict: Verdict) -> str:
    """Return what the scaled-down check gives; empty if there is none."""
    found = verdict.scaled
    if found is None or found.word not in SCALED:
        return ""
    return SCALED[found.word if found.counts and not found.untuned else "undecided"]


def counts_text(verdict: Verdict) -> str:
    """Return how many comparisons are shown and refuted; empty if the claim has none."""
    total = len(verdict.comparisons)
    if not total:
        return ""
    run = f"{len(verdict.run)} of {total} run: " if verdict.run and len(verdict.run) < total else ""
    if not verdict.run:
        return f"{plural(total, 'comparison')}, none run"
    counts = f"{verdict.count('shown')} of {len(verdict.run)} shown, {verdict.count('refuted')} refuted"
    alone = verdict.word == "holds" and verdict.count("shown") < total
    return f"each of {total} by itself; after adjustment {counts}" if alone else f"{run}{counts}"


def one_way_text(verdict: Verdict) -> str:
    """Return which outcome the seeds or splits of a claim did not allow; empty if it could come out either way."""
    if verdict.lacking is None:
        return ""
    outcome, least, needed = verdict.lacking
    could = "could not hold" if outcome == "hold" else "not sure to fail"
    return f"{could} with {plural(least.fewest, least.blocks)} ({needed or 'more than 16'} needed)"


def readings_text(found: Readings) -> str:
    """Return whether the readings that have been run agree; empty if only the adopted one has."""
    others = differing(found)
    if others is None:
        return ""
    if not others:
        return f"the same under all {len(comparable(found))} readings that were run"
    return f"differs: {'; '.join(reading_text(reading) for reading in others)}"


def reading_text(reading: Reading) -> str:
    """Return in what a reading differs from the adopted one."""
    values = {a: getattr(reading, a) for a in reading.differs_from(ADOPTED)}
    words = {"round": "{} round", "splits": "other splits", "weighting": "{}", "variant": "{}"}
    return ", ".join(words[axis].format(value) for axis, value in values.items())


def reason(verdict: Verdict) -> str:
    """Return what a verdict rests on: the comparison that is most against the claim, and what could not be decided."""
    shown = verdict.outcome
    notes, c = [verdict.evidence] if verdict.evidence else [], shown.worst
    if c is not None:
        which = "weakest" if shown.word == "holds" else "worst"
        notes.append(
            f"the {which}: {c.label}: {lead_text(c)} over {pairs_text(c)}, p = {p_text(c.greater)} for it, "
            f"{p_text(c.less)} against it"
        )
    if uneven := sum(c.uneven for c in shown.comparisons):
        notes.append(f"not compared, since the two sides are reduced in different ways: {uneven}")
    if shown.untuned:
        notes.append("not tuned alike: values of some rows were searched, those of others not")
    if shown is not verdict and (lacking := one_way_text(shown)):
        notes.append(lacking)
    return "; ".join(notes)


def reductions(verdict: Verdict) -> str:
    """Return in what the settings behind a scaled-down check differ from the paper's, in one line."""
    found = verdict.scaled.comparisons if verdict.scaled else ()
    texts = list(dict.fromkeys(text for c in found for text in c.reduced))
    return "; ".join(texts[:_REDUCTIONS]) + (f"; and {len(texts) - _REDUCTIONS} more" if texts[_REDUCTIONS:] else "")


def needs(claim: Claim, verdict: Verdict) -> str:
    """Return what a decision needs; empty for a claim that is decided."""
    return claim.needs if verdict.word in ("undecided", "not run") else ""


def state_of(c: Comparison) -> str:
    """Return what a comparison comes to, a word of ``BADGES["comparison"]``."""
    return "not comparable" if c.uneven else c.state


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


def axes_of(found: Readings) -> list[str]:
    """Return the axes along which the readings of a claim differ."""
    return [axis for axis in AXES if any(axis in reading.differs_from(ADOPTED) for reading in found)]


def blocks_text(verdict: Verdict) -> str:
    """Return the number of seeds or splits of a verdict's comparisons: '10 seeds', '2 to 6 splits'."""
    run = [c for c in verdict.comparisons if c.n]
    if not run:
        return ""
    low, high = min(c.n for c in run), max(c.n for c in run)
    return plural(high, run[0].blocks) if low == high else f"{low} to {plural(high, run[0].blocks)}"


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

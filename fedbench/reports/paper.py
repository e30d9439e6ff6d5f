"""A report about a paper, its summary, and the files on the paper's claims."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter

from fedbench.analysis.claims.judge import Readings
from fedbench.analysis.table_model import Coverage, TableData, coverage
from fedbench.papers.readings import ADOPTED
from fedbench.papers.schema import Claim, Paper
from fedbench.reports import claim_texts as texts
from fedbench.reports.claim_texts import Judged, judged
from fedbench.reports.plots import DrawnFigure
from fedbench.reports.templates import render
from fedbench.reports.text_table import csv_text
from fedbench.runs.run import Run

Fields = dict[str, Any]


@dataclass(frozen=True)
class PaperSummary:
    """The numbers of a report about a paper, stored in ``summary.json`` for the front page.

    Attributes:
        id: Id of the paper.
        title: Name of the paper.
        citation: Reference of the paper.
        coverage: Counts of measured and unmeasured printed numbers.
        claims: The counted properties of the paper's claims.
        runs: Number of runs.
        hours: Hours of training and evaluation.
        note: A caveat shown before the counts.
        headlines: Ids of the claims that the front page names.
        benchmark: Whether these are known numbers of public benchmarks instead of a paper.
    """

    id: str
    title: str
    citation: str
    coverage: Coverage
    claims: tuple[Judged, ...]
    runs: int
    hours: float
    note: str = ""
    headlines: tuple[str, ...] = ()
    benchmark: bool = False

    @property
    def main_claims(self) -> list[Judged]:
        """The claims that the front page names."""
        claims = {claim.id: claim for claim in self.claims}
        return [claims[id] for id in self.headlines]

    @cached_property
    def states(self) -> Counter[str]:
        """Numbers of claims by ``Judged.state``."""
        return Counter(claim.state for claim in self.claims)

    @cached_property
    def confirmed(self) -> Counter[str]:
        """Numbers of claims with a confirmed and counted verdict, by verdict."""
        confirmed = [claim for claim in self.claims if claim.status == "confirmed"]
        return Counter(claim.word for claim in confirmed if not claim.one_way)

    @cached_property
    def scaled(self) -> Counter[str]:
        """Numbers of claims without a verdict, by result of the scaled-down check."""
        return Counter(claim.scaled for claim in self.claims if claim.scaled)

    @property
    def claims_text(self) -> str:
        """Text with the numbers of claims."""
        return render("claims.txt", paper=self, scaled_words=texts.SCALED.values()).rstrip()


def all_papers(summaries: Sequence[PaperSummary]) -> PaperSummary:
    """Return the combined numbers of several papers."""
    return PaperSummary(
        id="",
        title="all papers",
        citation="",
        coverage=sum((s.coverage for s in summaries), Coverage()),
        claims=tuple(claim for s in summaries for claim in s.claims),
        runs=sum(s.runs for s in summaries),
        hours=sum(s.hours for s in summaries),
    )


@dataclass(frozen=True)
class Summary:
    """The contents of ``summary.json``: numbers per paper, and the files of the report."""

    papers: tuple[PaperSummary, ...] = ()
    files: tuple[str, ...] = ()


SUMMARY = TypeAdapter(Summary)


@dataclass(frozen=True)
class PaperReport:
    """The content of a report about a paper.

    Attributes:
        paper: The paper.
        tables: The paper's tables with the measured numbers.
        figures: The paper's figures.
        claims: The paper's claims with their verdicts under every reading.
        runs: The runs of the paper.
        shown: The runs behind tables and figures.
        progress: Sentences on plans that are not complete.
    """

    paper: Paper
    tables: tuple[TableData, ...]
    figures: tuple[DrawnFigure, ...]
    claims: tuple[tuple[Claim, Readings], ...]
    runs: tuple[Run, ...] = ()
    shown: tuple[Run, ...] = ()
    progress: tuple[str, ...] = ()

    @cached_property
    def summary(self) -> PaperSummary:
        """The numbers of the report."""
        return PaperSummary(
            id=self.paper.id,
            title=self.paper.name,
            citation=self.paper.citation,
            coverage=coverage(self.tables),
            claims=tuple(judged(c, readings, self.paper) for c, readings in self.claims),
            runs=len(self.runs),
            hours=sum(run.seconds for run in self.runs if run.done) / 3600,
            note=self.paper.paper.note,
            headlines=self.paper.paper.headlines,
            benchmark=self.paper.paper.benchmark,
        )


# ---- files on claims


def claims_files(report: PaperReport) -> dict[str, str]:
    """Return the files on the claims of a paper by name."""
    id = report.paper.id
    return {
        f"{id}_claims.csv": csv_text(claims_rows(report)),
        f"{id}_comparisons.csv": comparisons_csv(report),
        f"{id}_readings.csv": readings_csv(report),
    }


def claims_rows(report: PaperReport) -> list[Fields]:
    """Return a row per claim of a paper."""
    rows = []
    for claim, readings in report.claims:
        verdict = readings[ADOPTED]
        counted = judged(claim, readings, report.paper)
        rows.append(
            {
                "id": claim.id,
                "verdict": counted.word,
                "status": counted.status,
                "settings": counted.settings,
                "explored": counted.explored,
                "counts": counted.counts,
                "basis": counted.basis,
                "counted": verdict.counts,
                "scaled": counted.scaled,
                "readings": counted.readings,
                "reduced": texts.reductions_text(verdict) if counted.scaled else "",
                "printed": claim.printed,
                "text": claim.text,
                "tested": claim.tested,
                "beyond": claim.beyond,
                "refuted": claim.refuted,
                "needs": texts.needs_text(claim, verdict),
                "where": claim.reference,
                "evidence": texts.reason_text(verdict),
            }
        )
    return rows


def comparisons_csv(report: PaperReport) -> str:
    """Return all comparisons of claims as CSV with plain numbers, one row per comparison."""
    rows: list[Fields] = []
    for claim, readings in report.claims:
        verdict = readings[ADOPTED]
        for c, at_full in zip(verdict.listed, verdict.comparisons, strict=True):
            rows.append(
                {
                    "claim": claim.id,
                    "group": c.group,
                    "label": c.label,
                    "state": texts.state_of(c),
                    "reduced": c.complete and not at_full.complete,
                    "untuned": c.untuned,
                    "lead": c.mean,
                    "lower": c.low,
                    "upper": c.high,
                    "unit": c.unit,
                    "pairs": c.n,
                    "blocks": c.blocks,
                    "for_p": c.greater,
                    "against_p": c.less,
                    "adjusted_for_p": c.for_p,
                    "adjusted_against_p": c.against_p,
                }
            )
    return csv_text(rows)


def readings_csv(report: PaperReport) -> str:
    """Return the verdicts under every reading as CSV, one row per claim and reading.

    The cells of an axis without alternatives are empty.
    """
    rows: list[Fields] = []
    for claim, readings in report.claims:
        axes = texts.axes_of(readings)
        if not axes:
            continue
        for reading, verdict in readings.items():
            choices = dict.fromkeys(texts.AXIS_WORDS.values(), "")
            for axis in axes:
                value = getattr(reading, axis)
                choices[texts.AXIS_WORDS[axis]] = texts.choice_text(report.paper, axis, value)
            rows.append(
                {
                    "claim": claim.id,
                    **choices,
                    "adopted": reading == ADOPTED,
                    "verdict": verdict.word,
                    "scaled": texts.scaled_word(verdict),
                    "counts": texts.counts_text(verdict),
                    "scaled_counts": texts.counts_text(verdict.scaled) if verdict.scaled else "",
                    "blocks": texts.blocks_text(verdict.outcome),
                }
            )
    return csv_text(rows)

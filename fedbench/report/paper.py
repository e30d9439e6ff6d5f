"""A report about a paper: its tables, figures and claims, and the claims as Markdown and CSV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedbench.analysis.claims.multiverse import Multiverse
from fedbench.analysis.table import Coverage, TableData, coverage
from fedbench.papers.readings import ADOPTED
from fedbench.papers.schema import Claim, Paper
from fedbench.report.claims_text import (
    AXIS_WORDS,
    axes_of,
    blocks_text,
    choice_text,
    counts_text,
    direction,
    judged,
    needs,
    read_as,
    reading_counts,
    reason,
)
from fedbench.report.format import Judged, badge_of
from fedbench.report.plots import DrawnFigure
from fedbench.report.table import Cell, Table, csv_text, markdown

Fields = dict[str, Any]


@dataclass(frozen=True)
class PaperReport:
    """The content of a report about a paper.

    Attributes:
        paper: The paper.
        tables: Its tables with what was measured.
        figures: Its figures.
        claims: Its claims with their verdicts under every reading.
    """

    paper: Paper
    tables: tuple[TableData, ...]
    figures: tuple[DrawnFigure, ...]
    claims: tuple[tuple[Claim, Multiverse], ...]

    @property
    def coverage(self) -> Coverage:
        """How many of the printed numbers have been measured."""
        return coverage(self.tables)

    @property
    def judged(self) -> list[Judged]:
        """What is counted of the claims."""
        return [judged(claim, found) for claim, found in self.claims]


def claims_markdown(report: PaperReport) -> str:
    """Return the claims of a paper as Markdown."""
    heads = ("claim", "verdict", "readings", "printed numbers", "text", "where", "comparisons", "evidence")
    rows = []
    for claim, found in report.claims:
        verdict, one = found.adopted, judged(claim, found)
        word = badge_of(one.basis, one.verdict).word + (" (reduced)" if one.reduced else "")
        texts = (claim.id, word, one.readings, claim.printed, claim.text, claim.reference)
        rows.append(tuple(map(Cell, (*texts, "; ".join(_counts_by_setup(found)), reason(verdict)))))
    return markdown([Table("", tuple((head, False) for head in heads), tuple(rows))], f"{report.paper.name}: claims")


def _counts_by_setup(found: Multiverse) -> list[str]:
    """Return the counts of a claim, and of one with several setups the verdict on each and what its readings give."""
    counts = counts_text(found.adopted)
    setups = []
    for title, verdict in found.adopted.by_group.items():
        headline = found.by_group[title].text if title in found.by_group else ""
        also = f" ({headline})" if headline not in ("", verdict.verdict) else ""
        setups.append(f"{title}: {verdict.verdict}{also}")
    return [*([counts] if counts else []), *setups]


def claims_csv(report: PaperReport) -> str:
    """Return the claims of a paper as CSV, a row per claim."""
    rows = []
    for claim, found in report.claims:
        verdict, one = found.adopted, judged(claim, found)
        row: Fields = {"id": claim.id, "verdict": one.verdict, "basis": one.basis, "readings": one.readings}
        row |= {"reduced": one.reduced, "printed": claim.printed, "text": claim.text, "tested": claim.tested}
        row |= {"beyond": claim.beyond, "refuted": claim.refuted, "needs": needs(claim, verdict)}
        row |= {"where": claim.reference, "counts": counts_text(verdict), "evidence": reason(verdict)}
        rows.append(row)
    return csv_text(rows)


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

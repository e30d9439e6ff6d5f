"""A paper next to the measurements: its tables, its claims and its gaps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedbench.analysis.claims import judge
from fedbench.analysis.matching import Evidence
from fedbench.analysis.tables import TableData
from fedbench.papers.claims import functions
from fedbench.papers.registry import Paper
from fedbench.report.present import view
from fedbench.report.views import ClaimView, FigureView, PaperView


def paper_view(
    paper: Paper, tables: Sequence[TableData], figures: Sequence[FigureView], evidence: Evidence, page: Path | None
) -> PaperView:
    """Return a paper as the page in a directory shows it; without links to runs if the directory is None."""
    return PaperView(
        id=paper.id,
        title=paper.name,
        citation=paper.citation,
        tables=tuple(view(table, page) for table in tables),
        figures=tuple(figures),
        claims=claim_views(paper, evidence),
        assumptions=tuple((g.id, g.field, g.adopted, f"{g.why} (confidence: {g.confidence})") for g in paper.gaps),
        contradictions=paper.contradictions,
    )


def claim_views(paper: Paper, evidence: Evidence) -> tuple[ClaimView, ...]:
    """Return the claims of a paper with their verdicts."""
    own = functions(paper.id)
    judged = [(c, judge(paper, c, evidence, own)) for c in paper.claims]
    return tuple(
        ClaimView(c.id, c.text, c.reference, v.verdict, v.evidence, v.reduced, c.printed, v.basis) for c, v in judged
    )

"""A paper next to the measurements: its tables, its claims and its gaps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedbench.analysis.claims import judge
from fedbench.analysis.matching import Evidence
from fedbench.analysis.tables import TableData, paper_table
from fedbench.papers.claims import functions
from fedbench.papers.ledger import Ledger
from fedbench.papers.registry import Paper
from fedbench.report.present import view
from fedbench.report.views import ClaimView, FigureView, PaperView


class PaperReport:
    """The content of a report about a paper.

    Args:
        paper: The paper.
        evidence: The runs.
        ledger: Planned runs and their outcomes.
    """

    def __init__(self, paper: Paper, evidence: Evidence, ledger: Ledger) -> None:
        self.paper, self.evidence = paper, evidence
        self.tables: list[TableData] = [paper_table(paper, t, evidence, ledger) for t in paper.tables.values()]

    def view(self, figures: Sequence[FigureView], page: Path | None) -> PaperView:
        """Return the paper as the page shows it.

        Args:
            figures: Figures of the paper.
            page: Directory of the page, to which links to runs are relative; None for a page without links.
        """
        p = self.paper
        return PaperView(
            id=p.id,
            title=p.name,
            citation=p.citation,
            tables=tuple(view(table, page) for table in self.tables),
            figures=tuple(figures),
            claims=self.claims(),
            assumptions=tuple((g.id, g.field, g.adopted, f"{g.why} (confidence: {g.confidence})") for g in p.gaps),
            contradictions=p.contradictions,
        )

    def claims(self) -> tuple[ClaimView, ...]:
        """Return the claims with their verdicts."""
        out = []
        for claim in self.paper.claims:
            v = judge(self.paper, claim, self.evidence, functions(self.paper.id))
            out.append(
                ClaimView(
                    claim.id, claim.text, claim.reference, v.verdict, v.evidence, v.reduced, claim.printed, v.basis
                )
            )
        return tuple(out)

"""FAFED: claims with a test of their own."""

from __future__ import annotations

from itertools import pairwise

from fedbench.analysis.claims.comparison import Comparison
from fedbench.analysis.claims.tables import Cells
from fedbench.analysis.matching import Evidence
from fedbench.papers.schema import Paper

_METHODS = ("fedavg", "scaffold", "stem", "fedadam", "fedams", "fafed")


def c09(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that the mean accuracy of the six methods falls from low to moderate and to high heterogeneity."""
    cells, out = Cells(paper, evidence), []
    for mild, strong in pairwise(("fmnist_low", "fmnist_moderate", "fmnist_high")):
        pairs = [(cells.row("table_s1", mild, algo), cells.row("table_s1", strong, algo)) for algo in _METHODS]
        titles = " against ".join(paper.setups[s].title for s in (mild, strong))
        out.append(cells.mean_lead(f"accuracy %, mean of {len(pairs)} methods, {titles}", "table_s1", pairs, "acc"))
    return out

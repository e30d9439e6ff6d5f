"""FedCAda: claims with a test of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedbench.analysis.comparison import Comparison, compared, contest
from fedbench.analysis.matching import Evidence, MatchedRuns, Unit
from fedbench.analysis.table_claims import Cells, mean_over
from fedbench.papers.registry import Paper

_METHODS = ("fedavg", "fedadam", "fedams", "fedsps", "fafed", "fedcada")


def c01(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that the accuracy of FedCAda, averaged over the columns of Table 1, is above that of each other method."""

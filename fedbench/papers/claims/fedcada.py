"""FedCAda: claims with a test of their own."""

from __future__ import annotations

from fedbench.analysis.comparison import Comparison
from fedbench.analysis.matching import Evidence
from fedbench.analysis.table_claims import Cells
from fedbench.papers.registry import Paper


def c17(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that each of the six methods is more accurate with the small CNN than with ResNet-18."""
    cells, small, large = Cells(paper, evidence), "device_cifar10_noniid", "device_cifar10_noniid_resnet18"
    return [
        cells.compare("table2", cells.row("table2", small, algo), cells.row("table2", large, algo), "acc")
        for algo in ("fedavg", "fedadam", "fedams", "fedsps", "fafed", "fedcada")
    ]

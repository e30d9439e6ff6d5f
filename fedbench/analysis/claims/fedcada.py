"""FedCAda: claims with a test of their own."""

from __future__ import annotations

from fedbench.analysis.claims.comparison import Comparison
from fedbench.analysis.claims.tables import Cells
from fedbench.analysis.matching import Evidence
from fedbench.papers.schema import Paper

_RIVALS = ("fedavg", "fedadam", "fedams", "fedsps", "fafed")


def c01(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that the accuracy of FedCAda, averaged over the columns of Table 1, is above that of each other method."""
    cells, setups = Cells(paper, evidence), paper.tables["table1"].setups
    out = []
    for algo in _RIVALS:
        pairs = [(cells.row("table1", s, "fedcada"), cells.row("table1", s, algo)) for s in setups]
        label = f"accuracy % of FedCAda against {paper.methods[algo].label}, mean of {len(setups)} columns"
        out.append(cells.mean_lead(label, "table1", pairs, "acc"))
    return out


def c17(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that the mean accuracy of the six methods, and that of FedCAda, is higher with the small CNN."""
    cells, small, large = Cells(paper, evidence), "device_cifar10_noniid", "device_cifar10_noniid_resnet18"
    pairs = [(cells.row("table2", small, algo), cells.row("table2", large, algo)) for algo in (*_RIVALS, "fedcada")]
    label = f"accuracy % with the small CNN against ResNet-18, mean of {len(pairs)} methods"
    return [cells.mean_lead(label, "table2", pairs, "acc"), cells.compare("table2", *pairs[-1], "acc")]

"""FedFa: claims with a test of their own."""

from __future__ import annotations

from itertools import pairwise

from fedbench.analysis.comparison import Comparison, above, compared, worst_of
from fedbench.analysis.matching import Evidence
from fedbench.analysis.measures import FigureRuns, final, roughness
from fedbench.papers.registry import Paper


def c07(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that FedAvg's accuracy curves are rougher on each synthetic set than on the next less heterogeneous one."""
    shown, out = FigureRuns(paper, "figure2", evidence), []
    for one, two in pairwise(("synthetic_iid", "synthetic_0_0", "synthetic_05_05", "synthetic_1_1")):
        i, j = (shown.row(setup, "fedavg") for setup in (one, two))
        a, b = ({s: roughness(c) for s, c in shown.found[k].curve("accuracy_mean").items()} for k in (i, j))
        label = f"roughness on {paper.setups[two].title} above that on {paper.setups[one].title}"
        out.append(compared(label, b, a, 1.0, shown.of(i, j)))
    return out


def c12(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that exchanging alpha and beta = 1 - alpha changes the final accuracy by less than one point.

    Two one-sided tests per pair of values.
    """
    shown, margin, out = FigureRuns(paper, "figure7", evidence), 0.01, []
    for a, b in ((0.0, 1.0), (0.1, 0.9), (0.2, 0.8), (0.3, 0.7), (0.4, 0.6)):
        i, j = (shown.row("synthetic_1_1", "fedfa", alpha=v) for v in (a, b))
        one, two = (final(shown.found[k], "accuracy_mean") for k in (i, j))
        label = f"accuracy_mean at alpha {a:g} and {b:g} within {margin:g}"
        room = [{s: margin - sign * (one[s] - two[s]) for s in one.keys() & two.keys()} for sign in (1, -1)]
        out.append(worst_of(label, [above(label, r, shown.of(i, j)) for r in room]))
    return out

"""AdaFedAdam: claims with a test of their own."""

from __future__ import annotations

from functools import cache

from fedbench.analysis.claims.comparison import Comparison, above, contest, joined
from fedbench.analysis.claims.curve_claims import FigureRuns
from fedbench.analysis.claims.table_claims import Cells
from fedbench.analysis.matching import Evidence
from fedbench.core.metrics import metric_info
from fedbench.papers.schema import Paper

_ERROR, _SPREAD = "error_mean_weighted", "error_rsd_weighted"
_UNSTABLE = 5.0  # points of accuracy behind the best method


def c17(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that for each baseline some value of alpha gives AdaFedAdam a lower mean and a lower spread of the error."""
    shown, out = FigureRuns(paper, "figure3", evidence), []
    front = [i for i, row in enumerate(shown.figure.rows) if row.algo == "adafedadam"]
    last = cache(lambda i, field: shown.found[i].final(field))
    named = " and ".join(metric_info(field).label for field in (_ERROR, _SPREAD))
    for algo in ("fedavg", "fedadam", "fednova", "qfedavg"):
        i = shown.row("synthetic", algo)
        points = []
        for f in front:
            parts = [
                contest(metric_info(field).label, last(f, field), last(i, field), -1.0, *shown.of(f, i))
                for field in (_ERROR, _SPREAD)
            ]
            points.append(joined(f"{shown.name(f)} below {shown.name(i)} in {named}", parts, every=True))
        out.append(joined(f"some point of the front below {shown.name(i)}", points, every=False))
    return out


def c23(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that each baseline is more than 5 points of mean accuracy behind the best method on some data set."""
    cells, setups = Cells(paper, evidence), paper.tables["table5"].setups
    out = []
    for algo in ("fedavg", "fedadam", "fednova", "qfedavg"):
        parts = [_far_behind(cells, setup, algo) for setup in setups]
        out.append(joined(f"{paper.methods[algo].label} far behind on some data set", parts, every=False))
    return out


def _far_behind(cells: Cells, setup: str, algo: str) -> Comparison:
    paper, rows = cells.paper, cells.rows("table5", setup)
    found = cells.evidence.comparable(paper, rows)
    values = {row.algo: f.values(paper.metrics["avg"]) for row, f in zip(rows, found, strict=True)}
    own = values.pop(algo)
    units = set(own).intersection(*values.values())  # units of every rival: the best may be missing
    lag = {u: max(v[u] for v in values.values()) - own[u] - _UNSTABLE for u in sorted(units)}
    label = f"{paper.methods[algo].label} more than {_UNSTABLE:g} behind the best on {paper.setups[setup].title}"
    return above(label, lag, found)


def c24(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that from alpha 4 to 8 the relative spread of the error falls by less than half of its fall from 1 to 4."""
    shown = FigureRuns(paper, "figure3", evidence)
    found = shown.of(*(shown.row("synthetic", "adafedadam", alpha=alpha) for alpha in (1.0, 4.0, 8.0)))
    factor = metric_info(_SPREAD).factor
    one, four, eight = ({u: factor * v for u, v in f.final(_SPREAD).items()} for f in found)
    units = sorted(one.keys() & four.keys() & eight.keys())
    room = {u: (eight[u] - four[u]) - (four[u] - one[u]) / 2 for u in units}  # falls are negative
    label = f"fall of {metric_info(_SPREAD).label} from alpha 4 to 8 below half of that from 1 to 4"
    return [above(label, room, found)]

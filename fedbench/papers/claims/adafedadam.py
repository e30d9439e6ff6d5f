"""AdaFedAdam: claims with a test of their own."""

from __future__ import annotations

from functools import cache

from fedbench.analysis.comparison import Comparison, best_of, compared, contest, worst_of
from fedbench.analysis.matching import Evidence
from fedbench.analysis.measures import FigureRuns, final
from fedbench.papers.registry import Paper

_ERROR, _SPREAD = "error_mean_weighted", "error_rsd_weighted"


def c15(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that the spread of the error falls most at small alpha while the mean error rises.

    The spread falls from alpha 1 to 4, and by more than from 4 to 8; the mean rises in both steps.
    """
    shown = FigureRuns(paper, "figure3", evidence)
    rows = {alpha: shown.row("synthetic", "adafedadam", alpha=alpha) for alpha in (1.0, 4.0, 8.0)}
    one, four, eight = (final(shown.found[i], _SPREAD) for i in rows.values())
    first, second = ({s: x[s] - y[s] for s in x.keys() & y.keys()} for x, y in ((one, four), (four, eight)))
    label = f"fall of {_SPREAD} from alpha 1 to 4 beyond that from 4 to 8"
    out = [compared(label, first, second, 1.0, shown.of(*rows.values()))]
    for field, low, high in ((_SPREAD, 4.0, 1.0), (_ERROR, 1.0, 4.0), (_ERROR, 4.0, 8.0)):
        i, j = rows[low], rows[high]
        a, b = (final(shown.found[k], field) for k in (j, i))
        out.append(compared(f"{field} of {shown.name(j)} above that of {shown.name(i)}", a, b, 1.0, shown.of(i, j)))
    return out


def c17(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that for each baseline some value of alpha gives AdaFedAdam a lower mean and a lower spread of the error."""
    shown, out = FigureRuns(paper, "figure3", evidence), []
    front = [i for i, row in enumerate(shown.figure.rows) if row.algo == "adafedadam"]
    last = cache(lambda i, field: final(shown.found[i], field))
    for algo in ("fedavg", "fedadam", "fednova", "qfedavg"):
        i = shown.row("synthetic", algo)
        points = []
        for f in front:
            parts = [
                contest(field, last(f, field), last(i, field), -1.0, *shown.of(f, i)) for field in (_ERROR, _SPREAD)
            ]
            points.append(worst_of(f"{shown.name(f)} below {shown.name(i)} in {_ERROR} and {_SPREAD}", parts))
        out.append(best_of(f"some point of the front below {shown.name(i)}", points))
    return out

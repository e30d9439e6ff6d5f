"""FedFa: claims with a test of their own."""

from __future__ import annotations

import math
from itertools import product

from fedbench.analysis.claims.comparison import Comparison, above, contest, joined, leads, tested
from fedbench.analysis.claims.curve_claims import FigureRuns, PerUnit, area, setbacks
from fedbench.analysis.claims.table_claims import Cells
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.analysis.stats import kendall
from fedbench.core.metrics import lower_is_better, metric_info
from fedbench.papers.schema import Paper, Row

_SYNTHETIC = ("synthetic_iid", "synthetic_0_0", "synthetic_05_05", "synthetic_1_1")  # from IID to the most mixed
_FIELDS = ("accuracy_mean", "train_loss")
_ALPHAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def c07(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that FedAvg's curves become less stable with heterogeneity.

    For accuracy and training loss: the rank correlation of the setbacks with the order of the four synthetic sets. A
    run that diverged is less stable than any other.
    """
    shown, out = FigureRuns(paper, "figure2", evidence), []
    found = shown.of(*(shown.row(setup, "fedavg") for setup in _SYNTHETIC))
    for field in _FIELDS:
        ranked = [{**dict.fromkeys(f.diverged, math.inf), **_setbacks(f, field)} for f in found]
        units = sorted(set(ranked[0]).intersection(*ranked))
        ranks = {s: kendall([r[s] for r in ranked]) for s in units}
        out.append(tested(f"rank correlation of the setbacks of {field} with heterogeneity", ranks, found))
    return out


def c15(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that in Figure 7 or 8 some alpha has a higher mean accuracy and a larger variance than 0.5, or neither.

    Neither: the mean is lower and the variance smaller.
    """
    parts = []
    for figure, setup in (("figure7", "synthetic_1_1"), ("figure8", "mnist")):
        shown = FigureRuns(paper, figure, evidence)
        rows = {alpha: shown.row(setup, "fedfa", alpha=alpha) for alpha in _ALPHAS}
        for alpha, (word, sign) in product(_ALPHAS, (("above", 1.0), ("below", -1.0))):
            if alpha == 0.5:
                continue
            found = shown.of(rows[alpha], rows[0.5])
            sides = []
            for field in ("accuracy_mean", "accuracy_variance"):
                one, two = (_last(f, field) for f in found)
                sides.append(above(field, leads(one, two, sign), found))
            title = paper.setups[setup].title
            parts.append(
                joined(f"mean and variance at alpha {alpha:g} {word} those at 0.5 on {title}", sides, every=True)
            )
    return [joined("a higher mean with a larger variance", parts, every=False)]


def c20(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that at rate 0.001 the curves of both baselines are more stable than at 0.01, and lower on average.

    More stable: smaller setbacks of accuracy and training loss. Worse convergence: a lower mean accuracy over the
    rounds.
    """
    out, factor = [], metric_info("accuracy_mean").factor
    for setup, algo in product(_SYNTHETIC, ("fedavg", "fedprox")):
        rows = [_shown(paper, figure, setup, algo) for figure in ("figure2", "figure4")]
        fast, slow = evidence.comparable(paper, rows)
        name = f"{paper.methods[algo].label} at rate 0.001 against 0.01 on {paper.setups[setup].title}"
        for field in _FIELDS:
            one, two = (_setbacks(f, field) for f in (slow, fast))
            out.append(contest(f"setbacks of {field} of {name}", one, two, -1.0, slow, fast))
        one, two = ({s: factor * area(c) for s, c in f.curve("accuracy_mean").items()} for f in (slow, fast))
        out.append(above(f"accuracy_mean over the rounds of {name}, lower", leads(one, two, -1.0), (slow, fast)))
    return out


def _last(found: MatchedRuns, field: str) -> PerUnit:
    """Return the last value of a field per unit, in the shown unit."""
    factor = metric_info(field).factor
    return {unit: factor * v for unit, v in found.final(field).items()}


def _setbacks(found: MatchedRuns, field: str) -> PerUnit:
    """Return the setbacks of a field's curve per unit, in the shown unit."""
    factor, lower = metric_info(field).factor, lower_is_better(field)
    return {unit: factor * setbacks(c, lower) for unit, c in found.curve(field).items()}


def _shown(paper: Paper, figure: str, setup: str, algo: str) -> Row:
    return next(r for r in paper.figures[figure].rows if (r.setup, r.algo) == (setup, algo))


def c24(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that FedFa's weights make it fairer: against equal weights, everything else alike, on heterogeneous sets.

    A smaller variance and a more accurate worst 20 % of clients.
    """
    cells, out = Cells(paper, evidence), []
    for setup in (*_SYNTHETIC[1:], "femnist"):
        weighted = cells.row("table2", setup, "fedfa")
        equal = _shown(paper, "figure3" if setup == "femnist" else "figure2", setup, "fedfa")
        out += [cells.compare("table2", weighted, equal, metric) for metric in ("var_clients", "worst20")]
    return out

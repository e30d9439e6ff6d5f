"""FedFa: tests that are specific to single claims."""

import math
from collections.abc import Iterator
from itertools import product

from fedbench.analysis.claims.comparison import (
    Comparison,
    above,
    contest,
    joined,
    leads,
    tested,
)
from fedbench.analysis.claims.curve_claims import figure_runs, measured, runs_of
from fedbench.analysis.claims.table_claims import compare_rows, rank_correlations, row_of
from fedbench.analysis.matching import Evidence

_SYNTHETIC = (  # from IID to most heterogeneous
    "synthetic_iid",
    "synthetic_0_0",
    "synthetic_05_05",
    "synthetic_1_1",
)
_FIELDS = ("accuracy_mean", "train_loss")


def c07_less_stable_with_heterogeneity(evidence: Evidence) -> Iterator[Comparison]:
    """Test that FedAvg's curves become less stable with heterogeneity.

    For accuracy and training loss, the test is the rank correlation of the setbacks with the order
    of the four synthetic data sets. A diverged run counts as less stable than any other run.
    """
    shown = figure_runs(evidence, "figure2", _SYNTHETIC)
    steps = [runs_of(runs, "fedavg") for runs in shown.values()]
    for field in _FIELDS:
        setbacks = [measured(runs, "setbacks", field) for runs in steps]
        label = f"rank correlation of the setbacks of {field} with heterogeneity"
        yield tested(
            label,
            rank_correlations(steps, setbacks, math.inf),
            steps,
        )


def c15_higher_mean_with_larger_variance(evidence: Evidence) -> Iterator[Comparison]:
    """Test that for some alpha, mean and variance of accuracy are both above those at 0.5.

    Alternatively, both may be below those at 0.5.
    """
    parts = []
    for figure, setup in (("figure7", "synthetic_1_1"), ("figure8", "mnist")):
        shown = figure_runs(evidence, figure)[setup]
        half = runs_of(shown, "fedfa", alpha=0.5)
        for tenths, side in product(range(11), ("above", "below")):
            alpha = tenths / 10
            if alpha == 0.5:
                continue
            sign = 1.0 if side == "above" else -1.0
            other = runs_of(shown, "fedfa", alpha=alpha)
            both = []
            for field in ("accuracy_mean", "accuracy_variance"):
                one = measured(other, "final", field)
                two = measured(half, "final", field)
                ahead = leads(one, two, sign)
                both.append(above(field, ahead, (other, half)))
            label = f"mean and variance at alpha {alpha:g} {side} those at 0.5 on {half.setup}"
            parts.append(joined(label, both, every=True))
    yield joined("a higher mean with a larger variance", parts, every=False)


def c20_small_rate_is_stabler_and_worse(evidence: Evidence) -> Iterator[Comparison]:
    """Test that both baselines are more stable but converge worse at rate 0.001 than at 0.01.

    More stable means smaller setbacks of accuracy and training loss; worse convergence means a
    lower mean accuracy over the rounds.
    """
    paper = evidence.paper
    for setup, algo in product(_SYNTHETIC, ("fedavg", "fedprox")):
        rows = [
            row_of(
                paper,
                figure,
                setup,
                algo,
            )
            for figure in ("figure4", "figure2")
        ]
        slow, fast = evidence.comparable(rows)
        name = f"{paper.methods[algo].label} at rate 0.001 against 0.01 on {slow.setup}"
        for field in _FIELDS:
            label = f"setbacks of {field} of {name}"
            a = measured(slow, "setbacks", field)
            b = measured(fast, "setbacks", field)
            yield contest(
                label,
                a,
                b,
                -1.0,
                slow,
                fast,
            )
        a = measured(slow, "area", "accuracy_mean")
        b = measured(fast, "area", "accuracy_mean")
        label = f"accuracy_mean over the rounds of {name}, lower"
        yield above(
            label,
            leads(a, b, -1.0),
            (slow, fast),
        )


def c24_weights_are_fairer_than_equal(evidence: Evidence) -> Iterator[Comparison]:
    """Test that FedFa's weights make it fairer than equal weights on heterogeneous data sets.

    Fairer means a smaller variance and a higher accuracy of the worst 20 % of clients.
    """
    paper = evidence.paper
    for setup in (*_SYNTHETIC[1:], "femnist"):
        weighted = row_of(paper, "table2", setup, "fedfa")
        equal = row_of(
            paper,
            "figure3" if setup == "femnist" else "figure2",
            setup,
            "fedfa",
        )
        for metric in ("var_clients", "worst20"):
            yield compare_rows(evidence, weighted, equal, metric)

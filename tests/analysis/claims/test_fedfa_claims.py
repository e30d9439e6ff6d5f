"""FedFa's claims with functions of their own: runs made up here, verdicts by hand (p of n signs
alike: 2^-n).
"""

from functools import partial

import claim_runs
import pytest
from claim_runs import SEEDS, Run, curve, finals
from units import diverged

word = partial(claim_runs.word, "fedfa")
compare = partial(claim_runs.compare, "fedfa")

SYNTHETIC = ("synthetic_iid", "synthetic_0_0", "synthetic_05_05", "synthetic_1_1")


def swinging(height, swing):
    """Runs whose accuracy and loss swing above a height."""
    rows = []
    for round in range(6):
        value = height + swing * (round % 2)
        rows.append({"round": round, "accuracy_mean": value, "train_loss": value})
    return dict.fromkeys(range(SEEDS), Run(rows))


# ---- c07: less stable


def swings(*values):
    runs = {}
    for setup, swing in zip(SYNTHETIC, values, strict=True):
        runs[setup, "fedavg"] = swinging(0, swing)
    return runs


def test_setbacks_tend_to_rise_from_setup_to_setup():
    """One step may go the other way: of six pairs five rise and one falls, 4/6."""
    runs = swings(0.1, 0.3, 0.2, 0.4)
    accuracy, loss = compare("c07", runs)
    assert accuracy.mean == pytest.approx(4 / 6)
    assert loss.mean == pytest.approx(4 / 6)
    assert word("c07", runs) == "holds"
    assert word("c07", swings(0.4, 0.3, 0.2, 0.1)) == "fails"


def test_a_run_that_diverged_is_the_least_stable():
    runs = swings(0.1, 0.2, 0.3, 0.0)
    assert word("c07", runs) == "undecided"  # three pairs rise and three fall
    runs["synthetic_1_1", "fedavg"] = {}
    lost = {"others": diverged(*range(SEEDS))}
    accuracy, loss = compare("c07", runs, synthetic_1_1=lost)
    assert accuracy.mean == loss.mean == 1.0


# ---- c12: symmetry


def mirrored(difference, noise=0.0):
    """Final accuracies at alpha and 1 - alpha, apart by a difference and by noise of one sign after
    the other.
    """
    low = {}
    high = {}
    for seed in range(SEEDS):
        swing = noise * (-1) ** seed
        low[seed] = curve([0.5 - swing] * 2)
        high[seed] = curve([0.5 + difference + swing] * 2)
    runs = {}
    for tenths in range(5):
        runs["synthetic_1_1", "fedfa", tenths / 10] = low
        runs["synthetic_1_1", "fedfa", (10 - tenths) / 10] = high
    return runs


@pytest.mark.parametrize(
    ("difference", "noise", "kind"),
    [
        (0.009, 0.0, "holds"),
        (-0.009, 0.0, "holds"),
        (0.011, 0.0, "fails"),
        (-0.011, 0.0, "fails"),
        (0.0, 0.02, "undecided"),
    ],
)
def test_symmetry_within_a_margin(difference, noise, kind):
    """Two one-sided tests: what is not shown to be small is not small."""
    assert word("c12", mirrored(difference, noise)) == kind


# ---- c13 and c15: the sweeps over alpha


def sweep(setup, mean=0.8, variance=0.1, **at):
    """Final mean accuracy and variance by alpha: the same for every alpha but some, a3 is 0.3."""
    runs = {}
    for tenths in range(11):
        own_mean, own_variance = at.get(f"a{tenths}", (mean, variance))
        runs[setup, "fedfa", tenths / 10] = finals(
            accuracy_mean=own_mean,
            accuracy_variance=own_variance,
        )
    return runs


def test_some_alpha_is_better_than_a_half():
    """Ten values: 10 / 1024. 82 % are 2 points ahead of 80 %."""
    runs = sweep("mnist", a9=(0.82, 0.1))
    (c,) = compare("c13", runs)
    assert c.greater == pytest.approx(10 / 1024)
    assert c.mean == pytest.approx(2)
    assert word("c13", runs) == "holds"
    assert word("c13", sweep("mnist", a5=(0.82, 0.1))) == "fails"


@pytest.mark.parametrize(
    ("mean", "variance", "p", "kind"),
    [
        (0.82, 0.11, 40 / 1024, "holds"),
        (0.78, 0.09, 40 / 1024, "holds"),
        (0.82, 0.09, 1.0, "undecided"),
        (0.78, 0.11, 1.0, "undecided"),
    ],
)
def test_a_higher_mean_with_a_larger_variance(mean, variance, p, kind):
    """One alpha is enough, in either figure; where all others are level with 0.5 nothing is
    refuted.
    """
    runs = sweep("mnist", a9=(mean, variance)) | sweep("synthetic_1_1")
    assert word("c15", runs) == kind
    (c,) = compare("c15", runs)
    assert c.greater == pytest.approx(p)


def test_where_mean_and_variance_always_differ_the_claim_fails():
    runs = {}
    for setup in ("mnist", "synthetic_1_1"):
        runs |= sweep(setup, mean=0.82, a5=(0.8, 0.11))
    assert word("c15", runs) == "fails"


# ---- c20: a smaller rate


def rates(fast, slow):
    """Curves of both baselines, at rate 0.01 and 0.001, by (height, swing)."""
    runs = {}
    for setup in SYNTHETIC:
        for algo in ("fedavg", "fedprox"):
            runs[setup, algo] = swinging(*fast)
            runs[setup, algo, 0.001] = swinging(*slow)
    return runs


@pytest.mark.parametrize(
    ("fast", "slow", "kind"),
    [
        ((0.6, 0.2), (0.5, 0.1), "holds"),
        ((0.6, 0.1), (0.5, 0.2), "mixed"),  # less stable
        ((0.5, 0.2), (0.6, 0.1), "mixed"),  # and no worse
    ],
)
def test_a_smaller_rate_is_more_stable_and_slower(fast, slow, kind):
    assert word("c20", rates(fast, slow)) == kind


# ---- c24: the weights alone


def weights(weighted, equal):
    """Variance of FedFa with its weights, and with equal ones; the worst 20 % are more accurate
    with them.
    """
    runs = {}
    for setup in (*SYNTHETIC[1:], "femnist"):
        of_weighted = finals(accuracy_variance=weighted, accuracy_worst20=0.5)
        of_equal = finals(accuracy_variance=equal, accuracy_worst20=0.4)
        runs[setup, "fedfa"] = of_weighted
        runs[setup, "fedfa", 0.0] = of_equal
    return runs


def test_the_weights_make_it_fairer_than_equal_ones():
    assert word("c24", weights(0.04, 0.05)) == "holds"
    assert word("c24", weights(0.05, 0.04)) == "mixed"  # the larger variance

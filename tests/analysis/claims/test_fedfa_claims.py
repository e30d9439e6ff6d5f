"""FedFa's claims with functions of their own: runs made up here, verdicts by hand (p of n signs alike: 2^-n)."""

import math

import pytest
from claim_runs import SEEDS, Run, compare, curve, every_seed, final, verdict
from units import unit

# ---- FedFa, c07 and c12


SYNTHETIC = ("synthetic_iid", "synthetic_0_0", "synthetic_05_05", "synthetic_1_1")


def swinging(heights, seeds=SEEDS):
    def made(e, h):
        values = [e * h * (i % 2) for i in range(6)]
        return Run(
            [{"round": i, "accuracy_mean": v, "train_loss": v} for i, v in enumerate(values)]
        )

    return {
        (s, "fedavg"): every_seed(lambda e, h=h: made(e, h), seeds)
        for s, h in zip(SYNTHETIC, heights, strict=True)
    }


def test_setbacks_tend_to_rise_from_setup_to_setup():
    """One step may go the other way: of six pairs five rise and one falls, 4/6."""
    found = compare("fedfa", "c07", swinging((0.1, 0.3, 0.2, 0.4)))
    assert [c.mean for c in found] == [pytest.approx(4 / 6)] * 2  # accuracy and loss
    assert verdict("fedfa", "c07", swinging((0.1, 0.3, 0.2, 0.4))).word == "holds"
    assert verdict("fedfa", "c07", swinging((0.4, 0.3, 0.2, 0.1))).word == "fails"
    assert verdict("fedfa", "c07", swinging((0.1, 0.3, 0.2, 0.4), seeds=4)).word == "undecided"


def test_a_run_that_diverged_is_the_least_stable():
    runs = swinging((0.1, 0.2, 0.3, 0.0))
    assert verdict("fedfa", "c07", runs).word == "undecided"  # three pairs rise and three fall
    runs["synthetic_1_1", "fedavg"] = {}
    lost = tuple((unit(s), "diverged") for s in range(SEEDS))
    found = compare("fedfa", "c07", runs, synthetic_1_1={"others": lost})
    assert [c.mean for c in found] == [1.0, 1.0]
    assert verdict("fedfa", "c07", runs, synthetic_1_1={"others": lost}).word == "holds"


def mirrored(difference, noise=0.0, seeds=SEEDS):
    """Final accuracies at alpha and 1 - alpha, apart by a difference and by noise of one sign after the other."""
    runs = {}
    for a, sign in [(i / 10, 0.0) for i in range(5)] + [(i / 10, 1.0) for i in range(6, 11)]:
        values = {
            s: 0.5 + s / 50 + sign * difference + (2 * sign - 1) * noise * (-1) ** s
            for s in range(seeds)
        }
        runs["synthetic_1_1", "fedfa", a] = {s: curve([v, v]) for s, v in values.items()}
    return runs


@pytest.mark.parametrize(
    ("difference", "word"),
    [(0.0, "holds"), (0.009, "holds"), (-0.009, "holds"), (0.011, "fails"), (-0.011, "fails")],
)
def test_symmetry_within_a_margin(difference, word):
    """Two one-sided tests: what is not shown to be small is not small."""
    assert verdict("fedfa", "c12", mirrored(difference)).word == word
    assert verdict("fedfa", "c12", mirrored(difference, seeds=3)).word == "undecided"


def test_leads_of_accuracies_are_points():
    """Alpha 1 is 1.2 points ahead of alpha 0: 0.2 points beyond the margin; 82 % are 2 points ahead of 80 %."""
    first, *_ = compare("fedfa", "c12", mirrored(0.012))
    assert first.mean == pytest.approx(-0.2)
    (found,) = compare("fedfa", "c13", sweep("mnist", level(0.8, a9=0.82), level(0.1)))
    assert found.mean == pytest.approx(2)
    runs = sweep("mnist", level(0.8, a9=0.82), level(0.1, a9=0.101)) | sweep(
        "synthetic_1_1", level(0.8), level(0.1)
    )
    (found,) = compare("fedfa", "c15", runs)
    assert found.mean in (pytest.approx(2), pytest.approx(10))  # points, or their squares
    found = compare("fedfa", "c20", rates((0.6, 0.0), (0.5, 0.0)))
    assert found[2].mean == pytest.approx(10)


def test_noise_is_not_symmetry():
    assert verdict("fedfa", "c12", mirrored(0.0, noise=0.02)).word == "undecided"
    assert math.isclose(
        mirrored(0.0, noise=0.02)["synthetic_1_1", "fedfa", 1.0][0].last_round()["accuracy_mean"],
        0.52,
    )


# ---- FedFa, c13 and c15: the sweeps over alpha


SWEPT = tuple(i / 10 for i in range(11))


def sweep(setup, means, variances, seeds=SEEDS):
    """Final mean accuracy and variance by alpha."""
    return {
        (setup, "fedfa", a): {
            s: final(accuracy_mean=m + s / 1000, accuracy_variance=v) for s in range(seeds)
        }
        for a, m, v in zip(SWEPT, means, variances, strict=True)
    }


def level(value, **at):
    """The same number for every alpha but some: a3 is that of 0.3."""
    return [at.get(f"a{i}", value) for i in range(11)]


def test_some_alpha_is_better_than_a_half():
    """Ten values: 10 / 1024."""
    (found,) = compare("fedfa", "c13", sweep("mnist", level(0.8, a9=0.82), level(0.1)))
    assert found.greater == pytest.approx(10 / 1024)
    assert verdict("fedfa", "c13", sweep("mnist", level(0.8, a9=0.82), level(0.1))).word == "holds"
    assert verdict("fedfa", "c13", sweep("mnist", level(0.8, a5=0.82), level(0.1))).word == "fails"
    assert (
        verdict("fedfa", "c13", sweep("mnist", level(0.8, a9=0.82), level(0.1), seeds=7)).word
        == "undecided"
    )


@pytest.mark.parametrize(
    ("mean", "variance", "word"),
    [
        (0.82, 0.11, "holds"),
        (0.78, 0.09, "holds"),
        (0.82, 0.09, "undecided"),
        (0.78, 0.11, "undecided"),
    ],
)
def test_a_higher_mean_with_a_larger_variance(mean, variance, word):
    """One alpha is enough, in either figure; where all others are level with 0.5 nothing is refuted."""
    runs = sweep("mnist", level(0.8, a9=mean), level(0.1, a9=variance))
    runs |= sweep("synthetic_1_1", level(0.8), level(0.1))
    assert verdict("fedfa", "c15", runs).word == word
    (found,) = compare("fedfa", "c15", runs)
    assert found.greater == pytest.approx(40 / 1024 if word == "holds" else 1.0)


def test_where_mean_and_variance_always_differ_the_claim_fails():
    runs = {}
    for setup in ("mnist", "synthetic_1_1"):
        runs |= sweep(setup, level(0.82, a5=0.8), level(0.1, a5=0.11))
    assert verdict("fedfa", "c15", runs).word == "fails"


# ---- FedFa, c20: a smaller rate


def rates(fast, slow, seeds=SEEDS):
    """Curves of both baselines, at rate 0.01 and 0.001, by (height, swing)."""

    def made(height, swing, e):
        values = [height + e * swing * (i % 2) for i in range(6)]
        return Run(
            [{"round": i, "accuracy_mean": v, "train_loss": v} for i, v in enumerate(values)]
        )

    return {
        (setup, algo, lr): {s: made(*how, 1 + s / 100) for s in range(seeds)}
        for setup in SYNTHETIC
        for algo in ("fedavg", "fedprox")
        for lr, how in ((None, fast), (0.001, slow))
    }


def test_a_smaller_rate_is_more_stable_and_slower():
    assert len(compare("fedfa", "c20", rates((0.6, 0.2), (0.5, 0.1)))) == 24
    assert verdict("fedfa", "c20", rates((0.6, 0.2), (0.5, 0.1))).word == "holds"
    assert verdict("fedfa", "c20", rates((0.6, 0.1), (0.5, 0.2))).word == "mixed"  # less stable
    assert verdict("fedfa", "c20", rates((0.5, 0.2), (0.6, 0.1))).word == "mixed"  # and no worse
    assert verdict("fedfa", "c20", rates((0.6, 0.2), (0.5, 0.1), seeds=4)).word == "undecided"


# ---- FedFa, c24: the weights alone


def weights(with_them, without, seeds=SEEDS):
    """(variance, worst 20 %) of FedFa with its weights, and with equal ones."""
    return {
        (setup, "fedfa", key): {
            s: final(accuracy_variance=v + s / 1000, accuracy_worst20=w + s / 1000)
            for s in range(seeds)
        }
        for setup in ("synthetic_0_0", "synthetic_05_05", "synthetic_1_1", "femnist")
        for key, (v, w) in ((None, with_them), (0.0, without))
    }


def test_the_weights_make_it_fairer_than_equal_ones():
    assert verdict("fedfa", "c24", weights((0.04, 0.5), (0.05, 0.4))).word == "holds"
    # the larger variance
    assert verdict("fedfa", "c24", weights((0.05, 0.5), (0.04, 0.4))).word == "mixed"
    assert verdict("fedfa", "c24", weights((0.04, 0.5), (0.05, 0.4), seeds=4)).word == "undecided"

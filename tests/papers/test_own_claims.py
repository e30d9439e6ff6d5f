"""The claims with functions of their own: runs made up here, verdicts by hand (p of n signs alike: 2^-n)."""

import math

import pytest
from claim_runs import SEEDS, Run, compare, curve, every_seed, final, verdict
from units import unit

from fedbench.papers.claims import functions
from fedbench.papers.registry import papers


def test_a_paper_without_functions():
    assert not functions("no_such_paper")


# ---- AdaFed, c14: a lead as a ratio

RIVALS = ("fedavg", "qffl", "fedmgda", "term", "afl", "ditto")


def stds(skewed, original, seeds=SEEDS, **others):
    """Runs of Table 3: the STD of AdaFed and of the best rival, in percent; the other rivals are far behind."""
    runs = {}
    for setup, (own, best) in (("femnist_skewed", skewed), ("femnist_original", original)):
        values = {"adafed": own, **dict.fromkeys(RIVALS, 99.0), "term": best, **others}
        runs |= {(setup, m): {s: final(accuracy_std=v / 100) for s in range(seeds)} for m, v in values.items()}
    return runs


def test_a_lead_is_that_over_the_best_of_the_others():
    """2 against 8 is four times, 2 against 4 twice: ahead by 2."""
    v = verdict("adafed", "c14", stds((2, 8), (2, 4)))
    assert v.verdict == "holds"
    assert "ahead by 2 on average over 10 seeds" in v.evidence
    assert "lead of AdaFed over the best other in STD %, as a ratio, on " in v.evidence
    assert verdict("adafed", "c14", stds((2, 4), (2, 8))).verdict == "fails"


def test_a_lead_takes_only_seeds_with_every_rival():
    """The best of the others may be the one that is missing."""
    runs = stds((2, 8), (2, 4))
    del runs["femnist_skewed", "ditto"][9]
    assert "over 9 seeds" in verdict("adafed", "c14", runs).evidence
    del runs["femnist_original", "afl"]
    assert verdict("adafed", "c14", runs).evidence == "0 of 1 comparisons have been run"


# ---- AdaFed, c16 and c65: two clients


def losses(*clients, rounds=(0, 5, 9)):
    return [{"round": t, "client": k, "train_loss": v[i]} for k, v in enumerate(clients) for i, t in enumerate(rounds)]


def two_clients(low, high, seeds=SEEDS, **more):
    return {
        (setup, "adafed"): {s: Run(clients=losses(low, high, **more)) for s in range(seeds)}
        for setup in ("cifar10_s1", "cifar100_s1")
    }


def test_the_higher_loss_falls_by_more():
    """It falls by 2.4, the lower one by 0.5."""
    drops = compare("adafed", "c16", two_clients((1.0, 0.8, 0.5), (3.0, 1.0, 0.6)))
    assert [c.mean for c in drops] == [pytest.approx(1.9)] * 2
    assert verdict("adafed", "c16", two_clients((1.0, 0.8, 0.5), (3.0, 1.0, 0.6))).verdict == "holds"
    assert verdict("adafed", "c16", two_clients((1.0, 0.8, 0.5), (3.0, 1.0, 0.6), seeds=4)).verdict == "undecided"
    assert verdict("adafed", "c16", two_clients((1.0, 0.8, 0.5), (3.0, 2.8, 2.6))).verdict == "fails"


@pytest.mark.parametrize(("low", "high", "word"), [(0.91, 1.0, "holds"), (0.89, 1.0, "fails"), (1.0, 0.91, "holds")])
def test_the_losses_end_within_a_tenth_of_the_larger_one(low, high, word):
    runs = two_clients((1.0, 0.95, low), (3.0, 2.0, high))
    assert verdict("adafed", "c65", runs).verdict == word
    first, _ = compare("adafed", "c65", runs)
    assert first.mean == pytest.approx(0.1 - abs(high - low))
    assert verdict("adafed", "c65", two_clients((1.0, 0.95, low), (3.0, 2.0, high), seeds=4)).verdict == "undecided"


def test_two_clients_need_a_course():
    """Where only the last round's clients were kept, nothing can be said."""
    v = verdict("adafed", "c16", two_clients((1.0,), (3.0,), rounds=(9,)))
    assert (v.verdict, v.evidence) == ("not run", "0 of 2 comparisons have been run")


# ---- AdaFed, c18 and c67: rounds to 40 %

SIX = ("fedavg", "qffl", "fedmgda", "fedfa", "term", "ditto")


def reaches(at, last=2000, seeds=SEEDS):
    """A curve evaluated every 10 rounds that is at 40 % from a round on; None: never."""
    values = [0.4 if at is not None and r >= at else 0.3 for r in range(0, last + 1, 10)]
    return {s: curve(values) for s in range(seeds)}


def figure5(adafed, others):
    return {("cifar10_s1", "adafed"): adafed} | {("cifar10_s1", m): others for m in SIX}


@pytest.mark.parametrize(
    ("own", "others", "word"),
    [(1500, 1510, "holds"), (100, None, "holds"), (110, 100, "fails"), (None, 900, "fails"), (400, 400, "undecided")],
)
def test_fewer_rounds_than_each_other_method(own, others, word):
    assert verdict("adafed", "c18", figure5(reaches(own), reaches(others))).verdict == word


def test_a_run_that_ends_below_the_target_needs_a_round_more_than_it_has():
    first, *_ = compare("adafed", "c18", figure5(reaches(400, 500), reaches(None, 500)))
    assert first.mean == 101  # 501 - 400
    first, *_ = compare("adafed", "c18", figure5(reaches(None, 500), reaches(400, 500)))
    assert first.mean == -101


@pytest.mark.parametrize(("own", "other"), [((None, 500), (None, 500)), ((400, 500), (None, 300))])
def test_where_nothing_is_known_of_who_is_first_the_seed_does_not_count(own, other):
    """Both below 40 % at the end, or the other one stopped before AdaFed got there."""
    first, *_ = compare("adafed", "c18", figure5(reaches(*own), reaches(*other)))
    assert first.mean is None


@pytest.mark.parametrize(
    ("own", "others", "word"),
    [
        (400, 900, "holds"), (430, 820, "holds"), (450, 900, "fails"), (400, 800, "fails"), (100, None, "holds"),
        (None, 900, "fails"),
    ],
)  # fmt: skip
def test_rounds_to_a_target_with_a_tenth_of_slack(own, others, word):
    """AdaFed within 440 rounds, the others not before 810."""
    assert verdict("adafed", "c67", figure5(reaches(own), reaches(others))).verdict == word
    few = figure5(reaches(own, seeds=4), reaches(others, seeds=4))
    assert verdict("adafed", "c67", few).verdict == "undecided"


def test_how_far_from_the_bounds():
    first, *_, own = compare("adafed", "c67", figure5(reaches(400), reaches(900)))
    assert (own.mean, first.mean) == (pytest.approx(40), pytest.approx(90))
    assert own.label == "rounds of AdaFed to 40 % at most 440"
    assert first.label == "rounds of FedAvg to 40 % at least 810"


@pytest.mark.parametrize(
    ("own", "last", "mean"), [(None, 300, None), (None, 420, None), (None, 450, -10), (100, 300, 340)]
)
def test_a_run_that_stopped_before_the_bound_says_nothing(own, last, mean):
    """It may still reach the accuracy before round 440; one that has reached it is in time."""
    found = compare("adafed", "c67", figure5(reaches(own, last), {}))[-1]
    assert found.mean == (None if mean is None else pytest.approx(mean))


# ---- AdaFed, c34: a gain that ends


def epochs(ten, twenty, seeds=SEEDS):
    """Mean accuracies in percent of the five methods with 10 and 20 epochs in setup 1."""
    methods = ("fedavg", "qffl", "afl", "term", "adafed")
    return {
        (f"cifar100_s1_e{e}", m): {s: final(accuracy_mean=(v + s / 10) / 100) for s in range(seeds)}
        for e, values in ((10, ten), (20, twenty))
        for m, v in zip(methods, values, strict=True)
    }


def test_no_further_gain_on_average_over_the_methods():
    """One method gains 1 point and four lose 0.1: 0.12 on average, below 0.2; with a gain of 2 points it is 0.32."""
    before = [30.0] * 5
    (found,) = compare("adafed", "c34", epochs(before, [31.0, 29.9, 29.9, 29.9, 29.9]))
    assert found.mean == pytest.approx(0.08)
    assert verdict("adafed", "c34", epochs(before, [31.0, 29.9, 29.9, 29.9, 29.9])).verdict == "holds"
    assert verdict("adafed", "c34", epochs(before, [32.0, 29.9, 29.9, 29.9, 29.9])).verdict == "fails"
    assert verdict("adafed", "c34", epochs(before, before, seeds=4)).verdict == "undecided"
    assert verdict("adafed", "c35", epochs(before, before)).verdict == "not run"  # that is setup 2


# ---- AdaFed, c36: about 2.2 points


@pytest.mark.parametrize(
    ("gap", "word"), [(2.2, "holds"), (1.3, "holds"), (3.1, "holds"), (1.1, "fails"), (3.3, "fails"), (-2.2, "fails")]
)
def test_about_two_points_below(gap, word):
    def runs(seeds):
        values = {"fedcorr": 72.0, "adafed": 72.0 - gap}
        return {
            ("clothing1m", m): {s: final(accuracy_mean=(v + s) / 100) for s in range(seeds)} for m, v in values.items()
        }

    assert verdict("adafed", "c36", runs(SEEDS)).verdict == word
    assert verdict("adafed", "c36", runs(4)).verdict == "undecided"


# ---- AdaFed, c48: a moderate gamma

GAMMAS = (0.0, 0.01, 0.1, 1.0, 5.0, 10.0)


def gammas(means, stds, seeds=SEEDS):
    """Final mean and STD in percent by gamma, in every setup."""
    setups = {s for t in range(10, 17) for s in papers()["adafed"].tables[f"table{t}"].setups}
    return {
        (setup, "adafed", g): {s: final(accuracy_mean=m / 100, accuracy_std=d / 100) for s in range(seeds)}
        for setup in setups
        for g, m, d in zip(GAMMAS, means, stds, strict=True)
    }


def test_some_gamma_between_the_ends_is_better():
    """Only gamma 1 is more accurate than both ends and fairer than gamma 0: 4 / 1024 for four values."""
    means, stds = (50, 49, 49, 60, 70, 55), (9, 8, 8, 8, 10, 3)
    v = verdict("adafed", "c48", gammas(means, stds))
    assert v.verdict == "holds"
    found = compare("adafed", "c48", gammas(means, stds))
    assert len(found) == 11
    assert found[0].greater == pytest.approx(4 / 1024)
    assert verdict("adafed", "c48", gammas((50, 51, 52, 53, 54, 55), stds)).verdict == "fails"  # the end is best
    assert verdict("adafed", "c48", gammas(means, stds, seeds=6)).verdict == "undecided"  # 4 / 64


# ---- AdaFed, c62: somewhere the most accurate


def everywhere(own, others, seeds=SEEDS, **at):
    """Mean accuracies in percent in every setup of Tables 1 to 4; ``at`` gives AdaFed another one in a setup."""
    tables = [papers()["adafed"].tables[f"table{t}"] for t in range(1, 5)]
    rows = [r for t in tables for r in t.rows]
    values = {(r.setup, r.algo): at.get(r.setup, own) if r.algo == "adafed" else others for r in rows}
    return {k: {s: final(accuracy_mean=(v + s) / 100) for s in range(seeds)} for k, v in values.items()}


def test_one_setup_is_enough():
    """Ahead of all six in one of eight setups: 8 / 1024."""
    (found,) = compare("adafed", "c62", everywhere(50, 51, femnist_skewed=52))
    assert found.greater == pytest.approx(8 / 1024)
    assert verdict("adafed", "c62", everywhere(50, 51, femnist_skewed=52)).verdict == "holds"
    assert verdict("adafed", "c62", everywhere(50, 51)).verdict == "fails"
    assert verdict("adafed", "c62", everywhere(50, 51, seeds=7, femnist_skewed=52)).verdict == "undecided"  # 8 / 128


# ---- AdaFed, c66: the smoothest of three


def lengths(sgd, several, single, seeds=SEEDS):
    """Lengths of the direction that swing by a share of the first one, which differs between the three cases."""
    return {
        ("cifar10_s1", "adafed", key): {
            s: curve([first * (1 + swing * (i % 2) * (1 + s / 100)) for i in range(6)], "update_norm")
            for s in range(seeds)
        }
        for key, first, swing in ((None, 1.0, sgd), (5, 10.0, several), ("full", 100.0, single))
    }


def test_full_gradients_are_smoothest_whatever_their_length():
    """A swing of a tenth at length 100 is smoother than one of two tenths at length 1."""
    assert verdict("adafed", "c66", lengths(0.2, 0.3, 0.1)).verdict == "holds"
    assert verdict("adafed", "c66", lengths(0.2, 0.1, 0.15)).verdict == "fails"
    assert verdict("adafed", "c66", lengths(0.2, 0.3, 0.1, seeds=4)).verdict == "undecided"
    first, second = compare("adafed", "c66", lengths(0.2, 0.3, 0.1, seeds=1))
    # six points swing up and down five times: changes x, -x, x, -x, x have the variance x² (1 - 1/25)
    assert (first.mean, second.mean) == (pytest.approx(0.96 * 0.03), pytest.approx(0.96 * 0.08))


# ---- FedFa, c07 and c12


SYNTHETIC = ("synthetic_iid", "synthetic_0_0", "synthetic_05_05", "synthetic_1_1")


def swinging(heights, seeds=SEEDS):
    def made(e, h):
        values = [e * h * (i % 2) for i in range(6)]
        return Run([{"round": i, "accuracy_mean": v, "train_loss": v} for i, v in enumerate(values)])

    return {
        (s, "fedavg"): every_seed(lambda e, h=h: made(e, h), seeds) for s, h in zip(SYNTHETIC, heights, strict=True)
    }


def test_roughness_tends_to_rise_from_setup_to_setup():
    """One step may go the other way: of six pairs five rise and one falls, 4/6."""
    found = compare("fedfa", "c07", swinging((0.1, 0.3, 0.2, 0.4)))
    assert [c.mean for c in found][::2] == [pytest.approx(4 / 6)] * 2  # accuracy and loss
    assert verdict("fedfa", "c07", swinging((0.1, 0.3, 0.2, 0.4))).verdict == "holds"
    assert verdict("fedfa", "c07", swinging((0.4, 0.3, 0.2, 0.1))).verdict == "fails"
    assert verdict("fedfa", "c07", swinging((0.1, 0.3, 0.2, 0.4), seeds=4)).verdict == "undecided"


def test_a_run_that_diverged_is_the_roughest():
    runs = swinging((0.1, 0.2, 0.3, 0.0))
    assert verdict("fedfa", "c07", runs).verdict == "fails"
    runs["synthetic_1_1", "fedavg"] = {}
    lost = tuple((unit(s), "diverged") for s in range(SEEDS))
    found = compare("fedfa", "c07", runs, synthetic_1_1={"others": lost})
    assert [c.mean for c in found][::2] == [1.0, 1.0]
    assert verdict("fedfa", "c07", runs, synthetic_1_1={"others": lost}).verdict == "holds"


def mirrored(difference, noise=0.0, seeds=SEEDS):
    """Final accuracies at alpha and 1 - alpha, apart by a difference and by noise of one sign after the other."""
    runs = {}
    for a, sign in [(i / 10, 0.0) for i in range(5)] + [(i / 10, 1.0) for i in range(6, 11)]:
        values = {s: 0.5 + s / 50 + sign * difference + (2 * sign - 1) * noise * (-1) ** s for s in range(seeds)}
        runs["synthetic_1_1", "fedfa", a] = {s: curve([v, v]) for s, v in values.items()}
    return runs


@pytest.mark.parametrize(
    ("difference", "word"), [(0.0, "holds"), (0.009, "holds"), (-0.009, "holds"), (0.011, "fails"), (-0.011, "fails")]
)
def test_symmetry_within_a_margin(difference, word):
    """Two one-sided tests: what is not shown to be small is not small."""
    assert verdict("fedfa", "c12", mirrored(difference)).verdict == word
    assert verdict("fedfa", "c12", mirrored(difference, seeds=3)).verdict == "undecided"


def test_noise_is_not_symmetry():
    assert verdict("fedfa", "c12", mirrored(0.0, noise=0.02)).verdict == "undecided"
    assert math.isclose(mirrored(0.0, noise=0.02)["synthetic_1_1", "fedfa", 1.0][0].last_round()["accuracy_mean"], 0.52)


# ---- FedFa, c13 and c15: the sweeps over alpha


SWEPT = tuple(i / 10 for i in range(11))


def sweep(setup, means, variances, seeds=SEEDS):
    """Final mean accuracy and variance by alpha."""
    return {
        (setup, "fedfa", a): {s: final(accuracy_mean=m + s / 1000, accuracy_variance=v) for s in range(seeds)}
        for a, m, v in zip(SWEPT, means, variances, strict=True)
    }


def level(value, **at):
    """The same number for every alpha but some: a3 is that of 0.3."""
    return [at.get(f"a{i}", value) for i in range(11)]


def test_some_alpha_is_better_than_a_half():
    """Ten values: 10 / 1024."""
    (found,) = compare("fedfa", "c13", sweep("mnist", level(0.8, a9=0.82), level(0.1)))
    assert found.greater == pytest.approx(10 / 1024)
    assert verdict("fedfa", "c13", sweep("mnist", level(0.8, a9=0.82), level(0.1))).verdict == "holds"
    assert verdict("fedfa", "c13", sweep("mnist", level(0.8, a5=0.82), level(0.1))).verdict == "fails"
    assert verdict("fedfa", "c13", sweep("mnist", level(0.8, a9=0.82), level(0.1), seeds=7)).verdict == "undecided"


@pytest.mark.parametrize(
    ("mean", "variance", "word"),
    [(0.82, 0.11, "holds"), (0.78, 0.09, "holds"), (0.82, 0.09, "undecided"), (0.78, 0.11, "undecided")],
)
def test_a_higher_mean_with_a_larger_variance(mean, variance, word):
    """One alpha is enough, in either figure; where all others are level with 0.5 nothing is refuted."""
    runs = sweep("mnist", level(0.8, a9=mean), level(0.1, a9=variance))
    runs |= sweep("synthetic_1_1", level(0.8), level(0.1))
    assert verdict("fedfa", "c15", runs).verdict == word
    (found,) = compare("fedfa", "c15", runs)
    assert found.greater == pytest.approx(40 / 1024 if word == "holds" else 1.0)


def test_where_mean_and_variance_always_differ_the_claim_fails():
    runs = {}
    for setup in ("mnist", "synthetic_1_1"):
        runs |= sweep(setup, level(0.82, a5=0.8), level(0.1, a5=0.11))
    assert verdict("fedfa", "c15", runs).verdict == "fails"


# ---- FedFa, c17: at least 90 %


@pytest.mark.parametrize(("worst", "word"), [(0.91, "holds"), (0.89, "fails")])
def test_the_best_clients_have_ninety_per_cent_under_each_method(worst, word):
    def runs(seeds):
        values = {"fedavg": worst, "fedprox": 0.99, "fedfa": 1.0}
        return {("synthetic_1_1", m): {s: final(accuracy_best20=v) for s in range(seeds)} for m, v in values.items()}

    assert verdict("fedfa", "c17", runs(SEEDS)).verdict == word
    assert verdict("fedfa", "c17", runs(4)).verdict == "undecided"


# ---- FedFa, c20: a smaller rate


def rates(fast, slow, seeds=SEEDS):
    """Curves of both baselines, at rate 0.01 and 0.001, by (height, swing)."""

    def made(height, swing, e):
        values = [height + e * swing * (i % 2) for i in range(6)]
        return Run([{"round": i, "accuracy_mean": v, "train_loss": v} for i, v in enumerate(values)])

    return {
        (setup, algo, lr): {s: made(*how, 1 + s / 100) for s in range(seeds)}
        for setup in SYNTHETIC
        for algo in ("fedavg", "fedprox")
        for lr, how in ((None, fast), (0.001, slow))
    }


def test_a_smaller_rate_is_smoother_and_slower():
    assert len(compare("fedfa", "c20", rates((0.6, 0.2), (0.5, 0.1)))) == 24
    assert verdict("fedfa", "c20", rates((0.6, 0.2), (0.5, 0.1))).verdict == "holds"
    assert verdict("fedfa", "c20", rates((0.6, 0.1), (0.5, 0.2))).verdict == "fails"  # rougher
    assert verdict("fedfa", "c20", rates((0.5, 0.2), (0.6, 0.1))).verdict == "fails"  # and no worse
    assert verdict("fedfa", "c20", rates((0.6, 0.2), (0.5, 0.1), seeds=4)).verdict == "undecided"


# ---- FedFa, c24: the weights alone


def weights(with_them, without, seeds=SEEDS):
    """(variance, worst 20 %) of FedFa with its weights, and with equal ones."""
    return {
        (setup, "fedfa", key): {
            s: final(accuracy_variance=v + s / 1000, accuracy_worst20=w + s / 1000) for s in range(seeds)
        }
        for setup in ("synthetic_0_0", "synthetic_05_05", "synthetic_1_1", "femnist")
        for key, (v, w) in ((None, with_them), (0.0, without))
    }


def test_the_weights_make_it_fairer_than_equal_ones():
    assert verdict("fedfa", "c24", weights((0.04, 0.5), (0.05, 0.4))).verdict == "holds"
    assert verdict("fedfa", "c24", weights((0.05, 0.5), (0.04, 0.4))).verdict == "fails"  # the larger variance
    assert verdict("fedfa", "c24", weights((0.04, 0.5), (0.05, 0.4), seeds=4)).verdict == "undecided"

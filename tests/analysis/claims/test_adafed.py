"""AdaFed's claims with functions of their own: runs made up here, verdicts by hand (p of n signs alike: 2^-n)."""

import pytest
from claim_runs import SEEDS, Run, compare, curve, final, verdict

from fedbench.papers.registry import papers

# ---- AdaFed, c14: a lead as a ratio

RIVALS = ("fedavg", "qffl", "fedmgda", "term", "afl")  # Ditto, with a model per client, is none


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
    assert v.word == "holds"
    assert (v.worst.mean, v.worst.n) == (pytest.approx(2), 10)
    assert v.worst.label.startswith("lead of AdaFed over the best other in STD %, as a ratio, on ")
    assert verdict("adafed", "c14", stds((2, 4), (2, 8))).word == "fails"


def test_a_lead_takes_only_seeds_with_every_rival():
    """The best of the others may be the one that is missing."""
    runs = stds((2, 8), (2, 4))
    del runs["femnist_skewed", "fedavg"][9]
    assert verdict("adafed", "c14", runs).worst.n == 9
    del runs["femnist_original", "afl"]
    assert verdict("adafed", "c14", runs).word == "not run"


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
    assert verdict("adafed", "c16", two_clients((1.0, 0.8, 0.5), (3.0, 1.0, 0.6))).word == "holds"
    assert verdict("adafed", "c16", two_clients((1.0, 0.8, 0.5), (3.0, 1.0, 0.6), seeds=4)).word == "undecided"
    assert verdict("adafed", "c16", two_clients((1.0, 0.8, 0.5), (3.0, 2.8, 2.6))).word == "fails"


@pytest.mark.parametrize(("low", "high", "word"), [(0.91, 1.0, "holds"), (0.89, 1.0, "fails"), (1.0, 0.91, "holds")])
def test_the_losses_end_within_a_tenth_of_the_larger_one(low, high, word):
    runs = two_clients((1.0, 0.95, low), (3.0, 2.0, high))
    assert verdict("adafed", "c65", runs).word == word
    first, _ = compare("adafed", "c65", runs)
    assert first.mean == pytest.approx(0.1 - abs(high - low))
    assert verdict("adafed", "c65", two_clients((1.0, 0.95, low), (3.0, 2.0, high), seeds=4)).word == "undecided"


def test_two_clients_need_a_course():
    """Where only the last round's clients were kept, nothing can be said."""
    v = verdict("adafed", "c16", two_clients((1.0,), (3.0,), rounds=(9,)))
    assert (v.word, len(v.comparisons)) == ("not run", 2)


# ---- AdaFed, c18 and c67: rounds to 40 %

OTHERS = ("fedavg", "qffl", "fedmgda", "fedfa", "term")


def reaches(at, last=2000, seeds=SEEDS):
    """A curve evaluated every 10 rounds that is at 40 % from a round on; None: never."""
    values = [0.4 if at is not None and r >= at else 0.3 for r in range(0, last + 1, 10)]
    return {s: curve(values) for s in range(seeds)}


def figure5(adafed, others):
    return {("cifar10_s1", "adafed"): adafed} | {("cifar10_s1", m): others for m in OTHERS}


@pytest.mark.parametrize(
    ("own", "others", "word"),
    [(1500, 1510, "holds"), (100, None, "holds"), (110, 100, "fails"), (None, 900, "fails"), (400, 400, "undecided")],
)
def test_fewer_rounds_than_each_other_method(own, others, word):
    assert verdict("adafed", "c18", figure5(reaches(own), reaches(others))).word == word


def test_a_run_that_ends_below_the_target_needs_a_round_more_than_it_has():
    first, *_ = compare("adafed", "c18", figure5(reaches(400, 500), reaches(None, 500)))
    assert first.mean == 101  # 501 - 400
    first, *_ = compare("adafed", "c18", figure5(reaches(None, 500), reaches(400, 500)))
    assert first.mean == -101


def test_where_the_other_one_stopped_first_the_seed_does_not_count():
    """It may have got to 40 % before AdaFed."""
    first, *_ = compare("adafed", "c18", figure5(reaches(400, 500), reaches(None, 300)))
    assert first.mean is None


def test_where_neither_gets_there_the_claim_is_undecided():
    """Seeds with which neither of the two gets to 40 % are left out unless there are no others."""
    v = verdict("adafed", "c18", figure5(reaches(None), reaches(None)))
    assert (v.word, len(v.run), v.count("open")) == ("undecided", 5, 5)
    own = reaches(None) | reaches(400, seeds=5)
    first, *_ = compare("adafed", "c18", figure5(own, reaches(None)))
    assert (first.mean, first.n) == (1601, 5)  # 2001 - 400


@pytest.mark.parametrize(
    ("own", "others", "word"),
    [
        (400, 900, "holds"), (430, 820, "holds"), (370, 980, "holds"), (450, 900, "mixed"), (350, 900, "mixed"),
        (400, 800, "mixed"), (400, 1000, "mixed"), (400, None, "mixed"), (None, 900, "mixed"),
    ],
)  # fmt: skip
def test_rounds_to_a_target_with_a_tenth_of_slack(own, others, word):
    """AdaFed in rounds 360 to 440, the others in 810 to 990."""
    assert verdict("adafed", "c67", figure5(reaches(own), reaches(others))).word == word
    few = figure5(reaches(own, seeds=4), reaches(others, seeds=4))
    assert verdict("adafed", "c67", few).word == "undecided"


def test_how_far_from_the_bounds():
    found = compare("adafed", "c67", figure5(reaches(390), reaches(920)))
    assert len(found) == 12
    assert [c.mean for c in (*found[:2], *found[-2:])] == pytest.approx([110, 70, 30, 50])
    assert found[0].label == "rounds of FedAvg to 40 % at least 810"
    assert found[-1].label == "rounds of AdaFed to 40 % at most 440"


@pytest.mark.parametrize(
    ("own", "last", "mean"), [(None, 300, None), (None, 420, None), (None, 450, -10), (100, 300, 340)]
)
def test_a_run_that_stopped_before_the_bound_says_nothing(own, last, mean):
    """It may still reach the accuracy before round 440; one that has reached it is in time."""
    found = compare("adafed", "c67", figure5(reaches(own, last), {}))[-1]
    assert found.mean == (None if mean is None else pytest.approx(mean))


def test_runs_that_stopped_too_early_do_not_hide_those_that_refute():
    """Five seeds of AdaFed need 600 rounds, of the other five nothing is known: -160 on average, 1 / 32 against."""
    own = reaches(None, 300) | reaches(600, 2000, seeds=5)
    *_, late, unknown = compare("adafed", "c67", figure5(own, {}))
    assert (late.mean, late.n, late.less) == (pytest.approx(-160), 5, pytest.approx(1 / 32))
    assert (unknown.mean, unknown.group) == (None, late.group)
    assert verdict("adafed", "c67", figure5(own, {})).word == "not run"


def test_runs_that_stopped_too_early_do_not_show_that_a_bound_is_kept():
    """AdaFed is in time with nine seeds, and unknown with three."""
    own = reaches(None, 400, seeds=12) | reaches(400, 2000, seeds=9)
    v = verdict("adafed", "c67", figure5(own, reaches(900, seeds=12)))
    assert (v.word, len(v.comparisons), len(v.run)) == ("not run", 13, 12)


def test_a_run_that_stopped_early_may_have_kept_to_a_least_number_of_rounds():
    """Of ten others five are at 40 % in round 300, and the rest was stopped at 500: too early as often as not."""
    others = reaches(None, 500) | reaches(300, 500, seeds=5)
    first, *_ = compare("adafed", "c67", figure5({}, others))
    assert (first.mean, first.n, first.less) == (pytest.approx(0), 10, pytest.approx(638 / 1024))


# ---- AdaFed, c32 and c34: a gain that ends


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
    assert verdict("adafed", "c34", epochs(before, [31.0, 29.9, 29.9, 29.9, 29.9])).word == "holds"
    assert verdict("adafed", "c34", epochs(before, [32.0, 29.9, 29.9, 29.9, 29.9])).word == "fails"
    assert verdict("adafed", "c34", epochs(before, before, seeds=4)).word == "undecided"
    assert verdict("adafed", "c35", epochs(before, before)).word == "not run"  # that is setup 2


def test_a_gain_on_average_over_the_methods():
    """From one to ten epochs one method loses 0.2 points and four gain 0.3: 0.2 on average."""
    methods = ("fedavg", "qffl", "afl", "term", "adafed")

    def runs(*gains):
        values = {"cifar100_s1": [0.0] * 5, "cifar100_s1_e10": gains}
        return {
            (setup, m): {s: final(accuracy_mean=(30 + v + s / 10) / 100) for s in range(SEEDS)}
            for setup, of in values.items()
            for m, v in zip(methods, of, strict=True)
        }

    (found,) = compare("adafed", "c32", runs(0.3, 0.3, 0.3, 0.3, -0.2))
    assert found.mean == pytest.approx(0.2)
    assert verdict("adafed", "c32", runs(0.3, 0.3, 0.3, 0.3, -0.2)).word == "holds"
    assert verdict("adafed", "c32", runs(0.3, 0.3, 0.3, 0.3, -2.0)).word == "fails"
    assert verdict("adafed", "c33", runs(1, 1, 1, 1, 1)).word == "not run"  # that is setup 2


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

    assert verdict("adafed", "c36", runs(SEEDS)).word == word
    assert verdict("adafed", "c36", runs(4)).word == "undecided"


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
    assert v.word == "holds"
    found = compare("adafed", "c48", gammas(means, stds))
    assert len(found) == 11
    assert found[0].greater == pytest.approx(4 / 1024)
    assert verdict("adafed", "c48", gammas((50, 51, 52, 53, 54, 55), stds)).word == "fails"  # the end is best
    assert verdict("adafed", "c48", gammas(means, stds, seeds=6)).word == "undecided"  # 4 / 64


# ---- AdaFed, c62: somewhere the most accurate


def everywhere(own, others, seeds=SEEDS, **at):
    """Mean accuracies in percent in every setup of Tables 1 to 4; ``at`` gives AdaFed another one in a setup."""
    tables = [papers()["adafed"].tables[f"table{t}"] for t in range(1, 5)]
    rows = [r for t in tables for r in t.rows]
    values = {(r.setup, r.algo): at.get(r.setup, own) if r.algo == "adafed" else others for r in rows}
    return {k: {s: final(accuracy_mean=(v + s) / 100) for s in range(seeds)} for k, v in values.items()}


def test_one_setup_is_enough():
    """Ahead of the other global methods in one of eight setups: 8 / 1024."""
    (found,) = compare("adafed", "c62", everywhere(50, 51, femnist_skewed=52))
    assert found.greater == pytest.approx(8 / 1024)
    assert verdict("adafed", "c62", everywhere(50, 51, femnist_skewed=52)).word == "holds"
    assert verdict("adafed", "c62", everywhere(50, 51)).word == "fails"
    assert verdict("adafed", "c62", everywhere(50, 51, seeds=7, femnist_skewed=52)).word == "undecided"  # 8 / 128


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
    assert verdict("adafed", "c66", lengths(0.2, 0.3, 0.1)).word == "holds"
    assert verdict("adafed", "c66", lengths(0.2, 0.1, 0.15)).word == "mixed"
    assert verdict("adafed", "c66", lengths(0.2, 0.3, 0.1, seeds=4)).word == "undecided"
    first, second = compare("adafed", "c66", lengths(0.2, 0.3, 0.1, seeds=1))
    # six points swing up and down five times: changes x, -x, x, -x, x have the variance x² (1 - 1/25)
    assert (first.mean, second.mean) == (pytest.approx(0.96 * 0.03), pytest.approx(0.96 * 0.08))

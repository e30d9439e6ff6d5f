"""AdaFed's claims with functions of their own: runs made up here, verdicts by hand (p of n signs alike: 2^-n)."""

import math

import pytest
from claim_runs import SEEDS, Run, compare, curve, final, losses, verdict
from units import unit

from fedbench.papers.registry import papers

# ---- AdaFed, c14: a lead as a ratio

RIVALS = ("fedavg", "qffl", "fedmgda", "term", "afl", "ditto")


def stds(skewed, original, seeds=SEEDS, **others):
    """Runs of Table 3: the STD of AdaFed and of the best rival, in percent; the other rivals are far behind."""
    runs = {}
    for setup, (own, best) in (("femnist_skewed", skewed), ("femnist_original", original)):
        values = {"adafed": own, **dict.fromkeys(RIVALS, 99.0), "term": best, **others}
        runs |= {
            (setup, m): {s: final(accuracy_std=v / 100) for s in range(seeds)}
            for m, v in values.items()
        }
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
    assert (
        verdict("adafed", "c16", two_clients((1.0, 0.8, 0.5), (3.0, 1.0, 0.6), seeds=4)).word
        == "undecided"
    )
    assert verdict("adafed", "c16", two_clients((1.0, 0.8, 0.5), (3.0, 2.8, 2.6))).word == "fails"


@pytest.mark.parametrize(
    ("low", "high", "word"), [(0.91, 1.0, "holds"), (0.89, 1.0, "fails"), (1.0, 0.91, "holds")]
)
def test_the_losses_end_within_a_tenth_of_the_larger_one(low, high, word):
    runs = two_clients((1.0, 0.95, low), (3.0, 2.0, high))
    assert verdict("adafed", "c65", runs).word == word
    first, _ = compare("adafed", "c65", runs)
    assert first.mean == pytest.approx(0.1 - abs(high - low))
    assert (
        verdict("adafed", "c65", two_clients((1.0, 0.95, low), (3.0, 2.0, high), seeds=4)).word
        == "undecided"
    )


def test_two_clients_need_a_course():
    """Where only the last round's clients were kept, nothing can be said."""
    v = verdict("adafed", "c16", two_clients((1.0,), (3.0,), rounds=(9,)))
    assert (v.word, len(v.comparisons)) == ("not run", 2)


# ---- AdaFed, c18 and c67: rounds to 40 %

OTHERS = ("fedavg", "qffl", "fedmgda", "fedfa", "term", "ditto")


def reaches(at, last=2000, seeds=SEEDS):
    """A curve evaluated every 10 rounds that is at 40 % from a round on; None: never."""
    values = [0.4 if at is not None and r >= at else 0.3 for r in range(0, last + 1, 10)]
    return {s: curve(values) for s in range(seeds)}


def figure5(adafed, others):
    return {("cifar10_s1", "adafed"): adafed} | {("cifar10_s1", m): others for m in OTHERS}


@pytest.mark.parametrize(
    ("own", "others", "word"),
    [
        (1500, 1510, "holds"),
        (100, None, "holds"),
        (110, 100, "fails"),
        (None, 900, "fails"),
        (400, 400, "undecided"),
    ],
)
def test_fewer_rounds_than_each_other_method(own, others, word):
    assert verdict("adafed", "c18", figure5(reaches(own), reaches(others))).word == word


def test_a_run_that_ends_below_the_target_needs_a_round_more_than_it_has():
    first, *_ = compare("adafed", "c18", figure5(reaches(400, 500), reaches(None, 500)))
    assert first.mean == 101  # 501 - 400
    first, *_ = compare("adafed", "c18", figure5(reaches(None, 500), reaches(400, 500)))
    assert first.mean == -101


def test_runs_of_different_lengths_are_not_compared():
    """The shorter one may have got to 40 % before AdaFed."""
    runs = figure5(reaches(400, 500), reaches(None, 300))
    first, *_ = compare("adafed", "c18", runs, fedavg={"cuts": (("rounds", "300"),)})
    assert (first.mean, first.uneven) == (None, True)


def test_where_neither_gets_there_the_claim_is_undecided():
    """Seeds with which neither of the two gets to 40 % are left out unless there are no others."""
    v = verdict("adafed", "c18", figure5(reaches(None), reaches(None)))
    assert (v.word, len(v.run), v.count("open")) == ("undecided", 6, 6)
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
    assert [c.mean for c in found] == pytest.approx([110] * 6 + [30])
    assert found[0].label == "rounds of FedAvg to 40 % from 810 to 990"
    assert [part.mean for part in found[-1].parts] == pytest.approx([30, 50])


def test_a_run_that_diverged_is_outside_at_both_ends():
    """By the widest room of the nine others: (9 * 30 - 30) / 10 and (9 * 50 - 50) / 10."""
    lost = {"others": ((unit(9), "diverged"),)}
    own = compare("adafed", "c67", figure5(reaches(390, seeds=9), reaches(900)), adafed=lost)[-1]
    assert (own.n, [part.mean for part in own.parts]) == (10, pytest.approx([24, 40]))


@pytest.mark.parametrize(
    ("own", "last", "mean"),
    [(None, 300, None), (None, 430, None), (None, 440, -math.inf), (100, 300, -260)],
)
def test_a_run_that_stopped_before_the_band_ends_says_nothing(own, last, mean):
    """It may still reach the accuracy by round 440; one that has reached it is in time."""
    found = compare("adafed", "c67", figure5(reaches(own, last), {}))[-1]
    assert found.mean == (None if mean is None else pytest.approx(mean))


def test_seeds_that_stopped_too_early_are_left_out():
    own = reaches(None, 400, seeds=12) | reaches(390, seeds=9)
    assert compare("adafed", "c67", figure5(own, {}))[-1].n == 9


def test_a_run_that_is_below_the_target_after_the_band_is_outside():
    """By the widest room of the nine others: (9 * 30 - 30) / 10 and (9 * 50 - 50) / 10."""
    own = compare("adafed", "c67", figure5(reaches(None) | reaches(390, seeds=9), {}))[-1]
    assert (own.n, [part.mean for part in own.parts]) == (10, pytest.approx([24, 40]))


# ---- AdaFed, c32: a gain that ends


def epochs(gains, more, seeds=SEEDS):
    """Mean accuracies in both setups: 30 % with one epoch, and what the five methods gain with ten and then twenty."""
    methods = ("fedavg", "qffl", "afl", "term", "adafed")
    runs = {}
    for setup in ("cifar100_s1", "cifar100_s2"):
        for m, ten, twenty in zip(methods, gains, more, strict=True):
            for name, v in (
                (setup, 30),
                (f"{setup}_e10", 30 + ten),
                (f"{setup}_e20", 30 + ten + twenty),
            ):
                runs[name, m] = {s: final(accuracy_mean=(v + s / 10) / 100) for s in range(seeds)}
    return runs


def test_a_gain_on_average_over_the_methods_that_ends():
    """One method loses 0.2 points and four gain 0.3, 0.2 on average; then one gains 1 and four lose 0.1, 0.12."""
    rise, stay = (0.3, 0.3, 0.3, 0.3, -0.2), (1.0, -0.1, -0.1, -0.1, -0.1)
    assert [c.mean for c in compare("adafed", "c32", epochs(rise, stay))] == pytest.approx(
        [0.2, 0.2, 0.08, 0.08]
    )
    assert verdict("adafed", "c32", epochs(rise, stay)).word == "holds"
    assert verdict("adafed", "c32", epochs((0.3, 0.3, 0.3, 0.3, -2.0), stay)).word == "mixed"
    # 0.32
    assert verdict("adafed", "c32", epochs(rise, (2.0, -0.1, -0.1, -0.1, -0.1))).word == "mixed"
    assert verdict("adafed", "c32", epochs(rise, stay, seeds=4)).word == "undecided"


# ---- AdaFed, c36: about 2.2 points


@pytest.mark.parametrize(
    ("gap", "word"),
    [
        (2.2, "holds"),
        (1.3, "holds"),
        (3.1, "holds"),
        (1.1, "fails"),
        (3.3, "fails"),
        (-2.2, "fails"),
    ],
)
def test_about_two_points_below(gap, word):
    def runs(seeds):
        values = {"fedcorr": 72.0, "adafed": 72.0 - gap}
        return {
            ("clothing1m", m): {s: final(accuracy_mean=(v + s) / 100) for s in range(seeds)}
            for m, v in values.items()
        }

    assert verdict("adafed", "c36", runs(SEEDS)).word == word
    assert verdict("adafed", "c36", runs(4)).word == "undecided"


# ---- AdaFed, c12: no cost, and somewhere the most accurate


def everywhere(own, others, seeds=SEEDS, **at):
    """Mean accuracies in percent in every setup of Tables 1 to 4; ``at`` gives AdaFed another one in a setup."""
    tables = [papers()["adafed"].tables[f"table{t}"] for t in range(1, 5)]
    rows = [r for t in tables for r in t.rows]
    values = {
        (r.setup, r.algo): at.get(r.setup, own) if r.algo == "adafed" else others for r in rows
    }
    return {
        k: {s: final(accuracy_mean=(v + s) / 100) for s in range(seeds)} for k, v in values.items()
    }


def test_one_setup_is_enough():
    """Half a point behind, and ahead of the others in one of eight setups: 8 / 1024."""
    *close, best = compare("adafed", "c12", everywhere(50.5, 51, femnist_skewed=52))
    assert len(close) == 46  # six others in eight setups, without Ditto on FEMNIST
    assert best.greater == pytest.approx(8 / 1024)
    assert verdict("adafed", "c12", everywhere(50.5, 51, femnist_skewed=52)).word == "holds"
    assert verdict("adafed", "c12", everywhere(50.5, 51)).word == "mixed"
    assert verdict("adafed", "c12", everywhere(49.5, 51)).word == "fails"
    # 8 / 128
    assert (
        verdict("adafed", "c12", everywhere(50.5, 51, seeds=7, femnist_skewed=52)).word
        == "undecided"
    )


# ---- AdaFed, c66: the smoothest of three


def lengths(sgd, several, single, seeds=SEEDS):
    """Lengths of the direction that swing by a share of the first one, which differs between the three cases."""
    return {
        ("cifar10_s1", "adafed", key): {
            s: curve(
                [first * (1 + swing * (i % 2) * (1 + s / 100)) for i in range(6)], "update_norm"
            )
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
    # six points swing up and down five times: changes x, -x, x, -x, x have the variance x² (1 -
    # 1/25)
    assert (first.mean, second.mean) == (pytest.approx(0.96 * 0.03), pytest.approx(0.96 * 0.08))

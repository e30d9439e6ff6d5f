"""AdaFed's claims with functions of their own: runs made up here, verdicts by hand (p of n signs
alike: 2^-n).
"""

import math
from functools import partial

import claim_runs
import pytest
from claim_runs import SEEDS, Run, curve, finals, losses

from fedbench.analysis.claims.comparison import RATIO
from fedbench.papers.registry import papers

word = partial(claim_runs.word, "adafed")
compare = partial(claim_runs.compare, "adafed")


# ---- c14: a lead as a ratio


def stds(skewed, original):
    """Runs of Table 3: the STD of AdaFed and of the best rival, in percent; the other rivals are
    far behind.
    """
    runs = {}
    for setup, (own, best) in (("femnist_skewed", skewed), ("femnist_original", original)):
        values = dict.fromkeys(("fedavg", "qffl", "fedmgda", "afl", "ditto"), 99.0)
        values |= {"adafed": own, "term": best}
        for algo, value in values.items():
            runs[setup, algo] = finals(accuracy_std=value / 100)
    return runs


def test_a_lead_is_that_over_the_best_of_the_others():
    """2 against 8 is four times, 2 against 4 twice: ahead by 2."""
    (c,) = compare("c14", stds((2, 8), (2, 4)))
    assert c.mean == pytest.approx(2)
    assert c.n == 10
    assert c.label.startswith("lead of AdaFed over the best other in STD %, as a ratio, on ")
    assert word("c14", stds((2, 8), (2, 4))) == "holds"
    assert word("c14", stds((2, 4), (2, 8))) == "fails"


def test_a_lead_takes_only_seeds_with_every_rival():
    """The best of the others may be the one that is missing."""
    runs = stds((2, 8), (2, 4))
    del runs["femnist_skewed", "fedavg"][9]
    (c,) = compare("c14", runs)
    assert c.n == 9
    del runs["femnist_original", "afl"]
    assert word("c14", runs) == "not run"


# ---- c16 and c65: two clients


def two_clients(low, high, **rounds):
    run = Run(clients=losses(low, high, **rounds))
    runs = dict.fromkeys(range(SEEDS), run)
    return {("cifar10_s1", "adafed"): runs, ("cifar100_s1", "adafed"): runs}


def test_the_higher_loss_falls_by_more():
    """It falls by 2.4, the lower one by 0.5."""
    runs = two_clients((1.0, 0.8, 0.5), (3.0, 1.0, 0.6))
    first, second = compare("c16", runs)
    assert first.mean == pytest.approx(1.9)
    assert second.mean == pytest.approx(1.9)
    assert word("c16", runs) == "holds"
    falls_by_less = (3.0, 2.8, 2.6)
    assert word("c16", two_clients((1.0, 0.8, 0.5), falls_by_less)) == "fails"


@pytest.mark.parametrize(
    ("low", "high", "kind"),
    [
        (0.91, 1.0, "holds"),
        (0.89, 1.0, "fails"),
        (1.0, 0.91, "holds"),
    ],
)
def test_the_losses_end_within_a_tenth_of_the_larger_one(low, high, kind):
    runs = two_clients((1.0, 0.95, low), (3.0, 2.0, high))
    assert word("c65", runs) == kind
    first, _ = compare("c65", runs)
    assert first.mean == pytest.approx(0.1 - abs(high - low))


def test_two_clients_need_a_course():
    """Where only the last round's clients were kept, nothing can be said."""
    runs = two_clients((1.0,), (3.0,), rounds=(9,))
    assert word("c16", runs) == "not run"


# ---- c18 and c67: rounds to 40 %


def reaches(at, last=2000, seeds=SEEDS):
    """A curve evaluated every 10 rounds that is at 40 % from a round on; None: never."""
    start = math.inf if at is None else at
    rounds = range(0, last + 1, 10)
    values = [0.4 if round >= start else 0.3 for round in rounds]
    return dict.fromkeys(range(seeds), curve(values))


def figure5(adafed, others):
    rivals = ("fedavg", "qffl", "fedmgda", "fedfa", "term", "ditto")
    runs = {("cifar10_s1", algo): others for algo in rivals}
    return runs | {("cifar10_s1", "adafed"): adafed}


@pytest.mark.parametrize(
    ("own", "others", "kind"),
    [
        (1500, 1510, "holds"),
        (100, None, "holds"),
        (110, 100, "fails"),
        (None, 900, "fails"),
        (None, None, "undecided"),
    ],
)
def test_fewer_rounds_than_each_other_method(own, others, kind):
    assert word("c18", figure5(reaches(own), reaches(others))) == kind


def test_a_run_that_ends_below_the_target_needs_a_round_more_than_it_has():
    gets_there = reaches(400, last=500)
    ends_below = reaches(None, last=500)
    factor = (1 + 501) / (1 + 400)
    first, *_ = compare("c18", figure5(gets_there, ends_below))
    assert first.mean == pytest.approx(math.log(factor))
    assert first.unit == RATIO
    first, *_ = compare("c18", figure5(ends_below, gets_there))
    assert first.mean == pytest.approx(-math.log(factor))


def test_seeds_with_which_neither_gets_there_are_left_out():
    own = reaches(None) | reaches(400, seeds=5)
    first, *_ = compare("c18", figure5(own, reaches(None)))
    assert first.mean == pytest.approx(math.log(2002 / 401))
    assert first.n == 5


@pytest.mark.parametrize(
    ("own", "others", "kind"),
    [
        (430, 820, "holds"),
        (100, None, "holds"),  # faster than printed, and others slower
        (450, 900, "mixed"),
        (400, 800, "mixed"),
    ],
)
def test_rounds_to_a_target_with_a_tenth_of_slack(own, others, kind):
    """AdaFed in at most 440 rounds, the others in at least 810."""
    assert word("c67", figure5(reaches(own), reaches(others))) == kind


def test_how_far_from_the_bounds():
    *others, own = compare("c67", figure5(reaches(390), reaches(920)))
    assert [c.mean for c in others] == [920 - 810] * 6
    assert others[0].label == "rounds of FedAvg to 40 % above 810"
    assert own.mean == 440 - 390


# ---- c68: no rise at the end


@pytest.mark.parametrize(
    ("rise", "kind"),
    [(0.009, "holds"), (-0.1, "holds"), (0.011, "fails")],
)
def test_the_last_tenth_is_less_than_a_point_above_the_one_before(rise, kind):
    """Of 40 rounds the last four are compared with the four before; earlier ones do not matter."""
    values = [0.1] * 32 + [0.4] * 4 + [0.4 + rise] * 4
    run = dict.fromkeys(range(SEEDS), curve(values))
    assert word("c68", figure5(run, run)) == kind


# ---- c32: a gain that ends


def epochs(gains, more):
    """Mean accuracies in both setups: 30 % with one epoch, and what the five methods gain with ten
    and then twenty.
    """
    methods = ("fedavg", "qffl", "afl", "term", "adafed")
    runs = {}
    for algo, ten, twenty in zip(methods, gains, more, strict=True):
        for setup in ("cifar100_s1", "cifar100_s2"):
            runs[setup, algo] = finals(accuracy_mean=0.3)
            runs[f"{setup}_e10", algo] = finals(accuracy_mean=(30 + ten) / 100)
            runs[f"{setup}_e20", algo] = finals(accuracy_mean=(30 + ten + twenty) / 100)
    return runs


RISE = (0.3, 0.3, 0.3, 0.3, -0.2)
STAY = (1.0, -0.1, -0.1, -0.1, -0.1)


def test_a_gain_on_average_over_the_methods_that_ends():
    """One method loses 0.2 points and four gain 0.3, 0.2 on average; then one gains 1 and four lose
    0.1, 0.12.
    """
    found = compare("c32", epochs(RISE, STAY))
    assert [c.mean for c in found] == pytest.approx([0.2, 0.2, 0.08, 0.08])


@pytest.mark.parametrize(
    ("gains", "more", "kind"),
    [
        (RISE, STAY, "holds"),
        ((0.3, 0.3, 0.3, 0.3, -2.0), STAY, "mixed"),
        (RISE, (2.0, -0.1, -0.1, -0.1, -0.1), "mixed"),  # 0.32
    ],
)
def test_verdicts_on_a_gain_that_ends(gains, more, kind):
    assert word("c32", epochs(gains, more)) == kind


# ---- c36: about 2.2 points


@pytest.mark.parametrize(
    ("gap", "kind"),
    [
        (1.3, "holds"),
        (3.1, "holds"),
        (3.3, "fails"),
        (-2.2, "fails"),
    ],
)
def test_about_two_points_below(gap, kind):
    runs = {
        ("clothing1m", "fedcorr"): finals(0.01, accuracy_mean=0.72),
        ("clothing1m", "adafed"): finals(0.01, accuracy_mean=0.72 - gap / 100),
    }
    assert word("c36", runs) == kind


# ---- c12: no cost, and somewhere the most accurate


def everywhere(own, others, **more_accurate):
    """Mean accuracies in percent in every setup of Tables 1 to 4; AdaFed has others in some."""
    runs = {}
    for number in range(1, 5):
        for row in papers()["adafed"].tables[f"table{number}"].rows:
            accuracy = others
            if row.algo == "adafed":
                accuracy = more_accurate.get(row.setup, own)
            runs[row.setup, row.algo] = finals(0.01, accuracy_mean=accuracy / 100)
    return runs


def test_one_setup_is_enough():
    """Half a point behind, and ahead of the others in one of eight setups: 8 / 1024."""
    runs = everywhere(50.5, 51, femnist_skewed=52)
    *close, best = compare("c12", runs)
    assert len(close) == 46  # six others in eight setups, without Ditto on FEMNIST
    assert best.greater == pytest.approx(8 / 1024)
    assert word("c12", runs) == "holds"
    assert word("c12", everywhere(50.5, 51)) == "mixed"
    assert word("c12", everywhere(49.5, 51)) == "fails"


# ---- c66: the smoothest of three


def lengths(sgd, several, single):
    """Lengths of the direction that swing by a share of the first one, which differs between the
    three cases.
    """
    runs = {}
    cases = (
        (None, 1.0, sgd),
        (5, 10.0, several),
        ("full", 100.0, single),
    )
    for key, first, swing in cases:
        values = [first, first * (1 + swing)] * 3
        found = dict.fromkeys(range(SEEDS), curve(values, "update_norm"))
        runs["cifar10_s1", "adafed", key] = found
    return runs


def test_full_gradients_are_smoothest_whatever_their_length():
    """A swing of a tenth at length 100 is smoother than one of two tenths at length 1.

    Six points swing up and down five times: changes x, -x, x, -x, x have the variance x² (1 -
    1/25).
    """
    first, second = compare("c66", lengths(0.2, 0.3, 0.1))
    assert first.mean == pytest.approx(0.96 * (0.2**2 - 0.1**2))
    assert second.mean == pytest.approx(0.96 * (0.3**2 - 0.1**2))
    assert word("c66", lengths(0.2, 0.3, 0.1)) == "holds"
    assert word("c66", lengths(0.2, 0.1, 0.15)) == "mixed"

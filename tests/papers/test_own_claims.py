"""The claims with functions of their own: runs made up here, verdicts by hand (p of n signs alike: 2^-n)."""

import math

import pytest
from claim_runs import SEEDS, Run, compare, curve, every_seed, final, verdict
from units import unit

from fedbench.papers.claims import functions


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


# ---- AdaFed, c16: two clients


def losses(*clients, rounds=(0, 5, 9)):
    return [{"round": t, "client": k, "train_loss": v[i]} for k, v in enumerate(clients) for i, t in enumerate(rounds)]


def two_clients(low, high, **more):
    return {("cifar10_s1", "adafed"): {s: Run(clients=losses(low, high, **more)) for s in range(SEEDS)}}


def test_two_clients_by_hand():
    """The high one falls by 2.4, the low one by 0.5; the gap shrinks from 2 to 0.1, below half of 2."""
    drop, close, *other = compare("adafed", "c16", two_clients((1.0, 0.8, 0.5), (3.0, 1.0, 0.6)))
    assert (drop.mean, close.mean) == (pytest.approx(1.9), pytest.approx(0.9))
    assert [c.n for c in other] == [0, 0]  # CIFAR-100
    drop, close, *_ = compare("adafed", "c16", two_clients((1.0, 0.8, 0.5), (3.0, 2.5, 2.4)))
    assert (drop.mean, close.mean) == (pytest.approx(0.1), pytest.approx(-0.9))  # faster, but 1.9 apart in the end
    assert verdict("adafed", "c16", two_clients((1.0, 0.8, 0.5), (3.0, 2.5, 2.4))).verdict == "fails"


def test_two_clients_need_a_course():
    """Where only the last round's clients were kept, nothing can be said."""
    v = verdict("adafed", "c16", two_clients((1.0,), (3.0,), rounds=(9,)))
    assert (v.verdict, v.evidence) == ("not run", "0 of 4 comparisons have been run")


# ---- AdaFed, c18: rounds to 40 %

SIX = ("fedavg", "qffl", "fedmgda", "fedfa", "term", "ditto")


def reaches(at, last=2000):
    """A curve evaluated every 10 rounds that is at 40 % from a round on; None: never."""
    values = [0.4 if at is not None and r >= at else 0.3 for r in range(0, last + 1, 10)]
    return {s: curve(values) for s in range(SEEDS)}


def figure5(adafed, others):
    return {("cifar10_s1", "adafed"): adafed} | {("cifar10_s1", m): others for m in SIX}


@pytest.mark.parametrize(
    ("own", "others", "word"),
    [
        (400, 900, "holds"), (430, 820, "holds"), (450, 900, "fails"), (400, 800, "fails"), (100, None, "holds"),
        (None, 900, "fails"),
    ],
)  # fmt: skip
def test_rounds_to_a_target_with_a_tenth_of_slack(own, others, word):
    """AdaFed within 440 rounds, the others not before 810."""
    assert verdict("adafed", "c18", figure5(reaches(own), reaches(others))).verdict == word


def test_how_far_from_the_bounds():
    first, *_, own = compare("adafed", "c18", figure5(reaches(400), reaches(900)))
    assert (own.mean, first.mean) == (pytest.approx(40), pytest.approx(90))
    assert own.label == "rounds of AdaFed to 40 % at most 440"
    assert first.label == "rounds of FedAvg to 40 % at least 810"


@pytest.mark.parametrize(
    ("own", "last", "mean"), [(None, 300, None), (None, 420, None), (None, 450, -10), (100, 300, 340)]
)
def test_a_run_that_stopped_before_the_bound_says_nothing(own, last, mean):
    """It may still reach the accuracy before round 440; one that has reached it is in time."""
    found = compare("adafed", "c18", figure5(reaches(own, last), {}))[-1]
    assert found.mean == (None if mean is None else pytest.approx(mean))


# ---- FedFa, c07 and c12


SYNTHETIC = ("synthetic_iid", "synthetic_0_0", "synthetic_05_05", "synthetic_1_1")


def swinging(heights):
    return {
        (s, "fedavg"): every_seed(lambda e, h=h: curve([e * h * (i % 2) for i in range(6)]))
        for s, h in zip(SYNTHETIC, heights, strict=True)
    }


def test_roughness_rises_from_setup_to_setup():
    v = verdict("fedfa", "c07", swinging((0.1, 0.2, 0.3, 0.4)))
    assert (v.verdict, v.evidence[:22]) == ("holds", "3 comparisons: 3 ahead")
    assert verdict("fedfa", "c07", swinging((0.4, 0.3, 0.2, 0.1))).verdict == "fails"
    assert verdict(
        "fedfa", "c07", swinging((0.1, 0.2, 0.3, 0.4)), fedavg={"others": ((unit(9), "diverged"),)}
    ).verdict == ("undecided")


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

"""Means that must be within a band: the numbers of public benchmarks, by hand."""

import pandas as pd
import pytest
from claim_runs import Run, verdict
from units import unit

from fedbench.analysis.curves import mean_between, rounds_to

CURVE = pd.Series([0.1, 0.5, 0.9, 0.8], index=[0, 50, 100, 150])


def run(accuracies, rounds=1000, whole=1000):
    """A run with an accuracy by round."""
    made = Run([{"round": at, "accuracy_mean_weighted": value} for at, value in accuracies.items()])
    made.config, made.meta = (
        {"rounds": rounds},
        {"departures": {} if rounds == whole else {"rounds": [whole, rounds]}},
    )
    return made


def of_seeds(curves, **more):
    return {seed: run(c, **more) for seed, c in enumerate(curves)}


def test_numbers_of_a_curve():
    assert (rounds_to(CURVE, 0.8, lower=False), rounds_to(CURVE, 0.95, lower=False)) == (
        100,
        float("inf"),
    )
    assert rounds_to(CURVE, 0.1, lower=True) == 0
    assert mean_between(CURVE, 100, 150, 1.0) == pytest.approx(0.85)
    assert mean_between(CURVE, 200, 300, 0.5) == pytest.approx(0.85)  # of a run of half the length
    assert mean_between(CURVE, 10, 20, 1.0) is None


BAND = ("known", "c01")  # the accuracy after 100 rounds is from 76 to 86 %


def at(accuracy, seeds):
    return {("mnist_power_law", "fedavg"): of_seeds([{0: 0.1, 100: accuracy}] * seeds)}


@pytest.mark.parametrize(
    ("accuracy", "word", "p", "ends"),
    [
        (0.81, "holds", (1 / 1024, 1.0), (5, 5)),
        (0.70, "fails", (1.0, 2 / 1024), (-6, 16)),  # on the right side of one end, and yet refuted
        (0.88, "fails", (1.0, 2 / 1024), (12, -2)),
        (0.76, "undecided", (1.0, 1.0), (0, 10)),  # the end itself is not within
    ],
)
def test_two_one_sided_tests(accuracy, word, p, ends):
    """Both ends must be shown: the larger p counts for, and twice the smaller one against."""
    found = verdict(*BAND, at(accuracy, 10))
    (c,) = found.comparisons
    assert (found.word, c.for_p, c.against_p) == (word, *p)
    assert [part.mean for part in c.parts] == pytest.approx(ends)
    assert c.label == "accuracy % after 100 rounds of FedAvg from 76 to 86"


@pytest.mark.parametrize(("seeds", "word", "lacking"), [
    (4, "undecided", ("hold", 5)), (5, "holds", ("fail", 6)), (6, "holds", None),
])  # fmt: skip
def test_seeds_that_a_band_takes(seeds, word, lacking):
    """1 / 32 shows both ends; one of them is refuted at 2 / 64, and not at 2 / 32."""
    found = verdict(*BAND, at(0.81, seeds))
    assert (found.word, found.lacking and found.lacking[::2]) == (word, lacking)
    assert verdict(*BAND, at(0.7, seeds)).word == ("fails" if seeds == 6 else "undecided")
    assert verdict(*BAND, {}).word == "not run"


@pytest.mark.parametrize(
    ("other", "rounds", "n", "p"),
    [
        ({80: 0.98}, 1000, 6, 1 / 64),
        (
            {600: 0.98},
            1000,
            6,
            32 / 64,
        ),  # 426 above the upper end, five are 94 below; 1 + 31 signs reach the 44
        # never gets there: outside by as much as the others are within
        ({400: 0.9}, 1000, 6, 7 / 64),
        ({100: 0.9}, 100, 5, 1 / 32),  # not in 100 rounds, but perhaps in 174
    ],
)
def test_a_number_of_rounds(other, rounds, n, p):
    """With ten clients a round, one row of five, the band is from 43.5 to 174 rounds. Five seeds take 80."""
    runs = {0: run(other, rounds), **{s: run({40: 0.5, 80: 0.97}) for s in range(1, 6)}}
    one, c, *more = verdict("known", "c02", {("mcmahan_iid", "fedavg", 10): runs}).comparisons
    assert (c.n, c.greater) == (n, p)
    assert c.label == "rounds to 97 % of FedAvg participation=10 from 43.5 to 174"
    assert [row.n for row in (one, *more)] == [0, 0, 0, 0]


def test_where_no_seed_gets_there_the_band_is_refuted():
    runs = of_seeds([{400: 0.9}] * 6)
    found = verdict("known", "c04", {("mcmahan_iid_epochs5", "fedavg"): runs})
    assert (found.word, found.comparisons[0].less) == ("fails", 2 / 64)
    assert found.comparisons[0].against_p == 1 / 64  # both ends turn with the same signs


def test_a_seed_that_diverged_is_outside_and_one_without_the_number_is_left_out():
    runs = of_seeds([{50: 0.99}] * 6)
    assert verdict("known", "c06", {("niid_iid", "fedavg"): runs}).word == "holds"
    del runs[2]
    lost = {"others": ((unit(2), "diverged"),)}
    (c,) = verdict("known", "c06", {("niid_iid", "fedavg"): runs}, niid_iid=lost).comparisons
    assert (c.n, c.greater) == (6, 7 / 64)  # five of six of one size: one or no sign turned
    runs[2] = Run([{"round": 50, "accuracy_mean": 0.99}])
    runs[2].config, runs[2].meta = {"rounds": 1000}, {"departures": {}}
    (c,) = verdict("known", "c06", {("niid_iid", "fedavg"): runs}).comparisons
    assert (c.n, c.greater) == (5, 1 / 32)


def test_a_lead_over_another_method_seed_by_seed():
    """Four seeds lead by one point, one is behind by three."""
    values = {"fedavg": [0.5] * 5, "fedadam": [0.51] * 4 + [0.47]}
    runs = {
        ("reddi_shakespeare", algo): of_seeds([{1150: x} for x in v]) for algo, v in values.items()
    }
    (c,) = verdict("known", "c12", runs).comparisons
    assert (c.mean, c.n) == (pytest.approx(0.2), 5)
    assert verdict("known", "c13", runs).word == "not run"

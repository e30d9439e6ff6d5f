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
    made.config, made.meta = {"rounds": rounds}, {"departures": {} if rounds == whole else {"rounds": [whole, rounds]}}
    return made


def of_seeds(curves, **more):
    return {seed: run(c, **more) for seed, c in enumerate(curves)}


def test_numbers_of_a_curve():
    assert (rounds_to(CURVE, 0.8, lower=False), rounds_to(CURVE, 0.95, lower=False)) == (100, float("inf"))
    assert rounds_to(CURVE, 0.1, lower=True) == 0
    assert mean_between(CURVE, 100, 150, 1.0) == pytest.approx(0.85)
    assert mean_between(CURVE, 200, 300, 0.5) == pytest.approx(0.85)  # of a run of half the length
    assert mean_between(CURVE, 10, 20, 1.0) is None


@pytest.mark.parametrize(
    ("accuracies", "word", "reason"),
    [
        ([0.81] * 20, "holds", "mean 81 over 20 of 20 seeds"),
        ([0.7] * 20, "fails", "outside 76 to 86"),
        ([0.81] * 19, "partly measured", "19 of 20"),
        ([], "not run", "none of 20 seeds"),
    ],
)
def test_a_mean_has_a_verdict_once_all_seeds_have_run(accuracies, word, reason):
    found = verdict("known", "c01", {("mnist_power_law", "fedavg"): of_seeds([{0: 0.1, 100: a} for a in accuracies])})
    assert (found.verdict, reason in found.evidence) == (word, True), found.evidence


@pytest.mark.parametrize(
    ("first", "rounds", "word"),
    [
        ({100: 0.98}, 1000, "holds"),  # (100 + 4 * 80) / 5 = 84
        ({600: 0.98}, 1000, "fails"),  # 184
        ({400: 0.9}, 1000, "fails"),  # never gets there; the band ends at 174
        ({100: 0.9}, 100, "partly measured"),  # not in 100 rounds, but perhaps in 174
    ],
)
def test_a_number_of_rounds(first, rounds, word):
    runs = {0: run(first, rounds), **{s: run({40: 0.5, 80: 0.97}) for s in range(1, 5)}}
    assert verdict("known", "c02", {("mcmahan_iid", "fedavg"): runs}).verdict == word


def test_a_seed_that_diverged_is_outside():
    runs = of_seeds([{50: 0.99}] * 3)
    assert verdict("known", "c06", {("niid_iid", "fedavg"): runs}).verdict == "holds"
    del runs[2]
    lost = {"others": ((unit(2), "diverged"),)}
    assert verdict("known", "c06", {("niid_iid", "fedavg"): runs}, niid_iid=lost).verdict == "fails"


def test_a_lead_over_another_method_seed_by_seed():
    """Four seeds lead by one point, one is behind by three."""
    values = {"fedavg": [0.5] * 5, "fedadam": [0.51] * 4 + [0.47]}
    runs = {("reddi_shakespeare", algo): of_seeds([{1150: x} for x in v]) for algo, v in values.items()}
    assert verdict("known", "c12", runs).evidence.startswith("mean 0.2 over 5 of 5 seeds")
    assert verdict("known", "c13", runs).verdict == "not run"

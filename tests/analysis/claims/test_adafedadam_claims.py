"""AdaFedAdam's claims with functions of their own: runs made up here, verdicts by hand."""

from functools import partial

import claim_runs
import pytest
from claim_runs import finals

word = partial(claim_runs.word, "adafedadam")
compare = partial(claim_runs.compare, "adafedadam")

ALPHAS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)


# ---- c15, c16, c17, c24: the error over alpha


def front(points, **others):
    """Runs by alpha and of other methods, from their mean errors and relative spreads."""
    errors = {("synthetic", "adafedadam", alpha): point for alpha, point in points.items()}
    errors |= {("synthetic", algo): point for algo, point in others.items()}
    runs = {}
    for key, (mean, spread) in errors.items():
        runs[key] = finals(
            accuracy_mean_weighted=1 - mean,
            accuracy_std_weighted=spread * mean,
        )
    return runs


@pytest.mark.parametrize(
    ("at_four", "kind"),
    [
        ((0.11, 0.6), "holds"),  # the spread falls, the error rises by 1 point
        ((0.125, 0.6), "mixed"),  # by 2.5 points
        ((0.11, 0.95), "mixed"),  # the spread rises
        ((0.09, 0.6), "mixed"),  # the error falls
        ((0.1, 0.6), "undecided"),  # the error stays
    ],
)
def test_fairness_at_a_slight_cost(at_four, kind):
    assert word("c15", front({1.0: (0.1, 0.9), 4.0: at_four})) == kind


@pytest.mark.parametrize(
    ("other", "kind"),
    [
        ({}, "holds"),
        ({3.0: (0.1, 0.95)}, "mixed"),
        ({2.0: (0.13, 0.8)}, "mixed"),
        ({8.0: (0.5, 2.0)}, "holds"),  # 8 is not asked for
    ],
)
def test_every_alpha_from_1_to_4_against_none(other, kind):
    fair = {alpha: (0.1 + alpha / 1000, 0.9 - alpha / 10) for alpha in ALPHAS}
    assert word("c16", front(fair | other)) == kind


BASELINES = {
    "fedavg": (0.2, 0.2),
    "fedadam": (0.8, 0.9),
    "fednova": (0.8, 0.9),
    "qfedavg": (0.8, 0.9),
}


@pytest.mark.parametrize(
    ("better", "kind"),
    [
        ({1.0: (0.1, 0.1)}, "holds"),
        ({1.0: (0.1, 0.4), 2.0: (0.4, 0.1)}, "mixed"),  # no single one is below FedAvg in both
    ],
)
def test_dominance_needs_one_point_that_is_better_in_both(better, kind):
    level = dict.fromkeys(ALPHAS, (0.3, 0.3))
    assert word("c17", front(level | better, **BASELINES)) == kind


@pytest.mark.parametrize(
    ("at_eight", "kind"),
    [
        ((0.3, 0.5), "holds"),  # from 0.9 by 0.3 to 0.6, then by 0.1: a third of it
        ((0.3, 0.6), "holds"),  # not at all
        ((0.3, 0.4), "mixed"),  # by 0.2: two thirds
        ((0.1, 0.5), "mixed"),  # the error falls
        ((0.2, 0.5), "undecided"),  # the error stays
    ],
)
def test_little_is_gained_beyond_alpha_4(at_eight, kind):
    points = {1.0: (0.1, 0.9), 4.0: (0.2, 0.6), 8.0: at_eight}
    assert word("c24", front(points)) == kind


# ---- c25: fairness over alpha


@pytest.mark.parametrize(
    ("stds", "worst", "kind"),
    [
        ((0.3, 0.2, 0.1), (0.4, 0.5, 0.6), "holds"),
        ((0.3, 0.1, 0.2), (0.4, 0.5, 0.6), "mixed"),  # the STD rises from 1 to 4
        ((0.3, 0.2, 0.1), (0.4, 0.6, 0.5), "mixed"),  # the worst 30 % falls from 1 to 4
        ((0.3, 0.2, 0.1), (0.4, 0.5, 0.5), "undecided"),  # the worst 30 % stays
    ],
)
def test_fairer_with_every_step_of_alpha(stds, worst, kind):
    """At alpha 0, 1 and 4."""
    runs = {}
    alphas = (0.0, 1.0, 4.0)
    for alpha, std, least in zip(alphas, stds, worst, strict=True):
        runs["synthetic", "adafedadam", alpha] = finals(
            accuracy_std_weighted=std,
            accuracy_worst30_weighted=least,
        )
    assert word("c25", runs) == kind


# ---- c23: stable without tuning

SETUPS = {
    "femnist": 80,
    "cifar10_dir005": 60,
    "sent140": 70,
    "synthetic": 90,
}
FAR = {
    "fedavg": {"femnist": 6},
    "fedadam": {"sent140": 6},
    "fednova": {"synthetic": 7},
    "qfedavg": {"femnist": 20},
}


def behind(lags):
    """Mean accuracies of AdaFedAdam, and of baselines that are behind it in some sets."""
    runs = {}
    for setup, accuracy in SETUPS.items():
        for algo, by_setup in {"adafedadam": {}, **lags}.items():
            lag = by_setup.get(setup, 0)
            runs[setup, algo] = finals(accuracy_mean_weighted=(accuracy - lag) / 100)
    return runs


def test_each_baseline_is_far_behind_somewhere():
    assert len(compare("c23", behind(FAR))) == 4
    assert word("c23", behind(FAR)) == "holds"
    never_by_five = dict.fromkeys(SETUPS, 4.0)
    assert word("c23", behind(FAR | {"fedavg": never_by_five})) == "mixed"

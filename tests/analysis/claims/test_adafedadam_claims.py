"""AdaFedAdam's claims with functions of their own: runs made up here, verdicts by hand."""

import pytest
from claim_runs import compare, every_seed, final, verdict

ALPHAS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)


# ---- c15, c16, c17, c24: the error over alpha


def point(mean, spread):
    """A run's error and relative spread, which are derived from accuracies: error 1 - mean, spread std / error."""
    return every_seed(
        lambda e: final(
            accuracy_mean_weighted=1 - e * mean, accuracy_std_weighted=e * spread * e * mean
        )
    )


def front(points, **others):
    runs = {("synthetic", "adafedadam", a): point(*v) for a, v in points.items()}
    return runs | {("synthetic", m): point(*v) for m, v in others.items()}


@pytest.mark.parametrize(
    ("at_four", "word"),
    [
        ((0.11, 0.6), "holds"),  # the spread falls, the error rises by 1 to 1.09 points
        ((0.125, 0.6), "mixed"),  # by 2.5 to 2.7 points
        ((0.11, 0.95), "mixed"),  # the spread rises
        ((0.09, 0.6), "mixed"),  # the error falls
        ((0.1, 0.6), "undecided"),  # the error stays
    ],
)
def test_fairness_at_a_slight_cost(at_four, word):
    assert verdict("adafedadam", "c15", front({1.0: (0.1, 0.9), 4.0: at_four})).word == word


def test_the_parts_of_a_slight_cost():
    falls, band = compare("adafedadam", "c15", front({1.0: (0.1, 0.9), 4.0: (0.11, 0.6)}))
    rises, slight = band.parts
    assert [c.mean for c in (falls, rises, slight)] == pytest.approx(
        [30 * 1.045, 1 * 1.045, 2 - 1 * 1.045]
    )
    assert band.label == "mean error, weighted rises by less than 2 from alpha 1 to 4"


def test_every_alpha_from_1_to_4_against_none():
    fair = {a: (0.1 + a / 1000, 0.9 - a / 10) for a in ALPHAS}
    assert verdict("adafedadam", "c16", front(fair)).word == "holds"
    assert verdict("adafedadam", "c16", front(fair | {3.0: (0.1, 0.95)})).word == "mixed"
    assert verdict("adafedadam", "c16", front(fair | {2.0: (0.13, 0.8)})).word == "mixed"
    # 8 is not asked for
    assert verdict("adafedadam", "c16", front(fair | {8.0: (0.5, 2.0)})).word == "holds"


BASELINES = dict.fromkeys(("fedadam", "fednova", "qfedavg"), (0.8, 0.9))


def test_dominance_needs_one_point_that_is_better_in_both():
    """Of eight points, so that a p-value of 1 / 1024 counts eight times."""
    level = dict.fromkeys(ALPHAS, (0.3, 0.3))
    v = verdict(
        "adafedadam", "c17", front(level | {1.0: (0.1, 0.1)}, fedavg=(0.2, 0.2), **BASELINES)
    )
    assert v.word == "holds"
    assert v.worst.greater == 8 / 1024
    split = front(level | {1.0: (0.1, 0.4), 2.0: (0.4, 0.1)}, fedavg=(0.2, 0.2), **BASELINES)
    # no single point is below FedAvg in both
    assert verdict("adafedadam", "c17", split).word == "mixed"


def test_a_point_that_was_not_run_could_still_dominate():
    some = {1.0: (0.3, 0.3), 2.0: (0.4, 0.1)}
    assert (
        verdict("adafedadam", "c17", front(some, fedavg=(0.2, 0.2), **BASELINES)).word == "not run"
    )
    shown = front({1.0: (0.1, 0.1)}, fedavg=(0.2, 0.2), **BASELINES)
    # nor does what supports it count yet
    assert verdict("adafedadam", "c17", shown).word == "not run"


@pytest.mark.parametrize(
    ("at_eight", "word"),
    [
        ((0.3, 0.5), "holds"),  # from 0.9 by 0.3 to 0.6, then by 0.1: a third of it
        ((0.3, 0.6), "holds"),  # not at all
        ((0.3, 0.4), "mixed"),  # by 0.2: two thirds
        ((0.1, 0.5), "mixed"),  # the error falls
        ((0.2, 0.5), "undecided"),  # the error stays
    ],
)
def test_little_is_gained_beyond_alpha_4(at_eight, word):
    runs = front({1.0: (0.1, 0.9), 4.0: (0.2, 0.6), 8.0: at_eight})
    assert verdict("adafedadam", "c24", runs).word == word


# ---- c25: fairness over alpha


def fairness(*points):
    """STD and worst 30 % at alpha 0, 1 and 4."""
    return {
        ("synthetic", "adafedadam", a): every_seed(
            lambda e, std=std, worst=worst: final(
                accuracy_std_weighted=e * std, accuracy_worst30_weighted=e * worst
            )
        )
        for a, (std, worst) in zip((0.0, 1.0, 4.0), points, strict=True)
    }


@pytest.mark.parametrize(
    ("points", "word"),
    [
        (((0.3, 0.4), (0.2, 0.5), (0.1, 0.6)), "holds"),
        (((0.3, 0.4), (0.1, 0.5), (0.2, 0.6)), "mixed"),  # the STD rises from 1 to 4
        (((0.3, 0.4), (0.2, 0.6), (0.1, 0.5)), "mixed"),  # the worst 30 % falls from 1 to 4
        (((0.3, 0.4), (0.2, 0.5), (0.1, 0.5)), "undecided"),  # the worst 30 % stays
    ],
)
def test_fairer_with_every_step_of_alpha(points, word):
    assert verdict("adafedadam", "c25", fairness(*points)).word == word


# ---- c23: stable without tuning

SETUPS = ("femnist", "cifar10_dir005", "sent140", "synthetic")


def means(own, **lags):
    """Mean accuracies: AdaFedAdam's per set, and by how much each baseline is behind it, 0 where not given."""
    runs = {}
    for setup, value in zip(SETUPS, own, strict=True):
        values = {"adafedadam": value}
        values |= {
            m: value - lags.get(m, {}).get(setup, 0.0)
            for m in ("fedavg", "fedadam", "fednova", "qfedavg")
        }
        runs |= {
            (setup, m): every_seed(
                lambda e, v=v: final(accuracy_mean_weighted=v / 100 + (e - 1) / 10)
            )
            for m, v in values.items()
        }
    return runs


FAR = {
    "fedavg": {"femnist": 6},
    "fedadam": {"sent140": 6},
    "fednova": {"synthetic": 7},
    "qfedavg": {"femnist": 20},
}


def test_each_baseline_is_far_behind_somewhere():
    v = verdict("adafedadam", "c23", means((80, 60, 70, 90), **FAR))
    assert (v.word, len(v.comparisons)) == ("holds", 4)
    near = FAR | {"fedavg": dict.fromkeys(SETUPS, 4.0)}
    # never by 5 points
    assert verdict("adafedadam", "c23", means((80, 60, 70, 90), **near)).word == "mixed"


def test_a_set_that_was_not_run_could_still_show_it():
    runs = means((80, 60, 70, 90), **FAR)
    missing = {k: v for k, v in runs.items() if k[0] != "sent140"}
    assert verdict("adafedadam", "c23", missing).word not in ("holds", "fails")

"""FedCAda's claims about averages: runs made up here, verdicts by hand."""

import pytest
from claim_runs import compare, every_seed, final, verdict

from fedbench.papers.registry import papers

METHODS = ("fedavg", "fedadam", "fedams", "fedsps", "fafed", "fedcada")
SETUPS = papers()["fedcada"].tables["table1"].setups


def accuracies(setups, **own):
    """The accuracy of each method in each setup, 0.5 where none is given; a tuple has one per setup."""
    runs = {}
    for m in METHODS:
        given = own.get(m, 0.5)
        values = given if isinstance(given, tuple) else (given,) * len(setups)
        runs |= {
            (s, m): every_seed(lambda e, v=v: final(accuracy_mean=v + e / 100))
            for s, v in zip(setups, values, strict=True)
        }
    return runs


# ---- c01: over all columns


@pytest.mark.parametrize(
    ("own", "word"),
    [
        ((0.6,) + (0.5,) * 9, "holds"),  # one point ahead on average
        ((0.6,) * 5 + (0.45,) * 5, "holds"),  # behind in five columns, by less than it is ahead in the others
        ((0.5,) * 10, "undecided"),
        ((0.6,) + (0.4,) * 9, "fails"),
    ],
)
def test_the_average_over_columns(own, word):
    assert verdict("fedcada", "c01", accuracies(SETUPS, fedcada=own)).word == word


def test_the_average_by_hand_and_without_a_column():
    first, *_ = compare("fedcada", "c01", accuracies(SETUPS, fedcada=(0.6,) + (0.5,) * 9))
    assert (first.mean, first.label) == (
        pytest.approx(1.0),
        "accuracy % of FedCAda against FedAvg, mean of 10 columns",
    )
    runs = accuracies(SETUPS, fedcada=0.6)
    del runs[SETUPS[3], "fedavg"]
    first, second, *_ = compare("fedcada", "c01", runs)
    assert (first.mean, second.mean) == (None, pytest.approx(10.0))


def test_the_two_methods_of_a_column_must_be_reduced_alike():
    found = compare("fedcada", "c01", accuracies(SETUPS, fedcada=0.6), fafed={"cuts": (("rounds", "2"),)})
    assert [c.uneven for c in found] == [False, False, False, False, True]


# ---- c17: one model against another

MODELS = ("device_cifar10_noniid", "device_cifar10_noniid_resnet18")


@pytest.mark.parametrize(
    ("methods", "word"),
    [
        ({"fedcada": (0.6, 0.5)}, "holds"),  # the mean falls by a sixth of it
        ({"fedcada": (0.6, 0.5), "fedavg": (0.5, 0.55)}, "holds"),  # of the five others one gains
        ({"fedcada": (0.6, 0.5), "fedavg": (0.5, 0.7)}, "mixed"),  # more than FedCAda loses
        ({"fedcada": (0.5, 0.6), "fedavg": (0.7, 0.5)}, "mixed"),
        ({"fedavg": (0.6, 0.5)}, "undecided"),  # FedCAda stays
    ],
)
def test_two_models_in_general_and_for_fedcada(methods, word):
    assert verdict("fedcada", "c17", accuracies(MODELS, **methods)).word == word

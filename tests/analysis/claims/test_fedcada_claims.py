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


# ---- c01: over the columns of images, and over those of text

TEXT = [s.endswith("shakespeare") for s in SETUPS]


def columns(images, texts):
    """FedCAda's accuracies in the eight columns of images and in the two of text, in the order of the table."""
    images, texts = list(images), list(texts)
    return tuple((texts if text else images).pop(0) for text in TEXT)


@pytest.mark.parametrize(
    ("images", "texts", "word"),
    [
        ([0.6] + [0.5] * 7, [0.6, 0.5], "holds"),  # ahead on average
        (
            [0.6] * 4 + [0.45] * 4,
            [0.6, 0.45],
            "holds",
        ),  # behind in some columns, by less than it is ahead in the others
        ([0.5] * 8, [0.5] * 2, "undecided"),
        ([0.6] + [0.4] * 7, [0.4] * 2, "fails"),
        ([0.6] * 8, [0.4] * 2, "mixed"),
    ],
)
def test_the_average_over_columns(images, texts, word):
    assert (
        verdict("fedcada", "c01", accuracies(SETUPS, fedcada=columns(images, texts))).word == word
    )


def test_the_average_by_hand_and_without_a_column():
    first, *_ = compare(
        "fedcada", "c01", accuracies(SETUPS, fedcada=columns([0.6] + [0.5] * 7, [0.5] * 2))
    )
    assert (first.mean, first.label) == (
        pytest.approx(10 / 8),
        "accuracy % of FedCAda against FedAvg, mean of 8 image columns",
    )
    runs = accuracies(SETUPS, fedcada=0.6)
    del runs[SETUPS[3], "fedavg"]
    first, second, *_ = compare("fedcada", "c01", runs)
    assert (first.mean, second.mean) == (None, pytest.approx(10.0))


def test_the_two_methods_of_a_column_must_be_reduced_alike():
    found = compare(
        "fedcada", "c01", accuracies(SETUPS, fedcada=0.6), fafed={"cuts": (("rounds", "2"),)}
    )
    assert [c.uneven for c in found] == [False, False, False, False, True] * 2
    assert all(c.group for c in found)  # the page lists comparisons by setup, these too


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

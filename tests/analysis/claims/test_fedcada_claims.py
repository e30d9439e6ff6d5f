"""FedCAda's claims about averages: runs made up here, verdicts by hand."""

from functools import partial

import claim_runs
import pytest
from claim_runs import finals

from fedbench.papers.registry import papers

word = partial(claim_runs.word, "fedcada")
compare = partial(claim_runs.compare, "fedcada")

METHODS = ("fedavg", "fedadam", "fedams", "fedsps", "fafed", "fedcada")
SETUPS = papers()["fedcada"].tables["table1"].setups


def accuracies(setups, **own):
    """The accuracy of each method in each setup, 0.5 where none are given."""
    runs = {}
    for algo in METHODS:
        values = own.get(algo, [0.5] * len(setups))
        for setup, value in zip(setups, values, strict=True):
            runs[setup, algo] = finals(accuracy_mean=value)
    return runs


# ---- c01: over the columns of images, and over those of text


def columns(images, texts):
    """Runs of Table 1: FedCAda's accuracies in the eight columns of images and two of text."""
    images = iter(images)
    texts = iter(texts)
    values = [next(texts if s.endswith("shakespeare") else images) for s in SETUPS]
    return accuracies(SETUPS, fedcada=values)


@pytest.mark.parametrize(
    ("images", "texts", "kind"),
    [
        ([0.6] + [0.5] * 7, [0.6, 0.5], "holds"),  # ahead on average
        # behind in some columns, by less than it is ahead in the others
        ([0.6] * 4 + [0.45] * 4, [0.6, 0.45], "holds"),
        ([0.5] * 8, [0.5] * 2, "undecided"),
        ([0.6] + [0.4] * 7, [0.4] * 2, "fails"),
        ([0.6] * 8, [0.4] * 2, "mixed"),
    ],
)
def test_the_average_over_columns(images, texts, kind):
    assert word("c01", columns(images, texts)) == kind


def test_the_average_by_hand_and_without_a_column():
    runs = columns([0.6] + [0.5] * 7, [0.5] * 2)
    first, *_ = compare("c01", runs)
    assert first.mean == pytest.approx(10 / 8)
    assert first.label == "accuracy % of FedCAda against FedAvg, mean of 8 image columns"
    del runs[SETUPS[3], "fedavg"]
    first, second, *_ = compare("c01", runs)
    assert first.mean is None
    assert second.mean == pytest.approx(10 / 8)


def test_the_two_methods_of_a_column_must_be_reduced_alike():
    cut = {"cuts": (("rounds", "2"),)}
    found = compare("c01", accuracies(SETUPS), fafed=cut)
    assert [c.uneven for c in found] == [False, False, False, False, True] * 2
    assert all(c.group for c in found)  # the page lists comparisons by setup, these too


# ---- c17: one model against another

MODELS = ("device_cifar10_noniid", "device_cifar10_noniid_resnet18")


@pytest.mark.parametrize(
    ("fedcada", "fedavg", "kind"),
    [
        ((0.6, 0.5), (0.5, 0.5), "holds"),  # the mean falls by a sixth of it
        ((0.6, 0.5), (0.5, 0.55), "holds"),  # of the five others one gains
        ((0.6, 0.5), (0.5, 0.7), "mixed"),  # more than FedCAda loses
        ((0.5, 0.6), (0.7, 0.5), "mixed"),
        ((0.5, 0.5), (0.6, 0.5), "undecided"),  # FedCAda stays
    ],
)
def test_two_models_in_general_and_for_fedcada(fedcada, fedavg, kind):
    assert word("c17", accuracies(MODELS, fedcada=fedcada, fedavg=fedavg)) == kind

"""FAFED's claim about averages: runs made up here, verdicts by hand."""

import pytest
from claim_runs import compare, every_seed, final, verdict

METHODS = ("fedavg", "scaffold", "stem", "fedadam", "fedams", "fafed")
LEVELS = ("fmnist_low", "fmnist_moderate", "fmnist_high")


def accuracies(*levels, **others):
    return {
        (s, m): every_seed(lambda e, v=v: final(accuracy_mean=v + e / 100))
        for m in METHODS
        for s, v in zip(LEVELS, others.get(m, levels), strict=True)
    }


@pytest.mark.parametrize(
    ("levels", "others", "word"),
    [
        ((0.9, 0.8, 0.7), {}, "holds"),
        # one method that gains does not matter
        ((0.9, 0.8, 0.7), {"stem": (0.6, 0.7, 0.8)}, "holds"),
        ((0.7, 0.8, 0.6), {}, "mixed"),
        ((0.9, 0.8, 0.8), {}, "undecided"),
    ],
)
def test_harder_on_average_with_every_level(levels, others, word):
    assert verdict("fafed", "c09", accuracies(*levels, **others)).word == word


def test_the_mean_over_methods_by_hand():
    """Five of six methods lose 10 points, one gains 10: 40 / 6."""
    first, second = compare("fafed", "c09", accuracies(0.9, 0.8, 0.7, stem=(0.6, 0.7, 0.8)))
    assert [first.mean, second.mean] == pytest.approx([40 / 6, 40 / 6])


def test_methods_may_be_reduced_in_different_ways():
    """Each is compared with itself at another level."""
    runs = accuracies(0.9, 0.8, 0.7)
    assert verdict("fafed", "c09", runs, stem={"cuts": (("rounds", "2"),)}).word == "holds"

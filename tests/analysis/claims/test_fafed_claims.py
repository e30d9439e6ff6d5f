"""FAFED's claim about averages: runs made up here, verdicts by hand."""

import claim_runs
import pytest
from claim_runs import finals

METHODS = ("fedavg", "scaffold", "stem", "fedadam", "fedams", "fafed")
LEVELS = ("fmnist_low", "fmnist_moderate", "fmnist_high")


def accuracies(*levels, **others):
    """Accuracies at each level, of all methods but those that are given."""
    runs = {}
    for algo in METHODS:
        for setup, value in zip(LEVELS, others.get(algo, levels), strict=True):
            runs[setup, algo] = finals(accuracy_mean=value)
    return runs


@pytest.mark.parametrize(
    ("levels", "stem", "kind"),
    [
        # one method that gains does not matter
        ((0.9, 0.8, 0.7), (0.6, 0.7, 0.8), "holds"),
        ((0.7, 0.8, 0.6), (0.7, 0.8, 0.6), "mixed"),
        ((0.9, 0.8, 0.8), (0.9, 0.8, 0.8), "undecided"),
    ],
)
def test_harder_on_average_with_every_level(levels, stem, kind):
    assert claim_runs.word("fafed", "c09", accuracies(*levels, stem=stem)) == kind


def test_methods_may_be_reduced_in_different_ways():
    """Each is compared with itself at another level."""
    cut = {"cuts": (("rounds", "2"),)}
    assert claim_runs.word("fafed", "c09", accuracies(0.9, 0.8, 0.7), stem=cut) == "holds"

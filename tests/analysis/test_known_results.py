"""Known numbers: measures by hand, and when a number agrees."""

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fedbench.analysis.known import KnownResult, measured, unit_of
from fedbench.core.errors import RequestError
from fedbench.papers.known.plan import Wanted
from fedbench.papers.known.registry import Measure, Published, references

FIELD = "accuracy_mean_weighted"


class Curve:
    """A run of ten rounds whose accuracy is a tenth of the round."""

    def __init__(self, every=1):
        self.every, self.config, self.path = every, {"rounds": 10}, Path("run")

    def curves(self, names):
        rounds = range(0, 11, self.every)
        return pd.DataFrame({"round": list(rounds), **{n: [t / 10 for t in rounds] for n in names}})


@pytest.mark.parametrize(
    ("measure", "rounds", "expected"),
    [
        (Measure("rounds_to", FIELD, target=0.65), 10, 7),
        (Measure("rounds_to", FIELD, target=1.1), 10, math.inf),
        (Measure("at", FIELD, first=4), 10, 40),
        (Measure("at", FIELD, first=40), 100, 40),  # a tenth of the rounds on record: round 40 becomes 4
        (Measure("mean", FIELD, first=4, last=7), 10, 55),
        (Measure("mean", FIELD, first=41, last=70), 100, 60),  # rounds 5 to 7
        (Measure("best", FIELD), 10, 100),
    ],
)
def test_measures_by_hand(measure, rounds, expected):
    assert measured(Curve(), measure, rounds) == pytest.approx(expected, rel=1e-12)


def test_rounds_that_were_not_evaluated():
    assert measured(Curve(every=5), Measure("mean", FIELD, first=4, last=7), 10) == 50
    with pytest.raises(RequestError, match="was not evaluated in rounds 4 to 4"):
        measured(Curve(every=5), Measure("at", FIELD, first=4), 10)


def result(values, band=(76.0, 86.0), seeds=2, cut=None, **more):
    reference = references()["mnist_power_law"]
    number = replace(reference.numbers[0], band=band, seeds=2, published=(Published("us", 81.0),))
    facts = {"diverged": (), "grids": {}, "unofficial": (), "seconds": 1.0, **more}
    return KnownResult(Wanted(reference, number, seeds, cut or {}), dict(enumerate(values)), **facts)


@pytest.mark.parametrize(
    ("values", "more", "verdict"),
    [
        ([80, 84], {}, "agrees"),
        ([76, 76], {}, "agrees"),  # the bounds belong to the band
        ([80, 93], {}, "differs"),  # 86.5
        ([80], {}, "incomplete"),
        ([], {}, "not run"),
        ([80, math.inf], {"band": (76.0, None)}, "differs"),  # the target was never reached
        ([80], {"diverged": (1,)}, "differs"),
        ([0.1, 0.3], {"band": (0.0, None)}, "agrees"),
        ([-0.1, 0.05], {"band": (0.0, None)}, "differs"),
    ],
)
def test_when_a_number_agrees(values, more, verdict):
    assert result(values, **more).verdict == verdict


def test_mean_spread_and_difference():
    found = result([80, 84])
    assert (found.mean, found.std, found.differences) == (82, pytest.approx(math.sqrt(8)), [("us", 1.0)])
    assert result([80]).std is None
    assert result([80, math.inf]).differences == []


def test_what_is_reduced():
    assert not result([80, 84]).reduced
    assert result([80, 84], cut={"rounds": 5}).reduced
    assert result([80, 84], unofficial=("MNIST: a part",)).reduced
    assert result([80], seeds=1).reduced


def test_units():
    assert unit_of(Measure("rounds_to", FIELD, target=0.9), False) == "rounds"
    assert [unit_of(Measure("best", FIELD), d) for d in (False, True)] == ["%", "points"]

"""Known numbers: measures by hand, and when a number agrees."""

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fedbench.analysis.known import KnownResult, Tried, TunedGrid, measured, results_on_record, unit_of
from fedbench.core.errors import RequestError
from fedbench.papers.known.plan import Wanted
from fedbench.papers.known.registry import Measure, Published, references
from fedbench.papers.registry import Reduction

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


PUBLISHED = (Published("us", 81.0),)


def result(values, band=(76.0, 86.0), seeds=2, cut=None, published=PUBLISHED, **more):
    reference = references()["mnist_power_law"]
    number = replace(reference.numbers[0], band=band, seeds=2, published=published)
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
        ([80, 93], {"band": (None, None), "published": ()}, "measured"),  # nothing to agree with
        ([80], {"band": (None, None), "published": ()}, "incomplete"),
    ],
)
def test_when_a_number_agrees(values, more, verdict):
    assert result(values, **more).verdict == verdict


@pytest.mark.parametrize(
    ("values", "rounds", "diverged", "verdict"),
    [
        ([50, math.inf], 85, (), "incomplete"),  # the other seed may reach it in round 86
        ([50, math.inf], 86, (), "differs"),
        ([80, 84], 85, (), "agrees"),
        ([math.inf], 85, (1,), "differs"),  # whatever the rounds
    ],
)
def test_runs_that_are_shorter_than_the_band_do_not_differ(values, rounds, diverged, verdict):
    assert result(values, rounds=rounds, diverged=diverged).verdict == verdict


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


def tried(value, measured, score=None):
    """A value of a grid of rounds to a target, whose best accuracies are alike."""
    state = "not run" if measured is None else "done"
    return Tried(value, measured, state, None if measured is None else score or (measured, 0.0, value))


@pytest.mark.parametrize(
    ("values", "chosen", "edge"),
    [
        ([(0.1, 90), (0.2, 40), (0.4, 60)], 0.2, False),
        ([(0.1, 40), (0.2, 40), (0.4, 60)], 0.1, True),  # of equal ones the smaller
        ([(0.1, 40), (0.2, None)], None, False),  # as long as a run is missing
        ([(0.1, math.inf), (0.2, math.inf)], 0.1, True),
    ],
)
def test_the_chosen_value_of_a_grid(values, chosen, edge):
    grid = TunedGrid("local.lr", tuple(tried(*v) for v in values))
    assert (grid.chosen, grid.at_edge) == (chosen, edge)


def test_of_values_that_miss_the_target_the_one_that_comes_closest_is_chosen_and_a_diverged_one_never():
    missed = [tried(0.1, math.inf, (math.inf, -90.0, 0.1)), tried(0.2, math.inf, (math.inf, -95.0, 0.2))]
    grid = TunedGrid("local.lr", (*missed, Tried(0.4, None, "diverged")))
    assert grid.chosen == 0.2
    assert TunedGrid("local.lr", (Tried(0.4, None, "diverged"),)).chosen is None


class FakeRuns:
    """Finished runs of the number of a profile: the share of its seeds by the profile's number of seeds."""

    def __init__(self, done):
        self.done = done

    def rounds(self, wanted):
        return 10

    def of(self, planned):
        seeds = 1 + max(run.seed for run in planned)
        count = self.done.get(seeds, 0)
        return [FinishedCurve() if run.seed < count else None for run in planned]


class FinishedCurve(Curve):
    counts, unofficial = True, ()

    def last_round(self):
        return {"seconds_train": 2.0, "seconds_eval": 1.0}


@pytest.mark.parametrize(
    ("done", "seeds", "verdict"),
    [
        ({}, 5, "not run"),  # nothing: that of the source
        ({5: 1, 3: 3}, 3, "agrees"),  # the reduced profile is complete
        ({5: 5, 3: 3}, 5, "agrees"),  # both are
        ({5: 2, 3: 1}, 5, "incomplete"),  # two fifths are more than one third
    ],
)
def test_a_number_is_shown_under_the_profile_of_which_most_has_been_run(done, seeds, verdict):
    reference = references()["mnist_power_law"]
    at = Measure("at", FIELD, first=8)
    number = replace(reference.numbers[0], seeds=5, measure=at, band=(79, 81), profiles={"cpu": Reduction(seeds=3)})
    (found,) = results_on_record([replace(reference, numbers=(number,))], FakeRuns(done))
    assert (found.wanted.seeds, found.verdict) == (seeds, verdict)
    assert found.seconds == 3.0 * len(found.values)


def test_units():
    assert unit_of(Measure("rounds_to", FIELD, target=0.9), False) == "rounds"
    assert [unit_of(Measure("best", FIELD), d) for d in (False, True)] == ["%", "points"]

"""Means that must be within a band: the numbers of public benchmarks, by hand."""

from functools import partial
from math import log

import claim_runs
import pandas as pd
import pytest
from claim_runs import Given, Run
from units import by_unit, diverged

from fedbench.analysis.claims import table_claims
from fedbench.analysis.claims.comparison import RATIO
from fedbench.analysis.claims.table_claims import averages, compare_rows, rounds_to
from fedbench.analysis.curves import mean_between
from fedbench.analysis.matching import MatchedRuns
from fedbench.core.errors import RequestError
from fedbench.papers.checks import Averages, Side
from fedbench.papers.registry import papers
from fedbench.papers.schema import Row

verdict = partial(claim_runs.verdict, "known")


def run(accuracies, rounds=1000, field="accuracy_mean_weighted"):
    """A run of 1000 rounds, or reduced to fewer, with an accuracy by round."""
    rows = [{"round": at, field: value} for at, value in accuracies.items()]
    made = Run(rows)
    made.config = {"rounds": rounds}
    departures = {} if rounds == 1000 else {"rounds": [1000, rounds]}
    made.meta = {"departures": departures}
    return made


def of_seeds(*accuracies, **more):
    """One run per accuracy after 100 rounds."""
    return {seed: run({100: value}, **more) for seed, value in enumerate(accuracies)}


def test_the_mean_of_a_part_of_a_curve():
    rounds = [0, 50, 100, 150]
    curve = pd.Series([0.1, 0.5, 0.9, 0.8], index=rounds)
    assert mean_between(curve, 100, 150, 1.0) == pytest.approx(0.85)
    assert mean_between(curve, 200, 300, 0.5) == pytest.approx(0.85)  # of a run of half the length
    assert mean_between(curve, 10, 20, 1.0) is None


def within(accuracy, seeds=10):
    """The verdict on an accuracy after 100 rounds, which is to be from 76 to 86 %."""
    return verdict("c01", {("mnist_power_law", "fedavg"): of_seeds(*[accuracy] * seeds)})


@pytest.mark.parametrize(
    ("accuracy", "word", "for_p", "against_p", "ends"),
    [
        (0.81, "holds", 1 / 1024, 1.0, (5, 5)),
        # on the right side of one end, and yet refuted
        (0.70, "fails", 1.0, 2 / 1024, (-6, 16)),
        (0.88, "fails", 1.0, 2 / 1024, (12, -2)),
        (0.76, "undecided", 1.0, 1.0, (0, 10)),  # the end itself is not within
    ],
)
def test_two_one_sided_tests(accuracy, word, for_p, against_p, ends):
    """Both ends must be shown: the larger p counts for, and twice the smaller one against."""
    found = within(accuracy)
    assert found.word == word
    (c,) = found.comparisons
    assert c.for_p == for_p
    assert c.against_p == against_p
    assert [part.mean for part in c.parts] == pytest.approx(ends)
    assert c.label == "accuracy % after 100 rounds of FedAvg from 76 to 86"


@pytest.mark.parametrize(
    ("other", "rounds", "n", "p"),
    [
        ({80: 0.98}, 1000, 6, 1 / 64),
        # 426 above the upper end, five are 94 below; 1 + 31 signs reach the 44
        ({600: 0.98}, 1000, 6, 32 / 64),
        # never gets there: outside by as much as the others are within
        ({400: 0.9}, 1000, 6, 7 / 64),
        ({100: 0.9}, 100, 5, 1 / 32),  # not in 100 rounds, but perhaps in 174
    ],
)
def test_a_number_of_rounds(other, rounds, n, p):
    """With ten clients a round, one row of five, the band is from 43.5 to 174 rounds. Five seeds
    take 80.
    """
    runs = dict.fromkeys(range(5), run({40: 0.5, 80: 0.97}))
    runs[5] = run(other, rounds)
    rows = verdict("c02", {("mcmahan_iid", "fedavg", 10): runs}).comparisons
    assert [row.n for row in rows] == [0, n, 0, 0, 0]
    assert rows[1].greater == p
    assert rows[1].label == "rounds to 97 % of FedAvg participation=10 from 43.5 to 174"


def rounds_compared(one, two):
    """The comparison of ten with 20 clients a round by the rounds to 97 %."""
    first, second = (Row("fedavg", "mcmahan_iid", {"participation": p}) for p in (10, 20))
    runs = {("mcmahan_iid", "fedavg", 10): one, ("mcmahan_iid", "fedavg", 20): two}
    return compare_rows(Given(papers()["known"], runs), first, second, "rounds_to_97")


def rounds_compared_of(one, two):
    return table_claims.rounds_compared("x", one, two, papers()["known"].metrics["rounds_to_97"])


def test_two_numbers_of_rounds_are_compared_by_their_ratio():
    """A run that gets there neither before nor after the other counts as a round after its end."""
    reaches = {seed: run({20: 0.98, 1000: 0.98}) for seed in range(5)}
    never = {seed: run({20: 0.9, 1000: 0.9}) for seed in range(5, 10)}
    c = rounds_compared(reaches | never, dict.fromkeys(range(10), run({40: 0.98})))
    ahead, behind = log(41 / 21), log(41 / 1002)
    assert list(c.differences.values()) == pytest.approx([ahead] * 5 + [behind] * 5)
    assert c.unit == RATIO


def test_units_in_which_the_order_is_not_known_are_left_out():
    """Neither gets there; or one ends in round 30, before the other gets there."""
    first = {0: run({20: 0.98}), 1: run({1000: 0.9}), 2: run({30: 0.9})}
    c = rounds_compared(first, dict.fromkeys(range(3), run({40: 0.98})))
    assert list(c.differences.values()) == pytest.approx([log(41 / 21), log(41 / 1002)])
    c = rounds_compared(first, {0: run({40: 0.98}), 1: run({900: 0.9})})
    assert list(c.differences.values()) == pytest.approx([log(41 / 21)])
    neither = rounds_compared({1: first[1]}, {1: first[1]})
    assert (neither.n, neither.greater, neither.less) == (1, 1.0, 1.0)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_diverged_run_is_behind_one_that_gets_there_and_level_with_one_that_does_not(swapped):
    """Seed 0: both get there. Seed 1 of one side diverged, and seed 2; the other misses in 2."""
    steady = {0: run({40: 0.98}), 1: run({40: 0.98}), 2: run({1000: 0.9})}
    broken = MatchedRuns(by_unit({0: run({20: 0.98})}), others=diverged(1, 2))
    sides = [broken, MatchedRuns(by_unit(steady))]
    if swapped:
        sides.reverse()
    c = rounds_compared_of(*sides)
    ahead = log(41 / 21) * (-1 if swapped else 1)
    assert c.differences == pytest.approx({0: ahead, 1: -ahead})


def test_the_trend_of_rounds_has_misses_at_its_worst_end():
    """Rounds 20, 40 and two misses after 100: none is before another."""
    steps = [{20: 0.98}, {40: 0.98}, {100: 0.9}, {120: 0.9}]
    sides = [MatchedRuns(by_unit({0: run(curve)})) for curve in steps]
    metric = papers()["known"].metrics["rounds_to_97"]
    assert [list(of.values()) for of in rounds_to(metric, sides)] == [[20], [40], [121], [121]]
    early = MatchedRuns(by_unit({0: run({30: 0.9})}))
    with_early = [list(of.values()) for of in rounds_to(metric, [*sides, early])]
    assert with_early == [[20], [40], [], [], []]


def test_a_margin_in_rounds_and_an_average_of_rounds_are_refused():
    row = Row("fedavg", "mcmahan_iid", {"participation": 10})
    evidence = Given(papers()["known"], {})
    with pytest.raises(RequestError, match="by is 2, but rounds_to_97 counts rounds to a target"):
        compare_rows(evidence, row, row, "rounds_to_97", by=2.0)
    side = Side("mcmahan_2nn", ("mcmahan_iid",), ("fedavg",))
    with pytest.raises(RequestError, match="averages need another metric"):
        list(averages(evidence, Averages("", "rounds_to_97", side, side)))


def test_where_no_seed_gets_there_the_band_is_refuted():
    runs = dict.fromkeys(range(6), run({400: 0.9}))
    found = verdict("c04", {("mcmahan_iid_epochs5", "fedavg"): runs})
    assert found.word == "fails"
    (c,) = found.comparisons
    assert c.less == 2 / 64
    assert c.against_p == 1 / 64  # both ends turn with the same signs


def test_a_seed_that_diverged_is_outside_and_one_without_the_number_is_left_out():
    within_band = {50: 0.99}
    runs = dict.fromkeys(range(6), run(within_band))
    setting = ("niid_iid", "fedavg")
    assert verdict("c06", {setting: runs}).word == "holds"
    del runs[2]
    lost = {"others": diverged(2)}
    (c,) = verdict("c06", {setting: runs}, niid_iid=lost).comparisons
    assert c.n == 6
    assert c.greater == 7 / 64  # five of six of one size: one or no sign turned
    runs[2] = run(within_band, field="accuracy_mean")
    (c,) = verdict("c06", {setting: runs}).comparisons
    assert c.n == 5
    assert c.greater == 1 / 32

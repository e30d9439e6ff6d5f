"""Results of a benchmark by hand: leads, ranks, profiles, the value of tuning, and keys."""

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from benchmark_entries import benchmark, entries, run, search
from hypothesis import given
from hypothesis import strategies as st

from fedbench.analysis.benchmark import leads, profile, ranked, results_of, scores_of
from fedbench.analysis.trials import expected_best, searches_of
from fedbench.benchmarks.entries import Entry, Trial

MEAN, WORST = "accuracy_mean", "accuracy_worst10"


@pytest.fixture
def results():
    return results_of(benchmark(), entries())


def test_numbers_and_the_reasons_for_missing_ones(results):
    a = results["one"]["a"]
    assert a.cell(MEAN).mean == pytest.approx(62.5)  # of 60 to 65
    assert a.cell(MEAN).std == pytest.approx(3.5**0.5)  # the variance of 0 to 5 is 3.5
    own = results["one"]["own"]
    assert (own.cell(MEAN).n, own.score(MEAN)) == (5, -inf)
    assert own.reason == "seed 0 diverged"
    assert [results["two"][m].reason for m in ("a", "b")] == [
        "every trial diverged",
        "b needs all clients",
    ]
    assert [results["two"][m].score(MEAN) for m in ("a", "b")] == [-inf, None]


def test_seeds_without_a_run_are_named():
    entry = Entry("one", "a", runs=(run(0, (1, 1, 1)), run(2, (1, 1, 1), "failed")))
    (result,) = results_of(benchmark(seeds=3), [entry])["one"].values()
    assert result.reason == "seed 1 without a run, seed 2 failed"
    assert result.numbers[MEAN] == {0: 100}
    assert (result.score(MEAN), result.cell(MEAN).mean) == (None, 100)


def test_leads_over_the_baseline(results):
    """Three methods with six seeds: one sign in all has p = 1/64, so that 3/64 is at most 5 %.

    The seed in which a method diverged counts as behind by the largest difference: p = 2/64 by
    itself is not enough.
    """
    found = leads(results["one"], MEAN, "fedavg")
    assert {m: lead.state for m, lead in found.items()} == {
        "a": "ahead",
        "b": "open",
        "own": "open",
    }
    a = found["a"].difference
    assert (a.mean, a.low, a.high) == pytest.approx((10, 10, 10))
    assert a.greater == 1 / 64
    expected = (39 + 38 + 37 + 36 + 35 - 39) / 6
    assert found["own"].difference.mean == pytest.approx(expected)
    worst = leads(results["one"], WORST, "fedavg")
    assert (worst["a"].state, worst["b"].state) == ("behind", "open")


def test_a_method_whose_trials_all_diverged_is_behind_in_every_seed(results):
    """Also where two methods are tested together: 2/64 is at most 5 %."""
    two = leads(results["two"], MEAN, "fedavg")
    assert {m: (lead.state, lead.difference.n) for m, lead in two.items()} == {
        "a": ("behind", 6),
        "own": ("ahead", 6),
    }
    assert two["a"].difference.mean == -inf
    assert leads(results["two"], MEAN, "own", over=True)["a"].state == "ahead"
    again = {"c": results["two"]["a"], "a": results["two"]["a"]}
    assert leads(again, MEAN, "a") == {}


def test_leads_of_a_method_over_the_others_are_the_opposite(results):
    """The only other method: the family has one test either way."""
    two = {m: results["one"][m] for m in ("a", "fedavg")}
    (there,) = leads(two, WORST, "fedavg").values()
    (back,) = leads(two, WORST, "a", over=True).values()
    assert (there.state, back.state) == ("behind", "behind")
    assert back.difference == there.difference
    (other,) = leads(two, WORST, "a").values()
    assert other.state == "ahead"
    assert other.difference.mean == -back.difference.mean
    assert leads(two, MEAN, "absent") == {}


def test_lower_losses_are_ahead():
    def entry(method, loss):
        return Entry("one", method, runs=tuple(run(s, (0, 0, loss + s)) for s in range(6)))

    found = results_of(benchmark(), [entry("fedavg", 4.0), entry("a", 2.0)])["one"]
    (lead,) = leads(found, "bytes_up", "fedavg").values()
    assert (lead.state, lead.difference.mean) == ("ahead", 2)
    assert found["a"].score("bytes_up") == -4.5


def test_ranks_leave_out_what_is_refused_and_put_what_diverged_last(results):
    """By the mean, setting one: a, FedAvg, own, which diverged; two: own, FedAvg, a. By the worst
    10 %, FedAvg, a, own; and own and FedAvg equal, a.
    """
    assert ranked(scores_of(results.values(), MEAN)) == {"a": 2, "fedavg": 2, "own": 2}
    worst = ranked(scores_of(results.values(), WORST))
    assert worst == {"fedavg": 1.25, "own": 2.25, "a": 2.5}


def test_gaps_of_a_profile():
    """A failure is infinitely far away, also where every method fails."""
    scores = {"a": [3.0, 1.0, -inf], "b": [1.0, 6.0, nan], "c": [nan, 4.0, -inf]}
    gaps = {method: row.tolist() for method, row in profile(scores).items()}
    assert gaps == {"a": [0, 5, inf], "b": [0, 2, inf], "c": [2, inf, inf]}


# ---- trials


def test_the_expected_best_of_four_scores():
    """Of the 6 pairs of 1, 2, 3 and 9, the best is 2 once, 3 twice and 9 three times."""
    mean, low, high = expected_best([9.0, 1.0, 3.0, 2.0])
    assert mean == pytest.approx([15 / 4, (2 + 2 * 3 + 3 * 9) / 6, (3 + 3 * 9) / 4, 9])
    assert low.tolist() == [1, 2, 3, 9]
    assert high.tolist() == [9, 9, 9, 9]


def test_ends_of_the_interval_leave_out_a_fortieth_on_each_side():
    mean, low, high = expected_best(np.arange(1.0, 81.0))
    assert (mean[0], low[0], high[0]) == (pytest.approx(40.5), 2, 78)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12))
def test_more_trials_are_never_worse(scores):
    for line in expected_best(scores):
        assert (np.diff(line) >= -1e-9).all()
        assert line[-1] == pytest.approx(max(scores))


def test_the_value_of_tuning_goes_through_both_stages():
    """Rates 2, 4 and one that diverged, which counts as the worst trial of both methods, 1; then
    the keys' values 3 and 6, of which the second alone is above the best rate.
    """
    made = [
        Entry("one", "own", trials=search(2.0, 4.0, None, 3.0, 6.0, key="algo.mu")),
        Entry("one", "a", trials=search(1.0, 1.5)),
        Entry("two", "a", trials=search(-9.0)),
        Entry("one", "b", reason="refused"),
    ]
    own, a = searches_of(made, "one", 1)
    assert own.scores == [2, 4, 1, 3, 6]
    assert own.value[0] == pytest.approx([7 / 3, (2 + 4 + 4) / 3, 4, (4 + 6) / 2, 6])
    assert a.value[0] == pytest.approx([1.25, 1.5])
    assert own.points == [
        ("local.lr", 0.1, 2),
        ("local.lr", 0.3, 4),
        ("algo.mu", 0, 4),
        ("local.lr", 1.0, 1),
        ("algo.mu", 1, 3),
        ("algo.mu", 2, 6),
    ]


def test_a_method_without_a_rate_has_one_stage():
    trials = tuple(Trial({"algo.c": c}, score) for c, score in ((1, 3.0), (2, None), (3, 5.0)))
    (search_,) = searches_of([Entry("one", "m", trials=trials)], "one", -1)
    assert search_.scores == [-3, -5, -5]  # lower is better
    assert search_.value[0] == pytest.approx([-13 / 3, (-3 - 3 - 5) / 3, -3])
    assert [key for key, _, _ in search_.points] == ["algo.c"] * 3


def test_a_search_in_which_all_trials_diverged_has_the_worst_score():
    made = [Entry("one", "m", trials=search(None, None)), Entry("one", "a", trials=search(7.0))]
    (m, _) = searches_of(made, "one", 1)
    assert m.value[0].tolist() == [7, 7]
    (alone,) = searches_of([replace(made[0])], "one", 1)
    assert alone.value[0].tolist() == [0, 0]

"""Which trials go on, which one is chosen, and how ranks depend on the budget."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.tuning.space import Axis
from fedbench.tuning.stability import rank_stability
from fedbench.tuning.trials import Trial, edges, history, promoted, ranking, rungs


def trials(*scores, rounds=10):
    return [Trial(i, {}, {rounds: [s]}) for i, s in enumerate(scores)]


@pytest.mark.parametrize(
    ("rounds", "halving", "expected"),
    [(90, True, [10, 30, 90]), (20, True, [3, 7, 20]), (2, True, [1, 2]), (1, True, [1]), (90, False, [90])],
)
def test_rungs_are_thirds(rounds, halving, expected):
    assert rungs(rounds, halving) == expected


def test_a_third_goes_on():
    nine = trials(*range(9))
    assert [t.number for t in promoted(nine, nine, 10, 1)] == [6, 7, 8]
    assert [t.number for t in promoted(nine, nine, 10, -1)] == [0, 1, 2]
    two = trials(0.1, 0.2)
    assert [t.number for t in promoted(two, two, 10, 1)] == [1]  # one at least


def test_a_later_batch_is_measured_against_all_trials():
    eight = trials(5, 6, 7, 8, 9, 10, 1, 9.5)
    assert [t.number for t in promoted(eight[6:], eight, 10, 1)] == [7]
    assert promoted(eight[6:7], eight[:7], 10, 1) == []


def test_a_trial_that_diverged_goes_nowhere_and_is_not_chosen():
    some = trials(None, 0.1, None)
    assert [t.number for t in promoted(some, some, 10, 1)] == [1]
    assert [t.number for t in ranking(some, 10, 1)] == [1]
    half = Trial(0, {}, {10: [0.9, None]})  # on one of two seeds
    assert half.mean() is None
    assert ranking([half], 10, 1) == []
    assert promoted([half], [half], 10, 1) == []


def test_only_trials_that_were_trained_to_the_end_are_ranked():
    early = Trial(0, {}, {5: [0.9]})
    late = Trial(1, {}, {5: [0.5], 10: [0.6]})
    assert ranking([early, late], 10, 1) == [late]
    assert (early.rounds, late.rounds, late.mean(), late.mean(5)) == (5, 10, 0.6, 0.5)


def test_of_equal_trials_the_earlier_one_is_chosen():
    assert [t.number for t in ranking(trials(0.3, 0.7, 0.7), 10, 1)] == [1, 2, 0]


def test_the_edges_of_a_choice():
    space = [Axis("local.lr", low=0.01, high=1, log=True), Axis("algo.mu", grid=(1, 2, 3))]
    assert edges(space, {"local.lr": 0.99, "algo.mu": 1}) == {"local.lr": "upper", "algo.mu": "lower"}
    assert edges(space, {"local.lr": 0.1, "algo.mu": 2}) == {}


# ---- ranks


def test_ranks_with_the_whole_budget_are_those_of_the_best_trials():
    found = rank_stability({"a": [0.1, 0.5], "b": [0.6, 0.2], "c": [0.4, 0.5]})
    assert found.rank[:, -1].tolist() == [2.5, 1.0, 2.5]  # a and c are level
    assert found.first[:, -1].tolist() == [0, 1, 0]


def test_ranks_with_one_trial_are_those_of_random_trials():
    """a has 0 or 3, b always 1: with one trial, a is ahead in half of the orders, and with both always."""
    found = rank_stability({"a": [0, 3], "b": [1, 1]}, orders=20_000)
    assert found.first[0] == pytest.approx([0.5, 1.0], abs=0.02)
    assert found.rank[0] == pytest.approx([1.5, 1.0], abs=0.02)


def test_resampled_ranks_tend_to_those_over_all_orders():
    scores = {"a": [0.1, 0.4, 0.9], "b": [0.3, 0.5, 0.2]}
    orders = [(p, q) for p in permutations(scores["a"]) for q in permutations(scores["b"])]
    exact = [np.mean([max(p[:b]) > max(q[:b]) for p, q in orders]) for b in (1, 2, 3)]
    assert rank_stability(scores, orders=20_000).first[0] == pytest.approx(exact, abs=0.02)


@given(st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3), min_size=2, max_size=4))
def test_ranks_add_up(scores):
    found = rank_stability({str(i): s for i, s in enumerate(scores)}, orders=50)
    m = len(scores)
    assert found.rank.sum(0) == pytest.approx(np.full(3, m * (m + 1) / 2))
    assert (found.first.sum(0) <= 1 + 1e-12).all()


def test_a_method_whose_trials_all_diverged_is_last():
    found = rank_stability({"a": [-np.inf, -np.inf], "b": [0.0, 0.1]})
    assert found.rank.tolist() == [[2, 2], [1, 1]]


def test_budgets_end_where_the_shortest_list_does():
    assert rank_stability({"a": [1, 2, 3], "b": [1, 2]}).budgets.tolist() == [1, 2]


def test_scores_of_different_rounds_are_never_compared():
    """From the worst: diverged, then the trials that ended first, whatever their scores, and by score within."""
    reached = [
        Trial(0, {"a": 0}, {3: [0.9]}),  # ended early; its score would be the best of all
        Trial(1, {"a": 1}, {3: [0.95], 9: [0.2]}),  # went on
        Trial(2, {"a": 2}, {3: [0.1]}),
        Trial(3, {"a": 3}, {3: [0.99], 9: [0.3], 27: [0.1]}),  # to the end
        Trial(4, {"a": 4}, {3: [0.98], 9: [None]}),
        Trial(5, {"a": 5}, {3: [0.1]}),
    ]
    places = {values["a"]: place for values, place in history(reached, 1)}
    assert places[4] < places[2] == places[5] < places[0] < places[1] < places[3]
    downward = {values["a"]: place for values, place in history(reached, -1)}  # of a loss
    assert downward[4] < downward[0] < downward[2] == downward[5] < downward[1] < downward[3]


def test_a_trial_that_ended_early_is_never_chosen():
    trials = [Trial(0, {"a": 0}, {3: [0.9]}), Trial(1, {"a": 1}, {3: [0.8], 9: [0.1]})]
    assert [t.number for t in ranking(trials, 9, 1)] == [1]

"""Pareto fronts by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.analysis.fronts import front_shares, on_front

NAN = np.nan


def front(x, y, *signs):
    return on_front(np.array(x, dtype=float), np.array(y, dtype=float), *signs).tolist()


def test_a_front_by_hand():
    """(3, 1) and (1, 3) are the ends, (2, 2) lies between them, (2, 1) is dominated by it, (1, 1) by all."""
    assert front([3, 1, 2, 2, 1], [1, 3, 2, 1, 1]) == [True, True, True, False, False]


def test_equal_points_are_on_the_front_together_and_one_equal_metric_decides():
    assert front([2, 2, 2], [5, 5, 4]) == [True, True, False]


def test_lower_may_be_better():
    """Higher accuracy and lower STD: (90, 5) dominates (80, 6); (95, 9) is better in the first only."""
    assert front([90, 80, 95], [5, 6, 9], 1, -1) == [True, False, True]
    assert front([90, 80, 95], [5, 6, 9], 1, 1) == [False, False, True]


def test_a_missing_number_is_not_on_the_front_and_dominates_none():
    assert front([NAN, 1, 9], [9, 1, NAN]) == [False, True, False]


def test_shares_are_sure_where_every_seed_agrees():
    x, y = np.array([[3.0, 1.0, 2.0], [4.0, 2.0, 3.0]]), np.array([[1.0, 3.0, 0.5], [1.0, 3.0, 0.5]])
    assert front_shares(x, y).tolist() == [1, 1, 0]


def test_shares_of_two_seeds_by_hand():
    """The second method is better in seed 0, worse in seed 1, and on average as good: on the front unless both draws
    are seed 1, in 3 of 4 samples; likewise the first."""
    x = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert front_shares(x, x) == pytest.approx([0.75, 0.75], abs=0.04)  # 4 standard errors of 2000 draws


def test_a_method_without_a_seed_is_on_the_fronts_of_the_other_seeds():
    x = np.array([[NAN, 0.0], [1.0, 0.0]])
    assert front_shares(x, x)[0] == pytest.approx(0.25, abs=0.04)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12))
def test_every_point_is_on_the_front_or_dominated_by_one_that_is(points):
    x, y = np.array(points, dtype=float).T
    member = on_front(x, y)
    assert member.any()
    for i in np.flatnonzero(~member):
        assert any(x[j] >= x[i] and y[j] >= y[i] and (x[j] > x[i] or y[j] > y[i]) for j in np.flatnonzero(member))
    for i in np.flatnonzero(member):
        assert not any(x[j] >= x[i] and y[j] >= y[i] and (x[j] > x[i] or y[j] > y[i]) for j in range(len(x)))

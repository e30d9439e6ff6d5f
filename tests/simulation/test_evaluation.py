"""Metrics of the accuracies of clients: identities, and columns by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.simulation.evaluation import (
    accuracy_metrics,
    angle_degrees,
    kl_uniform,
    tail_size,
    weighted_tail,
)

fractions = st.lists(
    st.floats(0, 1),
    min_size=1,
    max_size=40,
).map(np.array)


# identity 17
@given(fractions)
def test_tangent_of_the_angle_is_std_over_mean(a):
    a = a + 1e-6
    tangent = np.tan(np.radians(angle_degrees(a)))
    assert tangent == pytest.approx(a.std() / a.mean(), rel=1e-9, abs=1e-12)


@given(fractions)
def test_kl_is_zero_exactly_for_equal_accuracies(a):
    kl = kl_uniform(a)
    assert 0 <= kl <= np.log(len(a)) + 1e-12
    if np.ptp(a) > 1e-3:
        assert kl > 1e-12
    assert kl_uniform(np.full(len(a), 0.3)) == pytest.approx(0, abs=1e-12)


def test_accuracies_of_zero():
    zeros = np.zeros(4)
    assert angle_degrees(zeros) == 90
    assert kl_uniform(zeros) == 0
    assert kl_uniform(np.array([1.0, 0.0])) == pytest.approx(np.log(2))


@pytest.mark.parametrize(
    ("n", "percent", "count"),
    [(16, 30, 4), (100, 29, 29), (10, 5, 1), (3, 30, 1), (40, 5, 2)],
)
def test_tails_count_down(n, percent, count):
    """floor, at least one; 0.29 * 100 is 28.999... in floating point and still 29."""
    assert tail_size(n, percent) == count


def test_ties_at_the_edge_of_a_tail_are_shared():
    """Three of ten clients: one, and for two places three tied ones of sizes 1, 2 and 9."""
    a = np.array([0.5, 0.9, 0.5, 0.2, 1.0, 0.5, 0.9, 1.0, 1.0, 1.0])
    n = np.array([1.0, 7, 2, 6, 5, 9, 8, 5, 5, 5])
    tied = (1 + 2 + 9) * 2 / 3
    shared = (0.2 * 6 + 0.5 * tied) / (6 + tied)
    assert weighted_tail(a, 30, n) == pytest.approx(shared, rel=1e-12)


scores = st.sampled_from([0.0, 0.25, 0.5, 1.0])


@given(
    st.lists(
        st.tuples(scores, st.integers(1, 50)),
        min_size=2,
        max_size=30,
    ),
    st.randoms(),
)
def test_metrics_do_not_depend_on_the_order_of_the_clients(clients, random):
    shuffled = random.sample(clients, len(clients))
    one, two = (accuracy_metrics(*np.transpose(order)) for order in (clients, shuffled))
    assert one == pytest.approx(two, rel=1e-9, abs=1e-9)


def test_tails_and_kl_of_ten_clients():
    a = np.array([0.1, 0.9, 0.3, 0.5, 0.2, 0.8, 1.0, 0.4, 0.6, 0.7])
    n = np.array([5, 1, 2, 9, 3, 1, 4, 2, 8, 6])
    p = a / a.sum()
    columns = {
        "accuracy_worst30_weighted": (0.1 * 5 + 0.2 * 3 + 0.3 * 2) / 10,
        "accuracy_worst30": 0.2,
        "accuracy_best30": 0.9,
        "kl_uniform": (p * np.log(10 * p)).sum(),
    }
    metrics = accuracy_metrics(a, n)
    assert {name: metrics[name] for name in columns} == pytest.approx(columns)


def test_columns_by_hand():
    """Two clients, 1 of 1 and 1 of 3 right."""
    columns = {
        "accuracy_mean": 2 / 3,
        "accuracy_std": 1 / 3,
        "accuracy_variance": 1 / 9,
        "accuracy_mean_weighted": 2 / 4,
        "accuracy_std_weighted": np.sqrt((1 * 0.25 + 3 * (1 / 6) ** 2) / 4),
        "accuracy_min": 1 / 3,
        "accuracy_max": 1,
        "accuracy_worst30_weighted": 1 / 3,
    }
    metrics = accuracy_metrics(np.array([1.0, 1 / 3]), np.array([1, 3]))
    assert {name: metrics[name] for name in columns} == pytest.approx(columns)

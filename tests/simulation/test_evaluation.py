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

fractions = st.lists(st.floats(0, 1), min_size=1, max_size=40).map(np.array)


# identity 17
@given(fractions)
def test_tangent_of_the_angle_is_std_over_mean(a):
    a = a + 1e-6
    assert np.tan(np.radians(angle_degrees(a))) == pytest.approx(
        a.std() / a.mean(), rel=1e-9, abs=1e-12
    )
    cosine = a.sum() / (np.sqrt(len(a)) * np.linalg.norm(a))
    assert np.cos(np.radians(angle_degrees(a))) == pytest.approx(cosine, abs=1e-12)


@given(fractions)
def test_kl_is_zero_exactly_for_equal_accuracies(a):
    kl = kl_uniform(a)
    assert 0 <= kl <= np.log(len(a)) + 1e-12
    if np.ptp(a) > 1e-3:
        assert kl > 1e-12
    assert kl_uniform(np.full(len(a), 0.3)) == pytest.approx(0, abs=1e-12)


def test_kl_by_hand():
    """a = (3, 1)/4: 0.75 ln 1.5 + 0.25 ln 0.5 nats."""
    a = np.array([0.6, 0.2])
    assert kl_uniform(a) == pytest.approx(0.75 * np.log(1.5) + 0.25 * np.log(0.5))
    assert kl_uniform(np.array([1.0, 0.0])) == pytest.approx(np.log(2))
    assert kl_uniform(np.zeros(3)) == 0


def test_all_zero_has_an_angle_of_90():
    assert angle_degrees(np.zeros(4)) == 90


@pytest.mark.parametrize(
    ("n", "percent", "count"),
    [(16, 30, 4), (100, 29, 29), (10, 5, 1), (3, 30, 1), (20, 5, 1), (40, 5, 2)],
)
def test_tails_count_down(n, percent, count):
    """floor, at least one; 0.29 * 100 is 28.999... in floating point and still 29."""
    assert tail_size(n, percent) == count


def test_weights_count_inside_the_tail_only():
    a = np.array([0.0, 0.5, 0.9, 1.0, 1.0, 1.0, 1.0])
    w = np.array([1.0, 3.0, 50.0, 1, 1, 1, 1])
    assert weighted_tail(a, 30, w) == pytest.approx((0 * 1 + 0.5 * 3) / 4)


def test_ties_at_the_edge_of_a_tail_are_shared():
    """Three of ten clients: one below the edge, and three tied ones of sizes 1, 2 and 9 for the two places left."""
    a = np.array([0.5, 0.9, 0.5, 0.2, 1.0, 0.5, 0.9, 1.0, 1.0, 1.0])
    n = np.array([1.0, 7, 2, 6, 5, 9, 8, 5, 5, 5])
    shared = (0.2 * 6 + 0.5 * (1 + 2 + 9) * 2 / 3) / (6 + (1 + 2 + 9) * 2 / 3)
    assert weighted_tail(a, 30, n) == pytest.approx(shared, rel=1e-12)


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(1, 50)),
        min_size=2,
        max_size=30,
    ),
    st.randoms(),
)
def test_metrics_do_not_depend_on_the_order_of_the_clients(clients, random):
    shuffled = random.sample(clients, len(clients))
    one, two = (accuracy_metrics(*map(np.array, zip(*c, strict=True))) for c in (clients, shuffled))
    assert one == pytest.approx(two, rel=1e-9, abs=1e-9)


def test_every_column_is_its_own_function():
    """Ten clients with different sizes: the weighted tail, the best tails and KL in nats are what they are called."""
    a = np.array([0.1, 0.9, 0.3, 0.5, 0.2, 0.8, 1.0, 0.4, 0.6, 0.7])
    n = np.array([5, 1, 2, 9, 3, 1, 4, 2, 8, 6])
    m = accuracy_metrics(a, n)
    assert m["accuracy_worst30_weighted"] == pytest.approx((0.1 * 5 + 0.2 * 3 + 0.3 * 2) / 10)
    assert m["accuracy_worst30"] == pytest.approx(0.2)
    assert m["accuracy_best30"] == pytest.approx(0.9)
    assert m["accuracy_best10"] == m["accuracy_max"] == 1.0
    p = a / a.sum()
    assert m["kl_uniform"] == pytest.approx((p * np.log(10 * p)).sum())


def test_columns_by_hand():
    """Two clients, 1 of 1 and 1 of 3 right: mean 2/3, STD 1/3, weighted mean 2/4, weighted variance by hand."""
    m = accuracy_metrics(np.array([1.0, 1 / 3]), np.array([1, 3]))
    assert m["accuracy_mean"] == pytest.approx(2 / 3)
    assert m["accuracy_std"] == pytest.approx(1 / 3)
    assert m["accuracy_variance"] == pytest.approx(1 / 9)
    assert m["accuracy_mean_weighted"] == pytest.approx(0.5)
    assert m["accuracy_std_weighted"] == pytest.approx(np.sqrt((1 * 0.25 + 3 * (1 / 6) ** 2) / 4))
    assert (m["accuracy_min"], m["accuracy_max"]) == pytest.approx((1 / 3, 1))
    assert m["accuracy_worst30"] == m["accuracy_worst30_weighted"] == pytest.approx(1 / 3)
    assert m["angle_degrees"] == pytest.approx(np.degrees(np.arctan(0.5)))

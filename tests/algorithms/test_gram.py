"""Projections and quadratic programs against independent solutions and their conditions of optimality."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import box_simplex, onto_simplex
from scipy.optimize import nnls

from fedbench.algorithms.shared.gram import gram, shortest_combination, shortest_in_hull
from fedbench.algorithms.shared.mixtures import normalized, project_simplex


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20))
def test_projection_is_the_one_found_by_bisection(values):
    v = np.array(values)
    found = project_simplex(torch.from_numpy(v)).numpy()
    assert found == pytest.approx(onto_simplex(v), abs=1e-12)
    assert found.sum() == pytest.approx(1, abs=1e-12)


def test_projection_by_hand():
    """(1.3, 0.2): θ = 0.3 with one entry, since 0.2 < (1.5 - 1)/2; a partial sum without the entry gives (1.05, 0)."""
    assert project_simplex(torch.tensor([1.3, 0.2])).tolist() == pytest.approx([1.0, 0.0])
    assert project_simplex(torch.tensor([0.6, 0.6, -1.0])).tolist() == pytest.approx(
        [0.5, 0.5, 0.0]
    )


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_projection_of_what_is_not_finite_is_not_a_number(value):
    """So that a run with such losses counts as diverged."""
    assert project_simplex(torch.tensor([0.5, value, 0.2])).isnan().any()
    assert project_simplex(torch.tensor([value, value])).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gram_in_blocks(monkeypatch, dtype):
    monkeypatch.setattr("fedbench.algorithms.shared.gram._COLUMNS", 30)
    g = torch.randn(4, 101, dtype=dtype, generator=torch.Generator().manual_seed(0))
    assert gram(g).dtype == torch.float64
    assert torch.allclose(gram(g), g.double() @ g.double().T, rtol=0, atol=1e-12)


def residual(k, x, low, high):
    """By how much the conditions of optimality fail: no weight can move from a higher to a lower slope."""
    slope = k @ x
    from_, to = slope[x > low + 1e-10], slope[x < high - 1e-10]
    worst = from_.max() - to.min() if len(from_) and len(to) else 0.0
    return (
        max(worst, 0) / (np.trace(k) / len(k)),
        abs(x.sum() - 1),
        max((low - x).max(), (x - high).max(), 0),
    )


@pytest.mark.parametrize("seed", range(60))
def test_shortest_combination(seed):
    """Independent, dependent and repeated vectors, tight and wide bounds, tiny lengths."""
    rng = np.random.default_rng(seed)
    size, width = (6, 25, 60)[seed % 3], (4, 20, 100)[seed // 3 % 3]
    g = rng.normal(size=(size, width)) * (1e-7 if seed % 4 == 0 else 1)
    g[1] = g[0] if seed % 5 == 0 else g[1]
    prior, eps = rng.dirichlet(np.ones(size)), (1e-6, 1e-3, 0.05, 0.5, 1)[seed % 5]
    low, high = np.maximum(prior - eps, 0), np.minimum(prior + eps, 1)
    k = g @ g.T
    x = shortest_combination(*map(torch.from_numpy, (k, low, high))).numpy()
    assert residual(k, x, low, high) <= (1e-8, 1e-10, 0)
    assert max(residual(k, x, low, high)) < 1e-8
    if size == 6:
        ridge = 1e-12 * np.trace(k) / size * np.eye(size)
        assert x @ g == pytest.approx(
            box_simplex(k + ridge, low, high) @ g, abs=1e-6 * np.sqrt(np.trace(k))
        )


@pytest.mark.parametrize(
    ("a", "b"), [((1, 0), (0, 1)), ((1, 0), (3, 0)), ((2, 1), (-1, 1)), ((1, 1), (1, 1))]
)
def test_two_vectors_by_hand(a, b):
    """λ = clip((b - a)·b / ||a - b||², 0, 1)."""
    a, b = np.array(a, float), np.array(b, float)
    g = np.stack([a, b])
    x = shortest_combination(
        torch.from_numpy(g @ g.T), torch.zeros(2, dtype=torch.float64), torch.ones(2).double()
    )
    gap = (a - b) @ (a - b)
    want = np.clip((b - a) @ b / gap, 0, 1) if gap else 0.5
    assert x.tolist() == pytest.approx([want, 1 - want], abs=1e-8)


@pytest.mark.parametrize(
    ("seed", "noise"), [(seed, noise) for seed in range(4) for noise in (1.0, 0.03, 0.003)]
)
def test_shortest_in_the_hull_of_nearly_equal_vectors(seed, noise):
    """The shortest point is that of non-negative least squares, to 1e-9 also where clients hardly differ."""
    rng = np.random.default_rng(seed)
    g = rng.normal(size=40) + noise * rng.normal(size=(10, 40))
    # Lawson and Hanson's active sets
    best = nnls(np.vstack([g.T, np.ones(10)]), np.append(np.zeros(40), 1.0))[0]
    on = np.flatnonzero(best)
    weight = np.linalg.solve(g[on] @ g[on].T, np.ones(len(on)))
    d = weight @ g[on] / weight.sum()
    x = shortest_in_hull(torch.from_numpy(g @ g.T)).numpy()
    assert x.min() >= 0
    assert x.sum() == pytest.approx(1, abs=1e-12)
    assert np.linalg.norm(x @ g - d) <= 1e-9 * np.linalg.norm(d)


@pytest.mark.parametrize("seed", range(4))
def test_more_vectors_than_dimensions_around_the_origin(seed):
    """The shortest point has many combinations; for seeds 0 and 2 the solver's own start leads into a cycle."""
    rng = np.random.default_rng(seed)
    g = rng.normal(size=15) + 3 * rng.normal(size=(101, 15))
    g /= np.linalg.norm(g, axis=1, keepdims=True)
    k, low, high = g @ g.T, np.zeros(101), np.ones(101)
    for x in (
        shortest_in_hull(torch.from_numpy(k)).numpy(),
        shortest_combination(*map(torch.from_numpy, (k, low, high))).numpy(),
    ):
        assert max(residual(k, x, low, high)) < 1e-8


@pytest.mark.parametrize("eps", [0.0, 1e-300, 1e-17, 1e-9])
def test_bounds_that_leave_no_choice_are_the_prior(eps):
    prior = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    k = gram(torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    found = shortest_combination(k, prior - eps, prior + eps)
    assert found.tolist() == pytest.approx(prior.tolist(), abs=2e-9)


def test_bounds_that_leave_nothing_are_an_error():
    with pytest.raises(ArithmeticError, match="quadratic program of 2 clients was not solved"):
        shortest_combination(
            torch.eye(2).double(), torch.zeros(2).double(), torch.full((2,), 0.2).double()
        )


def test_normalized_weights_are_uniform_if_all_are_0():
    assert normalized(torch.tensor([1.0, 3.0])).tolist() == [0.25, 0.75]
    assert normalized(torch.zeros(4)).tolist() == [0.25] * 4

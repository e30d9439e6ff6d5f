"""Projections and quadratic programs against independent solutions and their conditions of
optimality.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import box_simplex
from reference_fair import onto_simplex
from scipy.optimize import nnls
from toy_problems import D, vector

from fedbench.algorithms.shared.gram import gram, shortest_combination, shortest_in_hull
from fedbench.algorithms.shared.mixtures import normalized, project_simplex


@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=20),
)
def test_the_projection_is_the_one_found_by_bisection(values):
    projected = project_simplex(vector(*values))
    assert projected == pytest.approx(onto_simplex(np.array(values)), abs=1e-12)
    assert projected.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    "values",
    [
        [0.5, np.nan, 0.2],
        [0.5, np.inf, 0.2],
        [np.inf, np.inf],
    ],
)
def test_the_projection_of_values_that_are_not_finite_is_not_a_number(values):
    """So that a run with such losses counts as diverged."""
    assert project_simplex(vector(*values)).isnan().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gram_matrix_is_summed_in_blocks_in_float64(monkeypatch, dtype):
    monkeypatch.setattr("fedbench.algorithms.shared.gram._COLUMNS", 30)
    g = torch.randn(
        4,
        101,
        dtype=dtype,
        generator=torch.Generator().manual_seed(0),
    )
    k = gram(g)
    assert k.dtype == torch.float64
    assert torch.allclose(
        k,
        g.double() @ g.double().T,
        rtol=0,
        atol=1e-12,
    )


def combination(k, low, high):
    matrices = (torch.as_tensor(v, dtype=D) for v in (k, low, high))
    return shortest_combination(*matrices).numpy()


def residual(k, x, low, high):
    """Return by how much the conditions of optimality fail: no weight can move from a higher to a
    lower slope.
    """
    slope = k @ x
    can_fall = slope[x > low + 1e-10]
    can_rise = slope[x < high - 1e-10]
    gain = 0.0
    if len(can_fall) and len(can_rise):
        gain = max(can_fall.max() - can_rise.min(), 0) / np.trace(k) * len(k)
    outside = max(
        (low - x).max(),
        (x - high).max(),
        0,
    )
    return max(gain, abs(x.sum() - 1), outside)


@pytest.mark.parametrize("seed", range(60))
def test_the_shortest_combination_is_optimal(seed):
    """Independent, dependent and repeated vectors, tight and wide bounds, tiny lengths."""
    rng = np.random.default_rng(seed)
    size = (6, 25, 60)[seed % 3]
    width = (4, 20, 100)[seed // 3 % 3]
    eps = (1e-6, 1e-3, 0.05, 0.5, 1)[seed % 5]
    g = rng.normal(size=(size, width))
    if seed % 4 == 0:
        g *= 1e-7
    if seed % 5 == 0:
        g[1] = g[0]
    prior = rng.dirichlet(np.ones(size))
    low = np.maximum(prior - eps, 0)
    high = np.minimum(prior + eps, 1)

    k = g @ g.T
    x = combination(k, low, high)
    assert residual(k, x, low, high) < 1e-8
    if size == 6:
        ridge = 1e-12 * np.trace(k) / size * np.eye(size)
        want = box_simplex(k + ridge, low, high) @ g
        assert x @ g == pytest.approx(want, abs=1e-6 * np.sqrt(np.trace(k)))


@pytest.mark.parametrize("noise", [1.0, 0.03, 0.003])
@pytest.mark.parametrize("seed", range(4))
def test_shortest_in_the_hull_of_nearly_equal_vectors(seed, noise):
    """The shortest point is that of non-negative least squares, to 1e-9 also where clients hardly
    differ.
    """
    rng = np.random.default_rng(seed)
    g = rng.normal(size=40) + noise * rng.normal(size=(10, 40))
    k = g @ g.T

    # Lawson and Hanson's active sets
    solution = nnls(np.vstack([g.T, np.ones(10)]), np.append(np.zeros(40), 1.0))[0]
    active = np.flatnonzero(solution)
    weight = np.linalg.solve(k[np.ix_(active, active)], np.ones(len(active)))
    d = weight @ g[active] / weight.sum()

    x = shortest_in_hull(torch.from_numpy(k)).numpy()
    assert x.min() >= 0
    assert x.sum() == pytest.approx(1, abs=1e-12)
    assert np.linalg.norm(x @ g - d) <= 1e-9 * np.linalg.norm(d)


@pytest.mark.parametrize("seed", range(4))
def test_more_vectors_than_dimensions_around_the_origin(seed):
    """The shortest point has many combinations; for seeds 0 and 2 the solver's own start leads into
    a cycle.
    """
    rng = np.random.default_rng(seed)
    g = rng.normal(size=15) + 3 * rng.normal(size=(101, 15))
    g /= np.linalg.norm(g, axis=1, keepdims=True)
    k = g @ g.T
    low, high = np.zeros(101), np.ones(101)
    hull = shortest_in_hull(torch.from_numpy(k)).numpy()
    for x in (hull, combination(k, low, high)):
        assert residual(k, x, low, high) < 1e-8


@pytest.mark.parametrize("eps", [0.0, 1e-300, 1e-17, 1e-9])
def test_bounds_that_leave_no_choice_are_the_prior(eps):
    prior = np.array([0.2, 0.3, 0.5])
    g = np.random.default_rng(0).normal(size=(3, 5))
    assert combination(
        g @ g.T,
        prior - eps,
        prior + eps,
    ) == pytest.approx(prior, abs=2e-9)


def test_bounds_that_leave_nothing_are_an_error():
    with pytest.raises(ArithmeticError, match="quadratic program of 2 clients was not solved"):
        combination(np.eye(2), [0, 0], [0.2, 0.2])


def test_normalized_weights_are_uniform_if_all_are_0():
    assert normalized(torch.tensor([1.0, 3.0])).tolist() == [0.25, 0.75]
    assert normalized(torch.zeros(4)).tolist() == [0.25] * 4

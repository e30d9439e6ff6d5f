"""Gram matrices of a cohort's vectors, and quadratic programs on them, in float64."""

import numpy as np
import torch
from torch import Tensor

# weight of the proximal term, relative to the mean squared length; the rounding error is at most
# 1e-10 / _PROXIMAL
_PROXIMAL = 1e-6
_TOLERANCE = 1e-11  # of the solver, on sums and bounds
_NARROW = 1e-6  # if the bounds leave less freedom than this, there is only one choice
_STEPS = 50  # maximum; if x changes by s in a step, the residual is _PROXIMAL * s
_COLUMNS = 2**22  # number of values converted to float64 at once


def gram(g: Tensor) -> Tensor:
    """Return G Gᵀ [C, C] of G [C, P] in float64, summed over blocks of columns."""
    width = max(1, _COLUMNS // len(g))
    total = g.new_zeros(len(g), len(g), dtype=torch.float64)
    for block in g.split(width, 1):
        wide = block.double()
        total.addmm_(wide, wide.T)
    return total


def shortest_combination(
    k: Tensor,
    low: Tensor,
    high: Tensor,
) -> Tensor:
    """Return argmin λᵀ K λ over Σ λ = 1, low <= λ <= high.

    Args:
        k: Positive semi-definite matrix [C, C], float64.
        low: Lower bounds [C], with Σ low < 1.
        high: Upper bounds [C], with Σ high > 1.

    The solver is a dual active-set method (DAQP: Arnström, Bemporad & Axehill, IEEE TAC 2022) on
    the host, with proximal steps, so that K may be singular. The optimality conditions hold to
    within 1e-8 of the mean squared length.

    Raises:
        ArithmeticError: If the solver finds no solution.
    """
    on_host = [v.numpy(force=True) for v in (k, low, high)]
    return torch.from_numpy(_quadratic_program(*on_host)).to(k)


def shortest_in_hull(k: Tensor) -> Tensor:
    """Return the weights [C] of the shortest point in the convex hull of some vectors.

    Args:
        k: Inner products of the vectors [C, C], float64.

    The quadratic program stops at a small residual, but for nearly equal vectors the error may
    still be large. The weights of the vectors that it selects are therefore recomputed from a
    linear system, if the result satisfies the optimality conditions better.

    Raises:
        ArithmeticError: If the solver finds no solution.
    """
    products = k.numpy(force=True)
    size = len(products)
    # 2, because an upper bound of 1 could be active together with Σ λ = 1
    low = np.zeros(size)
    high = np.full(size, 2.0)
    weights = _quadratic_program(products, low, high)
    used = np.flatnonzero(weights > _TOLERANCE)
    rows = len(used) + 1
    system = np.zeros((rows, rows))  # K λ = const and Σ λ = 1
    among_used = products[np.ix_(used, used)]
    system[:-1, :-1] = among_used / _mean_square(products)
    system[-1, :-1] = 1
    system[:-1, -1] = 1
    exact = np.zeros(size)
    constants = np.append(np.zeros(len(used)), 1.0)
    solution, *_ = np.linalg.lstsq(system, constants, rcond=None)
    exact[used] = solution[:-1]
    residual = _unevenness(products @ weights, used)
    if (exact >= 0).all() and _unevenness(products @ exact, used) <= residual:
        weights = exact
    return torch.from_numpy(weights).to(k)


def _unevenness(slope: np.ndarray, used: np.ndarray) -> float:
    """Return the largest excess of the slopes K λ over their minimum where λ > 0; 0 is optimal."""
    return float(slope[used].max() - slope.min())


def _mean_square(k: np.ndarray) -> float:
    """Return the mean squared length of the vectors, above 0."""
    tiny = float(np.finfo(np.float64).tiny)
    return max(float(np.trace(k)) / len(k), tiny)


def _quadratic_program(
    k: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> np.ndarray:
    """Return the weights of ``shortest_combination``."""
    import daqp

    size = len(k)
    # λ = low + rest · x with Σ x = 1: tight bounds are then not smaller than the solver's
    # tolerances
    rest = 1 - low.sum()
    if rest < _NARROW:  # only one choice
        even: np.ndarray = low + rest / size
        return even
    k_unit = k / _mean_square(k)
    upper = np.append((high - low) / rest, 1.0)
    lower = np.append(np.zeros(size), 1.0)
    kind = np.array([0] * size + [5], dtype=np.int32)  # bounds, then an equality
    x = np.full(size, 1 / size)
    for _ in range(_STEPS):
        before = x
        pull = k_unit @ low / rest - _PROXIMAL * x
        curvature = k_unit + _PROXIMAL * np.eye(size)
        sums = np.ones((1, size))
        problem = (curvature, pull, sums, upper, lower, kind)
        x, _, status, _ = daqp.solve(*problem, primal_tol=_TOLERANCE)
        if status != 1:  # with more vectors than dimensions, a cold start can cycle
            x, _, status, _ = daqp.solve(*problem, primal_tol=_TOLERANCE, primal_start=before)
        if status != 1:
            raise ArithmeticError(
                f"the quadratic program of {size} clients was not solved (DAQP status {status})"
            )
        step = np.abs(x - before).max()
        if _PROXIMAL * step < 1e-12:
            break
    weights: np.ndarray = np.clip(low + rest * x, low, high)
    return weights

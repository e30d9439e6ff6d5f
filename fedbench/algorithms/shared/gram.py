"""Small problems on the vectors of a cohort, in float64: Gram matrices, projections, quadratic programs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_PROXIMAL = 1e-6  # weight of the proximal term, in units of the mean squared length; 1e-10 / this bounds the rounding
_TOLERANCE = 1e-11  # on sums and bounds
_NARROW = 1e-6  # if the bounds leave less than this free, there is only one choice
_STEPS = 50  # at most; a step of x by s leaves a residual of _PROXIMAL * s
_COLUMNS = 2**22  # values turned into float64 at once


def gram(g: Tensor) -> Tensor:
    """Return G Gᵀ [C, C] of G [C, P] in float64, summed over blocks of columns."""
    width = max(1, _COLUMNS // len(g))
    total = g.new_zeros(len(g), len(g), dtype=torch.float64)
    for block in g.split(width, 1):
        wide = block.double()
        total.addmm_(wide, wide.T)
    return total


def combination(weights: Tensor, g: Tensor) -> Tensor:
    """Return Σ ω_k g_k [P] in float64, ω [C] float64 and g [C, P], in blocks of columns."""
    width = max(1, _COLUMNS // len(g))
    return torch.cat([weights @ block.double() for block in g.split(width, 1)])


def project_simplex(v: Tensor) -> Tensor:
    """Return the point of the simplex {λ >= 0, Σ λ = 1} that is nearest to v [N] (Duchi et al., ICML 2008, Fig. 1).

    θ = (Σ_{i<=r} u_i - 1)/r with u sorted downwards and r the last position where u_r > (Σ_{i<=r} u_i - 1)/r; the sum
    includes the entry itself.
    """
    u = v.sort(descending=True).values
    theta = (u.cumsum(0) - 1) / torch.arange(1, len(v) + 1, device=v.device, dtype=v.dtype)
    last = (u > theta).sum() - 1
    return (v - theta.index_select(0, last.view(1))).clamp_min(0)


def shortest_combination(k: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return argmin λᵀ K λ over Σ λ = 1, low <= λ <= high.

    Args:
        k: Positive semi-definite matrix [C, C], float64.
        low: Lower bounds [C], with Σ low < 1.
        high: Upper bounds [C], with Σ high > 1.

    A dual active-set method (DAQP: Arnström, Bemporad & Axehill, IEEE TAC 2022) on the host, in proximal steps, so that
    K may be singular. The conditions of optimality hold to 1e-8 of the mean squared length.

    Raises:
        ArithmeticError: If the solver finds no solution.
    """
    import daqp

    host, least, most = (v.numpy(force=True).astype(np.float64) for v in (k, low, high))
    size = len(host)
    # λ = least + rest · x with Σ x = 1: tight bounds are then no smaller than the solver's tolerances
    rest = 1 - least.sum()
    if rest < _NARROW:  # there is nothing to choose
        return torch.from_numpy(least + rest / size).to(k)
    k_unit = host / max(float(np.trace(host)) / size, np.finfo(np.float64).tiny)
    upper, lower = np.append((most - least) / rest, 1.0), np.append(np.zeros(size), 1.0)
    kind = np.array([0] * size + [5], dtype=np.int32)  # bounds, then an equality
    x = np.full(size, 1 / size)
    for _ in range(_STEPS):
        before, pull = x, k_unit @ least / rest - _PROXIMAL * x
        x, _, status, _ = daqp.solve(
            k_unit + _PROXIMAL * np.eye(size), pull, np.ones((1, size)), upper, lower, kind, primal_tol=_TOLERANCE
        )
        if status == 1 and _PROXIMAL * np.abs(x - before).max() < 1e-12:
            break
        if status != 1:
            raise ArithmeticError(f"the quadratic program of {size} clients was not solved (DAQP status {status})")
    return torch.from_numpy(np.clip(least + rest * x, least, most)).to(k)

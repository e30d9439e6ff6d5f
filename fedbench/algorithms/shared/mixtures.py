"""Weights of clients as points of the simplex {λ >= 0, Σ λ = 1}."""

import torch
from torch import Tensor


def normalized(v: Tensor) -> Tensor:
    """Return v / Σ v [C]; uniform weights if the sum is 0."""
    total = v.sum()
    return torch.where(total > 0, v / total, 1 / len(v))


def project_simplex(v: Tensor) -> Tensor:
    """Return the point of the simplex {λ >= 0, Σ λ = 1} nearest to v [N].

    Duchi et al. (ICML 2008, Fig. 1): θ = (Σ_{i<=r} u_i - 1)/r with u sorted in descending order and
    r the last position where u_r > (Σ_{i<=r} u_i - 1)/r; the sum includes u_r itself. Non-finite
    values give NaN.
    """
    u = v.sort(descending=True).values
    r = torch.ones_like(v).cumsum(0)
    theta = (u.cumsum(0) - 1) / r
    above = (u > theta).sum()
    last = (above - 1).clamp_min(0)  # comparisons with NaN are false
    chosen = theta.index_select(0, last.view(1))
    return (v - chosen).clamp_min(0)

"""Parts of FedMDFG (Pan et al., AAAI 2023): its direction with fair guidance, and its search for a step size."""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor

from fedbench.algorithms.shared.gram import gram, shortest_in_hull
from fedbench.core.types import State, weighted_sum

_ZERO = 1e-12  # of the longest vector: a client that did not move
_STILL = 1e-6  # of the mean vector: a shortest point of this length is an error of the quadratic program


def direction(g: Tensor, loss: Tensor, kept: Tensor, theta: float, forced: Tensor) -> State:
    """Return the shortest common descent direction of vectors of one length, with a row towards equal losses if needed.

    Args:
        g: The clients' vectors [C, P].
        loss: Their losses [C], float64.
        kept: Vectors of absent clients [K, P], taken as they are.
        theta: Angle in degrees between the losses and equal losses, above which the guidance is active.
        forced: Whether it is active at any angle.

    Returns:
        "d" [P], with the length of the mean vector, or 0 if the vectors have no common descent direction; "stretch",
        its length over that of the shortest point; "slope" [C], d's products with the vectors; "live" [C], which
        clients moved; "fair", whether the guidance is active; "rows" [L, P], the vectors of those that moved, at their
        mean length.
    """
    count, rows = len(g), torch.cat([g, kept])
    k = gram(rows)
    length = k.diagonal()[:count].sqrt()
    live = (length > _ZERO * length.max()) & (length > 0)
    scale = torch.ones_like(k[0])
    scale[:count] = torch.where(live, length[live].mean() / length, 0.0)
    k = k * scale * scale.unsqueeze(1)
    towards, angle = _towards_equal(loss, live)
    fair = (angle > theta) | forced
    mixing = torch.eye(len(k), dtype=k.dtype, device=k.device)[torch.cat([live, live.new_ones(len(kept))])]
    if bool(fair) and bool(towards.any()):
        row = torch.zeros_like(k[:1])
        row[0, :count] = towards
        mixing = torch.cat([mixing, row])
    weight, mean = torch.zeros_like(k[0]), torch.zeros_like(k[0])
    if live.any():
        inner = mixing @ k @ mixing.T
        weight = shortest_in_hull(inner) @ mixing
        mean[:count] = live.double() / live.sum()
    shortest = weighted_sum(weight * scale, rows)
    ours, theirs = (torch.linalg.vector_norm(v) for v in (weighted_sum(mean * scale, rows), shortest))
    stretch = torch.where(theirs > _STILL * ours, ours / theirs, 0.0)
    return {
        "d": stretch * shortest,
        "stretch": stretch,
        "slope": stretch * (k @ weight)[:count],
        "live": live,
        "fair": fair,
        "rows": g[live] * scale[:count][live].unsqueeze(1).to(g.dtype),
    }


def _towards_equal(loss: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """Return h [C], the unit part of -1̂ normal to F̂ (0 if the losses are equal), and their angle in degrees."""
    unit = torch.nn.functional.normalize(loss * live, dim=0, eps=0.0).nan_to_num(0.0)
    ones = live / live.sum().clamp_min(1).double().sqrt()
    h = (ones @ unit) * unit - ones
    size = torch.linalg.vector_norm(h)
    angle = torch.atan2(size, ones @ unit) * (180 / pi)  # arccos would lose half of the digits at small angles
    known = (size > _ZERO) & unit.any()
    return torch.where(known, h / size, 0.0), torch.where(known, angle, 0.0)


def step_sizes(base: float, s: int, stretch: float, changed: bool) -> Tensor:
    """Return the step sizes to try: from 2^s · base, or base if the cohort has changed, down to 2^-s base / stretch.

    Each is half of the one before. A direction of length 0 (``stretch`` 0) has nothing to try but base.
    """
    sizes = [base if changed or not stretch else 2.0**s * base]
    while stretch and sizes[-1] / 2 >= 2.0**-s * base / stretch:
        sizes.append(sizes[-1] / 2)
    return torch.tensor(sizes, dtype=torch.float64)


def chosen(before: Tensor, tried: Tensor, least: Tensor, fair: Tensor) -> Tensor:
    """Return the position of the step size to take.

    That is the first that decreases every loss enough and, under guidance, brings the losses nearer to equal; else the
    first that decreases their sum; else the one with the smallest sum.

    Args:
        before: Losses at the broadcast model [C].
        tried: Losses at the candidates [C, J].
        least: Decreases that are enough [C, J].
        fair: Whether the guidance is active.
    """
    enough = (before.unsqueeze(1) - tried >= least).all(0)
    even = _evenness(tried) > _evenness(before)
    total = tried.sum(0).nan_to_num(torch.inf)
    good, lower = enough & (even | ~fair), total < before.sum()
    best = torch.where(lower.any(), lower.int().argmax(), total.argmin())
    return torch.where(good.any(), good.int().argmax(), best)


def _evenness(loss: Tensor) -> Tensor:
    """Return √C times the cosine of losses [C, ...] and equal losses."""
    cosine: Tensor = loss.sum(0) / torch.linalg.vector_norm(loss, dim=0)
    return cosine

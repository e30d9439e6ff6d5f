"""Robust rules for the vectors of C clients. Rows are [C, P]; results are float64."""

from collections.abc import Iterable
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fedbench.core.types import lengths, weighted_sum
from fedbench.scenarios.vectors import blocks, shrunk

# (a, b): a rule tolerates f attackers among C vectors if C >= a f + b
Bound: TypeAlias = tuple[int, int]
BOUNDS: dict[str, Bound] = {
    "trimmed_mean": (2, 1),
    "krum": (2, 3),
    "multi_krum": (2, 3),
    "bulyan": (4, 3),
    "nnm": (1, 1),
}
# iterations stop if the median moves by less than this share of the largest initial distance
_STILL = 1e-9


def allowed(
    f: int,
    count: int,
    bounds: Iterable[Bound],
) -> int:
    """Return the largest number of attackers, at most f, that rules allow among ``count`` vectors.

    The result may be negative.
    """
    most = [f]
    for a, b in bounds:
        most.append((count - b) // a)
    return min(most)


def trimmed_mean(rows: Tensor, f: int) -> Tensor:
    """Return the mean per column without the f largest and the f smallest values, [P].

    Source: Yin et al., ICML 2018, Def. 2.
    """
    kept = _ranked(rows)[:, f : len(rows) - f]
    return kept.mean(1)


def median(rows: Tensor) -> Tensor:
    """Return the median per column, [P]; if there are two middle values, their mean.

    Source: Yin et al., ICML 2018, Def. 1.
    """
    return trimmed_mean(rows, (len(rows) - 1) // 2)


def nearest_to_median(rows: Tensor, count: int) -> Tensor:
    """Return the mean per column of the ``count`` values nearest to the median, [P].

    Ties go to lower values.
    """
    ranked = _ranked(rows)
    distance = (ranked - median(rows)[:, None]).abs()
    order = distance.sort(dim=1, stable=True).indices
    nearest = order[:, :count]
    return ranked.gather(1, nearest).mean(1)


def _ranked(rows: Tensor) -> Tensor:
    """Return the values of each column in ascending order, [P, C]."""
    return rows.T.contiguous().sort(1).values


def krum(squared: Tensor, f: int) -> Tensor:
    """Return the indices of the rows [C], sorted by Krum's score; ties go to the first row.

    Source: Blanchard et al., NeurIPS 2017, Sec. 4. The score of a row is the sum of its max(1, C -
    f - 2) smallest squared distances to other rows.

    Args:
        squared: Squared distances between rows, [C, C].
        f: Number of attackers.
    """
    others = squared.clone().fill_diagonal_(torch.inf)
    others = others.sort(dim=1).values
    neighbours = max(1, len(others) - f - 2)
    scores = others[:, :neighbours].sum(1)
    return scores.sort(stable=True).indices


def bulyan(squared: Tensor, f: int) -> Tensor:
    """Return the C - 2f rows that Krum chooses one by one (El Mhamdi et al., ICML 2018).

    The arguments are those of ``krum``.
    """
    squared = squared.cpu()  # each choice depends on the previous one
    left = list(range(len(squared)))
    chosen = []
    for _ in range(len(squared) - 2 * f):
        best = krum(squared[left][:, left], f)[0]
        chosen.append(left.pop(int(best)))
    return torch.tensor(chosen)


def nearest_rows(squared: Tensor, count: int) -> Tensor:
    """Return the weights [C, C] that average, for each row, the ``count`` rows nearest to it.

    Each row is among its own nearest rows; ties go to the first row (NNM; Allouah et al., AISTATS
    2023, Alg. 2).
    """
    order = squared.sort(dim=1, stable=True).indices
    nearest = order[:, :count]
    return torch.zeros_like(squared).scatter(1, nearest, 1 / count)


def buckets(drawn: np.ndarray, size: int) -> np.ndarray:
    """Return the weights [B, C] that average random groups of ``size`` clients.

    Source: Karimireddy et al., ICLR 2022, Alg. 1. Groups are in the order of their first clients;
    the group with the largest draws may be smaller.

    Args:
        drawn: A random number for each client [C].
        size: Number of clients in a group.
    """
    order = np.argsort(drawn, kind="stable")
    group = np.argsort(order) // size
    together = group[:, None] == group  # [C, C]
    first = together.argmax(1) == np.arange(len(group))
    members = together[first].astype(np.float64)
    weights: np.ndarray = members / members.sum(1, keepdims=True)
    return weights


def geometric_median(
    squared: Tensor,
    p: Tensor,
    iterations: int,
    nu: float,
) -> Tensor:
    """Return weights b [C] for which z = Σ b_k v_k is the argmin of Σ p_k ‖v_k - z‖.

    The weights come from smoothed Weiszfeld iterations (RFA, Pillutla et al., 2022, Alg. 2), which
    do not need the vectors: since Σ b_k = 1, ‖v_k - z‖² = (D b)_k - b' D b / 2.

    Args:
        squared: The squared distances D between the v_k, [C, C].
        p: Weights [C] float64, which sum to 1.
        iterations: Largest number of iterations.
        nu: Lower bound on distances, as a share of the largest initial distance.
    """

    def apart(b: Tensor) -> Tensor:
        squares = squared @ b - b @ squared @ b / 2
        return squares.clamp(min=0).sqrt()

    b = p
    largest = apart(p).max()
    moving = largest > 0  # stays on the device, so that the host does not wait
    for _ in range(iterations):
        beta = p / apart(b).clamp(min=nu * largest)
        change = torch.where(moving, beta / beta.sum() - b, 0)
        b = b + change
        square = -change @ squared @ change / 2
        moved = square.clamp(min=0).sqrt()
        moving = moving & (moved >= _STILL * largest)
    return b


def centered_clipping(
    rows: Tensor,
    centre: Tensor,
    radius: float | Tensor | Literal["median"],
    steps: int,
) -> Tensor:
    """Return the centre [P] after repeatedly adding the mean of the clipped differences.

    Source: Karimireddy et al., ICML 2021, Alg. 2.

    Args:
        rows: The vectors.
        centre: Initial centre [P] float64.
        radius: Clipping bound on the length of a difference; "median" is the median length at the
            first step.
        steps: Number of steps.
    """
    for _ in range(steps):
        centres = centre.expand_as(rows)
        parts = []
        for block, c in zip(blocks(rows), blocks(centres), strict=True):
            length = lengths(block.double() - c)
            parts.append(length.square())
        apart = torch.stack(parts).sum(0).sqrt()
        if isinstance(radius, str):
            radius = median(apart[:, None])
        share = shrunk(apart, radius) / len(rows)
        centre = centre + weighted_sum(share, rows) - share.sum() * centre
    return centre

"""Projections of conflicting updates (FedFV: Wang et al., IJCAI 2021), on the host and in terms of inner products.

An update is a combination of the given ones; a projection takes one step after another, and each is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
import torch
from torch import Tensor

from fedbench.core.types import ClientInfo


@np.errstate(invalid="ignore")  # an update that is not finite makes the direction NaN, and the run counts as diverged
def without_conflicts(k: Tensor, age: Tensor, cohort: ClientInfo, alpha: float, ages: Sequence[int]) -> Tensor:
    """Return FedFV's direction before it is scaled, as a combination [M] of the updates.

    Args:
        k: Inner products of M updates [M, M], float64; those of the cohort come first.
        age: Rounds since each of them was made [M].
        cohort: The cohort, with its losses.
        alpha: Share of its clients, those with the highest losses, whose updates are kept.
        ages: Ages of the updates that it is held against, in their order.
    """
    host, old, loss, ids = (v.numpy(force=True) for v in (k, age, cohort.probe["loss"], cohort.id))
    count = len(ids)
    order = np.lexsort((ids, loss))  # of equal losses the client with the smaller number comes first
    g = np.zeros(len(host))
    g[:count] = _internal(host[:count, :count], order, alpha).mean(0)
    for a in ages:
        s = ((old == a) & (host @ g < 0)).astype(float)
        along, square = s @ host @ g, s @ host @ s
        if along < 0 and square > 0:
            g = g - along / square * s
    return torch.from_numpy(g).to(k)


def _internal(k: np.ndarray, order: np.ndarray, alpha: float) -> np.ndarray:
    """Return each update without its parts along those that it conflicts with, as combinations [C, C]."""
    count = len(k)
    kept = count - ceil((count - 1) * (1 - alpha) - 1e-9) if alpha else 0
    h, moving = np.eye(count), np.ones(count)
    moving[order[count - kept :]] = 0
    for j in order:  # Δ_j is the original update, h the moving ones
        if k[j, j] > 0:
            along = np.minimum(h @ k[j], 0) * moving
            along[j] = 0
            h[:, j] -= along / k[j, j]
    return h

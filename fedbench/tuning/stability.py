"""Do methods keep their ranks when the budget is smaller? From the trials at hand, in resampled orders.

Rankings of training algorithms depend on the number of trials that each is given (Dahl et al., 2023, AlgoPerf).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_ORDERS = 2000


@dataclass(frozen=True)
class Stability:
    """Ranks by budget.

    Attributes:
        budgets: Numbers of trials [B].
        methods: The methods [M].
        rank: Mean rank of each method, 1 is best [M, B]; equal scores share their mean rank.
        first: Share of the orders in which each method is alone in front [M, B].
    """

    budgets: np.ndarray
    methods: tuple[str, ...]
    rank: np.ndarray
    first: np.ndarray


def rank_stability(scores: Mapping[str, Sequence[float]], orders: int = _ORDERS, seed: int = 0) -> Stability:
    """Return the ranks that methods would have had with smaller budgets.

    With budget b, a method has the best of the first b of its trials, in a random order of them. Orders are drawn
    independently for the methods.

    Args:
        scores: Scores of the trials per method, higher is better; -inf for trials without one.
        orders: Number of random orders.
        seed: Random seed of the orders.
    """
    methods, rng = tuple(scores), np.random.default_rng(seed)
    most = min(len(s) for s in scores.values())
    best = np.stack([_best_so_far(np.asarray(scores[m], float), orders, rng)[:, :most] for m in methods])
    ahead, level = ((relation(best[None], best[:, None])).sum(1) for relation in (np.greater, np.equal))
    ranks = ahead + (level + 1) / 2  # [M, orders, B]
    return Stability(np.arange(1, most + 1), methods, ranks.mean(1), (ranks == 1).mean(1))


def _best_so_far(scores: np.ndarray, orders: int, rng: np.random.Generator) -> np.ndarray:
    """Return the best of the first trials in random orders, [orders, trials]."""
    shuffled = rng.permuted(np.tile(scores, (orders, 1)), axis=1)
    best: np.ndarray = np.maximum.accumulate(shuffled, axis=1)
    return best

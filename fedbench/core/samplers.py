"""The clients that take part in a round."""

from __future__ import annotations

from math import ceil

import numpy as np

from fedbench.core.algorithm import Sampler
from fedbench.core.randomness import Purpose, hashes, key, without_replacement


def cohort_size(participation: float | int, clients: int) -> int:
    """Return the number of clients that take part: a fraction is rounded up."""
    # 1e-9: 0.1 * 30 is a little more than 3 in floating point
    return max(1, ceil(participation * clients - 1e-9)) if isinstance(participation, float) else participation


def sample_cohort(participation: float | int = 1.0, by_size: bool = False) -> Sampler:
    """Return a sampler: (round, training examples per client [N], seed) -> ids of the cohort, ascending.

    Args:
        participation: Fraction of the N clients in (0, 1], rounded up, or a number of clients.
        by_size: Whether to draw with probability proportional to the number of training examples, not uniformly.

    Clients without training examples are never drawn. Sampling is without replacement.
    """

    def sampler(round: int, n: np.ndarray, seed: int) -> np.ndarray:
        able = int((n > 0).sum())
        size = min(cohort_size(participation, len(n)), able)
        return without_replacement(key(seed, Purpose.SAMPLING, round), size, n, uniform=not by_size)

    return sampler


def one_by_one(round: int, n: np.ndarray, seed: int) -> np.ndarray:
    """A sampler of one client per round: all clients with training examples in turn, in a new order every turn."""
    able = np.flatnonzero(n)
    turn, place = divmod(round, len(able))
    order = np.argsort(hashes(key(seed, Purpose.SAMPLING, turn), able), kind="stable")
    return able[order[place : place + 1]]

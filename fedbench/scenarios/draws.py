"""The draws of scenarios, each a pure function of (seed, purpose, coordinates), and the clients that they are about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedbench.core.randomness import Purpose, fold_in, hashes, key


@dataclass(frozen=True)
class Population:
    """All N clients of a run.

    Attributes:
        seed: Random seed of the run.
        n: Their numbers of training examples [N].
        per_epoch: Their numbers of batches in an epoch [N].
        steps: Their planned local steps [N], with the mean number of epochs where that is drawn.
        fixed_steps: Whether every client takes the same number of steps.
        labels: Returns the training examples of every class of every client [N, classes]; None for tokens.
        planned: Number of clients in a cohort.
        rounds: Planned rounds, over all stages.
        participation: Fraction of the clients in a cohort, or their number.
        by_size: Whether cohorts are drawn by size.
        shapes: Shapes of the model's tensors, in the order in which a vector [P] has them.
    """

    seed: int
    n: np.ndarray
    per_epoch: np.ndarray
    steps: np.ndarray
    fixed_steps: bool
    labels: Callable[[], np.ndarray] | None
    planned: int
    rounds: int = 0
    participation: float | int = 1.0
    by_size: bool = False
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def able(self) -> np.ndarray:
        """The clients that have training examples."""
        return np.flatnonzero(self.n)


def uniform(h: np.ndarray) -> np.ndarray:
    """Numbers in (0, 1) from 63-bit hashes."""
    u: np.ndarray = (h.astype(np.float64) + 0.5) / 2.0**63
    return u


def normal(h: Tensor) -> Tensor:
    """Numbers from the standard normal distribution from 63-bit hashes, float64."""
    z: Tensor = torch.special.ndtri((h.double() + 0.5) / 2.0**63)
    return z


def of_clients(seed: int, purpose: Purpose, ids: np.ndarray, *, round: int | None = None) -> np.ndarray:
    """Hashes of clients [C], of a round or for the whole run."""
    return hashes(key(seed, purpose) if round is None else key(seed, purpose, round), ids)


def traits(seed: int, ids: np.ndarray, number: int) -> np.ndarray:
    """Hashes of the clients for one of their traits, which stay the same over the run."""
    at = torch.from_numpy(ids)
    return fold_in(key(seed, Purpose.TRAITS), at, torch.full_like(at, number)).numpy()

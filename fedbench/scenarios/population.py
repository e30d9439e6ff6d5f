"""The clients of a run, and the random draws of scenarios.

A draw is a pure function of (seed, purpose, coordinates).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedbench.core.errors import RequestError
from fedbench.core.randomness import (
    Purpose,
    cohort_size,
    fold_in,
    key,
)
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.local_work import LocalWork


@dataclass(frozen=True)
class Population:
    """All N clients of a run.

    Attributes:
        seed: Random seed of the run.
        data: The data set.
        work: The local work of the run.
        participation: Fraction of the clients in a cohort, or their number.
        rounds: Number of planned rounds over all stages.
        by_size: Whether cohorts are sampled by client size.
        selection: Configuration key that selects cohorts by losses; "" if none does.
        shapes: Shapes of the model's tensors, in the order of their values in a vector [P].
    """

    seed: int
    data: FederatedDataset
    work: LocalWork
    participation: float | int = 1.0
    rounds: int = 0
    by_size: bool = False
    selection: str = ""
    shapes: Sequence[tuple[int, ...]] = ()

    @property
    def n(self) -> np.ndarray:
        """Number of training examples of each client [N]."""
        return self.data.train.counts

    @property
    def able(self) -> np.ndarray:
        """Ids of the clients with training examples."""
        return np.flatnonzero(self.n)

    @property
    def planned(self) -> int:
        """Number of clients in a cohort if all clients can be reached."""
        size = cohort_size(self.participation, len(self.n))
        return min(size, len(self.able))

    def labels(self) -> np.ndarray:
        """Return the number of training examples per client and class [N, classes].

        Raises:
            RequestError: If examples have one label per token.
        """
        if self.data.y.dim() > 1:
            raise RequestError(
                "availability.by=labels and availability.assign=label need examples with a class "
                "each, and these have one per token; use by=size and assign=random"
            )
        y = self.data.y.numpy(force=True)
        return self.data.train.label_counts(y, self.data.classes)


def uniform(h: np.ndarray) -> np.ndarray:
    """Return uniform numbers in (0, 1) computed from 63-bit hashes."""
    u: np.ndarray = (h + 0.5) / 2.0**63
    return u


def normal(h: Tensor) -> Tensor:
    """Return standard normal numbers, float64, computed from 63-bit hashes."""
    u = (h.double() + 0.5) / 2.0**63
    z: Tensor = torch.special.ndtri(u)
    return z


def shuffled(base: int, ids: np.ndarray) -> np.ndarray:
    """Return clients in the order of their hashes.

    Args:
        base: Key of the draw.
        ids: Ids of the clients.
    """
    order = np.argsort(fold_in(base, ids), kind="stable")
    ordered: np.ndarray = ids[order]
    return ordered


def traits(
    seed: int,
    ids: np.ndarray,
    number: int,
) -> np.ndarray:
    """Return hashes of the clients for one trait, which is constant over the run."""
    base = key(seed, Purpose.TRAITS)
    return fold_in(base, torch.from_numpy(ids), torch.tensor(number)).numpy()

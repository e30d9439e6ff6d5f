"""Selection of cohorts by the losses that candidate clients report."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from torch import Tensor

from fedbench.core.randomness import Purpose, cohort_size, key, without_replacement
from fedbench.core.types import to_device

_LEAST = 1e-10  # added to losses that serve as weights, so that clients without loss can be drawn


class Asked(NamedTuple):
    """Candidates of a round and their answers."""

    ids: np.ndarray  # [A], ascending
    losses: Tensor  # [A] float64, F_k at the broadcast model

    def of(self, ids: np.ndarray) -> Tensor:
        """Return the losses of some of the candidates, [C]."""
        places = np.searchsorted(self.ids, ids)
        return self.losses[to_device(places, self.losses.device)]


@dataclass(frozen=True)
class LossSelection:
    """Selection of cohorts among candidates whose losses are measured first.

    Attributes:
        rule: Rule of the selection. ``power_of_choice``: candidates are drawn by their number of
            training examples, and those with the largest losses are selected (Cho, Wang, Joshi,
            AISTATS 2022); ``loss``: candidates are drawn uniformly, and the cohort among them with
            probability proportional to the losses.
        participation: Fraction of the N clients in a cohort, or their number.
        candidates: Fraction of the N clients that are candidates, or their number.
    """

    rule: Literal["power_of_choice", "loss"]
    participation: float | int
    candidates: float | int

    def candidates_of(
        self,
        round: int,
        n: np.ndarray,
        seed: int,
    ) -> np.ndarray:
        """Return the ids of the candidates, ascending.

        Args:
            round: Number of rounds done before.
            n: Training examples of each client [N]; 0 for clients that cannot be reached.
            seed: Random seed of the run.
        """
        return without_replacement(
            key(seed, Purpose.CANDIDATES, round),
            cohort_size(self.candidates, len(n)),
            n,
            uniform=self.rule == "loss",
        )

    def cohort_of(
        self,
        round: int,
        asked: Asked,
        clients: int,
        seed: int,
    ) -> np.ndarray:
        """Return the ids of the selected candidates, ascending.

        A loss that is not a number counts as infinite.

        Args:
            round: Number of rounds done before.
            asked: The candidates.
            clients: Number of clients N.
            seed: Random seed of the run.
        """
        size = cohort_size(self.participation, clients)
        losses = asked.losses.numpy(force=True)
        losses = np.where(np.isnan(losses), np.inf, losses)
        if self.rule == "power_of_choice":
            # the sort is stable, so the smaller of two ids with equal losses comes first
            order = np.argsort(-losses, kind="stable")
            return np.sort(asked.ids[order[:size]])

        weight = np.zeros(clients)
        weight[asked.ids] = losses + _LEAST
        return without_replacement(
            key(seed, Purpose.SAMPLING, round),
            size,
            weight,
            uniform=False,
        )

"""Coordinate-wise median of the updates (Yin et al., ICML 2018, Option I)."""

from torch import Tensor

from fedbench.core.algorithm import Algorithm, descent, server_descent
from fedbench.core.optim import SGD, Optimizer
from fedbench.core.options import Positive
from fedbench.core.types import ClientInfo, State


def median(local: Optimizer = SGD, *, server_lr: Positive = 1.0) -> Algorithm:
    """W <- w - η_g median_k Δ_k, coordinate by coordinate.

    For an even number of updates, this is the lower of the two middle values.
    Identity: with a single client it is FedAvg.
    """

    def direction(up: State, cohort: ClientInfo) -> Tensor:
        return up["delta"].median(0).values  # [C, P] -> [P]

    return Algorithm(
        **descent(local),
        **server_descent(lr=server_lr, direction=direction),
        weights="uniform",
    )

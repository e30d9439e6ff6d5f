"""SiloBN (Andreux et al., 2020): FedAvg; every client keeps its running statistics."""

from fedbench.core.algorithm import Algorithm, Weights, descent
from fedbench.core.optim import Optimizer


def silobn(
    local: Optimizer,
    *,
    weights: Weights = "size",
) -> Algorithm:
    """SiloBN: weights and biases of BatchNorm are averaged, its running statistics are not.

    This is ``parts.statistics=local``. Every client is evaluated with its own statistics.

    Source: Andreux et al., DCL workshop 2020 (arXiv 2008.07424).

    Args:
        local: The local solver.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: with ``parts.statistics=average`` the method is FedAvg.
    """
    return Algorithm(**descent(local), weights=weights, statistics="local")

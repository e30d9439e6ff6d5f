"""SiloBN (Andreux et al., 2020): FedAvg; every client keeps its running statistics."""

from fedbench.core.algorithm import Algorithm, Weights, averaging_method
from fedbench.core.optim import Optimizer
from fedbench.core.options import Positive


def silobn(
    local: Optimizer,
    *,
    server_lr: Positive = 1.0,
    weights: Weights = "size",
) -> Algorithm:
    """SiloBN: weights and biases of BatchNorm are averaged, its running statistics are not.

    This is ``parts.statistics=local``. Every client is evaluated with its own statistics.

    Source: Andreux et al., DCL workshop 2020 (arXiv 2008.07424).

    Args:
        local: The local solver.
        server_lr: Server step size η_g.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: with ``parts.statistics=average`` the method is FedAvg.
    """
    return averaging_method(
        local,
        server_lr,
        weights,
        statistics="local",
    )

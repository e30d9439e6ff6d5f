"""FedAvgM."""

from fedbench.core.algorithm import Algorithm, Weights, averaging_method
from fedbench.core.optim import Optimizer, sgd
from fedbench.core.options import HalfOpenUnit, Positive


def fedavgm(
    local: Optimizer,
    *,
    server_lr: Positive = 1.0,
    beta: HalfOpenUnit = 0.9,
    nesterov: bool = False,
    weights: Weights = "size",
) -> Algorithm:
    """FedAvgM: v <- β v + Σ p_k Δ_k; w <- w - η_g v.

    Source: Hsu, Qi & Brown, 2019.

    There is no factor 1-β, so the stationary step is 1/(1-β) times that of FedAvg.

    Args:
        local: The local solver.
        server_lr: Server step size η_g.
        beta: Momentum β in [0, 1).
        nesterov: Whether to step along Σ p_k Δ_k + β v. Deviation if true: the paper has no
            Nesterov variant.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: β = 0 is FedAvg.
    """
    # without momentum, Nesterov's look-ahead is the direction itself
    server = sgd(momentum=beta, nesterov=nesterov and beta > 0)
    return averaging_method(local, server_lr, weights, server)

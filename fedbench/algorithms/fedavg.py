"""FedAvg."""

from fedbench.core.algorithm import Algorithm, Weights, averaging_method
from fedbench.core.optim import Optimizer
from fedbench.core.options import Positive


def fedavg(
    local: Optimizer,
    *,
    server_lr: Positive = 1.0,
    weights: Weights = "size",
) -> Algorithm:
    """FedAvg: w <- w - η_g Σ p_k Δ_k.

    Source: McMahan et al., AISTATS 2017, Alg. 1.

    Args:
        local: The local solver.
        server_lr: Server step size η_g; with 1, the average of the local models replaces the model.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: if every client takes one full-batch step, the method is gradient descent on Σ p_k F_k
    with rate η_g η_l.
    """
    return averaging_method(local, server_lr, weights)

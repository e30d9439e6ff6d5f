"""FedCM."""

from fedbench.algorithms.shared.averages import blended, with_mean_gradient
from fedbench.core.algorithm import Algorithm, Weights
from fedbench.core.optim import Optimizer, without
from fedbench.core.options import Positive, UnitInterval


def fedcm(
    local: Optimizer,
    *,
    alpha: UnitInterval = 0.1,
    server_lr: Positive = 1.0,
    weights: Weights = "uniform",
) -> Algorithm:
    """FedCM: local steps that partly follow the mean gradient m of the previous round.

    Source: Xu et al., 2021.

    Local: w <- w - η_l (α ∇F_k(w; batch) + (1-α) m). Server: m <- Σ p_k Δ_k / (η_l τ_k), initially
    0; w <- w - η_g Σ p_k Δ_k.

    Args:
        local: The local solver, plain SGD.
        alpha: Share α in [0, 1] of the client's own gradient.
        server_lr: Server step size η_g, applied to Δ_k (the paper's step size applies to gradients
            and equals ours times η_l τ_k).
        weights: Weights p_k, "uniform" (the paper) or by number of training examples ("size").

    Raises:
        RequestError: If the local solver is not plain SGD, because Δ_k / (η_l τ_k) would not be a
            mean of gradients.

    Identity: α = 1 is FedAvg; with one full-batch step per round, the method is FedAvgM with
    β = 1-α and η_g = α; with α = 0, the model never changes.
    """
    without(local, "fedcm", "Δ_k / (η_l τ_k) is a mean of gradients only under plain SGD")
    return with_mean_gradient(blended(alpha), server_lr, weights)

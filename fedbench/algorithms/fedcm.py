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
    """FedCM: every local step goes partly along the mean gradient m of the round before.

    Source: Xu et al., 2021.

    Local: w <- w - η_l (α ∇F_k(w; batch) + (1-α) m). Server: m <- Σ p_k Δ_k / (η_l τ_k), from 0;
    w <- w - η_g Σ p_k Δ_k.

    Args:
        local: The local solver, plain SGD.
        alpha: Share α in [0, 1] of the client's own gradient.
        server_lr: The server's step size η_g, for Δ_k (the paper's is for gradients: ours times η_l
            τ_k).
        weights: Weights p_k, "uniform" (the paper) or by number of training examples ("size").

    Raises:
        RequestError: If the local solver is not plain, since Δ_k / (η_l τ_k) would be no mean of
            gradients.

    Identity: α = 1 is FedAvg; one full-batch step per round is FedAvgM with β = 1-α and η_g = α; α
    = 0 never moves.
    """
    without(local, "fedcm", "Δ_k / (η_l τ_k) is a mean of gradients only under plain SGD")
    return with_mean_gradient(blended(alpha), server_lr, weights)

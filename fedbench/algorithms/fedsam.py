"""Sharpness-aware local steps: FedSAM and MoFedSAM."""

from fedbench.algorithms.shared.averages import with_mean_gradient
from fedbench.algorithms.shared.sharpness import uphill
from fedbench.core.algorithm import Algorithm, Weights, descent, server_descent
from fedbench.core.optim import Optimizer, without
from fedbench.core.options import NonNegative, Positive, UnitInterval


def fedsam(
    local: Optimizer,
    *,
    rho: NonNegative = 0.1,
    server_lr: Positive = 1.0,
    weights: Weights = "uniform",
) -> Algorithm:
    """FedSAM: local steps with the gradient at a nearby point of higher loss.

    Source: Qu et al., ICML 2022.

    ŵ = w + ρ g/||g||, g = ∇F_k(w; batch) as one vector; w <- w - η_l ∇F_k(ŵ; batch), with the same
    batch. If g = 0, ŵ = w.

    Args:
        local: The local solver; clipping, decay and momentum act on the second gradient, and decay
            is evaluated at w.
        rho: Radius ρ.
        server_lr: Server step size η_g.
        weights: Weights p_k, "uniform" (the paper) or by number of training examples ("size").

    Identity: ρ = 0 is FedAvg; in general, the distance to FedAvg is O(ρ).
    """
    solver = descent(
        local, lambda oracle, msg, local, batch, info: uphill(oracle, local["w"], batch, rho)[1]
    )
    server = server_descent(lr=server_lr)
    return Algorithm(**solver, **server, weights=weights, any_loss=True)


def mofedsam(
    local: Optimizer,
    *,
    rho: NonNegative = 0.1,
    alpha: UnitInterval = 0.1,
    server_lr: Positive = 1.0,
    weights: Weights = "uniform",
) -> Algorithm:
    """MoFedSAM: FedSAM with local steps that partly follow the mean gradient m of the last round.

    Source: Qu et al., ICML 2022.

    ŵ = w + ρ g/||g||, g = ∇F_k(w; batch); w <- w - η_l (α ∇F_k(ŵ; batch) + (1-α) m), with the same
    batch. Server: m <- Σ p_k Δ_k / (η_l τ_k), initially 0; w <- w - η_g Σ p_k Δ_k.

    Args:
        local: The local solver, plain SGD.
        rho: Radius ρ.
        alpha: Share α in [0, 1] of the client's own gradient (the paper's β).
        server_lr: Server step size η_g.
        weights: Weights p_k, "uniform" (the paper) or by number of training examples ("size").

    Raises:
        RequestError: If the local solver is not plain SGD, because Δ_k / (η_l τ_k) would not be a
            mean of gradients.

    Identity: ρ = 0 is FedCM; α = 1 is FedSAM.
    """
    without(local, "mofedsam", "Δ_k / (η_l τ_k) is a mean of gradients only under plain SGD")

    solver = descent(
        gradient=lambda oracle, msg, local, batch, info: (
            alpha * uphill(oracle, local["w"], batch, rho)[1] + (1 - alpha) * msg["m"]
        )
    )
    return with_mean_gradient(solver, server_lr, weights)

"""FedAMS."""

from __future__ import annotations

from typing import Literal

from fedbench.core.algorithm import Algorithm, Weights, descent, server_descent
from fedbench.core.errors import boolean, choice, number
from fedbench.core.optim import SGD, Optimizer, amsgrad


def fedams(
    local: Optimizer = SGD,
    *,
    server_lr: float = 0.1,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
    option: Literal[1, 2] = 1,
    bias_correction: bool = False,
    weights: Weights = "uniform",
) -> Algorithm:
    """FedAMS (Wang, Lin & Chen, ICML 2022, Alg. 1): Adam on d = Σ p_k Δ_k with a denominator that never falls.

    m <- β1 m + (1-β1) d; v <- β2 v + (1-β2) d², both from 0. Option 1: v̂ <- max(v̂, v, τ), w <- w - η_g m / √v̂.
    Option 2 (FedAMSGrad, Tong et al.): v̂ <- max(v̂, v), w <- w - η_g m / (√v̂ + τ).

    Args:
        local: The local solver.
        server_lr: The server's step size η_g.
        beta1: Decay β1 of the first moment.
        beta2: Decay β2 of the second moment.
        tau: The paper's ε; with option 1 a lower bound of v̂, so that √τ is the smallest denominator.
        option: Number of the option, 1 or 2.
        bias_correction: Whether to use m/(1-β1^t) and √v̂/√(1-β2^t), as the authors' code does; the paper does not.
        weights: Weights p_k, "uniform" (paper) or by number of training examples ("size").

    Identity: as long as no coordinate of v has fallen, option 2 is FedAdam with v0 = 0.
    """
    server_lr = number("server_lr", server_lr, above=0)
    choice("option", option, (1, 2))
    boolean("bias_correction", bias_correction)
    server = amsgrad(beta1, beta2, tau, floor_inside=option == 1, bias_correction=bias_correction)
    return Algorithm(**descent(local), **server_descent(server, server_lr), weights=weights)

"""FedYogi."""

from __future__ import annotations

from fedbench.core.algorithm import Algorithm, Weights, descent, server_descent
from fedbench.core.errors import number
from fedbench.core.optim import SGD, Optimizer, yogi


def fedyogi(
    local: Optimizer = SGD,
    *,
    server_lr: float = 0.1,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
    v0: float | None = None,
    weights: Weights = "size",
) -> Algorithm:
    """FedYogi (Reddi et al., ICLR 2021, Alg. 2): Yogi on d = Σ p_k Δ_k, without bias correction.

    m <- β1 m + (1-β1) d; v <- v - (1-β2) d² sign(v - d²); w <- w - η_g m / (√v + τ).

    Args:
        local: The local solver.
        server_lr: The server's step size η_g.
        beta1: Decay β1 of the first moment.
        beta2: Decay β2 of the second moment.
        tau: Constant τ added to the denominator.
        v0: Initial value of v; None is τ².
        weights: Weights p_k, by number of training examples ("size", as in the paper's experiments) or "uniform" (as
            Alg. 2 prints).

    Identity: a coordinate whose v has reached d² keeps it, since sign(0) = 0.
    """
    server_lr = number("server_lr", server_lr, above=0)
    server = yogi(beta1, beta2, tau, v0)
    return Algorithm(**descent(local), **server_descent(server, server_lr), weights=weights)

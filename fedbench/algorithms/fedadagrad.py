"""FedAdagrad."""

from __future__ import annotations

from fedbench.core.algorithm import Algorithm, Weights, descent, server_descent
from fedbench.core.errors import number
from fedbench.core.optim import SGD, Optimizer, adagrad


def fedadagrad(
    local: Optimizer = SGD,
    *,
    server_lr: float = 0.1,
    beta1: float = 0.0,
    tau: float = 1e-3,
    v0: float | None = None,
    weights: Weights = "size",
) -> Algorithm:
    """FedAdagrad (Reddi et al., ICLR 2021, Alg. 2): Adagrad on d = Σ p_k Δ_k.

    m <- β1 m + (1-β1) d; v <- v + d²; w <- w - η_g m / (√v + τ).

    Args:
        local: The local solver.
        server_lr: The server's step size η_g.
        beta1: Decay β1 of the first moment; 0 in the paper's experiments.
        tau: Constant τ added to the denominator.
        v0: Initial value of v; None is τ².
        weights: Weights p_k, by number of training examples ("size", as in the paper's experiments) or "uniform" (as
            Alg. 2 prints).

    Identity: the first step is η_g (1-β1) d / (√(v0 + d²) + τ).
    """
    server_lr = number("server_lr", server_lr, above=0)
    server = adagrad(beta1, tau, v0)
    return Algorithm(**descent(local), **server_descent(server, server_lr), weights=weights)

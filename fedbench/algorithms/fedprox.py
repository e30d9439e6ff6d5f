"""FedProx."""

from fedbench.core.algorithm import Algorithm, ProximalTerm, Weights, descent, server_descent
from fedbench.core.optim import Optimizer
from fedbench.core.options import NonNegative, Positive


def fedprox(
    local: Optimizer,
    *,
    mu: NonNegative = 0.1,
    server_lr: Positive = 1.0,
    weights: Weights = "size",
) -> Algorithm:
    """FedProx: clients descend F_k(w) + μ/2 ||w - w^t||², gradient ∇F_k + μ (w - w^t).

    Source: Li et al., MLSys 2020, Alg. 2.

    Args:
        local: The local solver; clipping, decay and momentum act on the whole gradient, including
            the proximal term.
        mu: Strength μ of the proximal term.
        server_lr: Server step size η_g.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: μ = 0 is FedAvg. Deviation: all clients finish their local training; for the paper's
    stragglers, use ``availability=stragglers`` with kind=share and late=partial.
    """
    return Algorithm(
        **descent(local, extra=ProximalTerm(mu)),
        **server_descent(lr=server_lr),
        weights=weights,
    )

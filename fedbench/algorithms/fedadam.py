"""FedAdam."""

from __future__ import annotations

from fedbench.core.algorithm import Algorithm, Weights, descent, server_descent
from fedbench.core.errors import number
from fedbench.core.optim import SGD, Optimizer, adam


def fedadam(
    local: Optimizer = SGD,
    *,
    server_lr: float = 0.1,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
    v0: float | None = None,
    bias_correction: bool = False,
    eps_inside: bool = False,
    weights: Weights = "size",
) -> Algorithm:
    """FedAdam (Reddi et al., ICLR 2021, Alg. 2): Adam on d = Σ p_k Δ_k, without bias correction, v from τ².

    m <- β1 m + (1-β1) d; v <- β2 v + (1-β2) d²; w <- w - η_g m / (√v + τ). Two other methods have the same name:
    ``torch.optim.Adam`` on d (AdaFedAdam paper: server_lr=1e-3 beta2=.999 tau=1e-8 v0=0 bias_correction=true) and τ
    inside the root (AdaFed paper, Eqs. 28-30: eps_inside=true).

    Args:
        local: The local solver.
        server_lr: The server's step size η_g.
        beta1: Decay β1 of the first moment.
        beta2: Decay β2 of the second moment.
        tau: Constant τ added to the denominator.
        v0: Initial value of v; None is τ².
        bias_correction: Whether to use m/(1-β1^t) and v/(1-β2^t).
        eps_inside: Whether the denominator is √(v + τ) instead of √v + τ.
        weights: Weights p_k, by number of training examples ("size", as in the paper's experiments) or "uniform" (as
            Alg. 2 prints).

    Identity: v0 = 0, bias_correction and τ = ε is ``torch.optim.Adam`` fed with d as the gradient.
    """
    server_lr = number("server_lr", server_lr, above=0)
    server = adam(beta1, beta2, tau, v0, bias_correction, eps_inside)
    return Algorithm(**descent(local), **server_descent(server, server_lr), weights=weights)

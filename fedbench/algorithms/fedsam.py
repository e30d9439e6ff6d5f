"""FedSAM."""

from __future__ import annotations

from torch import Tensor

from fedbench.algorithms.shared.ascent import uphill
from fedbench.core.algorithm import Algorithm, Weights, descent, server_descent
from fedbench.core.errors import number
from fedbench.core.optim import SGD, Optimizer
from fedbench.core.types import Batch, ClientInfo, Oracle, State


def fedsam(
    local: Optimizer = SGD, *, rho: float = 0.1, server_lr: float = 1.0, weights: Weights = "uniform"
) -> Algorithm:
    """FedSAM (Qu et al., ICML 2022): local steps with the gradient at a nearby point of higher loss.

    ŵ = w + ρ g/||g||, g = ∇F_k(w; batch) as one vector; w <- w - η_l ∇F_k(ŵ; batch), the same batch. g = 0: ŵ = w.

    Args:
        local: The local solver; clipping, decay and momentum act on the second gradient, decay at w.
        rho: Radius ρ.
        server_lr: The server's step size η_g.
        weights: Weights p_k, "uniform" (the paper) or by number of training examples ("size").

    Identity: ρ = 0 is FedAvg; the distance to FedAvg is O(ρ).
    """
    rho, server_lr = number("rho", rho, at_least=0), number("server_lr", server_lr, above=0)

    def gradient(oracle: Oracle, msg: State, local: State, batch: Batch, info: ClientInfo) -> Tensor:
        return uphill(oracle, local["w"], batch, rho)[1]

    return Algorithm(**descent(local, gradient), **server_descent(lr=server_lr), weights=weights)

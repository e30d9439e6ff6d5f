"""FedSPS."""

import torch

from fedbench.core.algorithm import Algorithm
from fedbench.core.optim import Optimizer, without
from fedbench.core.options import Positive
from fedbench.core.types import Batch, ClientInfo, Oracle, State


def fedsps(
    local: Optimizer,
    *,
    c: Positive = 0.5,
    gamma_b: Positive = 1.0,
    l_star: float = 0.0,
) -> Algorithm:
    """FedSPS: local SGD with stochastic Polyak step sizes, averaged uniformly.

    Source: Mukherjee et al., 2023, Alg. 1.

    Each step uses the loss and gradient of one batch: γ = min((F_k(w; batch) - ℓ*) / (c ||∇F_k||²),
    γ_b); w <- w - γ ∇F_k. ``local.lr`` is not used.

    Args:
        local: The local solver, plain SGD, because the method has its own step size.
        c: Constant c in the denominator of the step size.
        gamma_b: Upper bound γ_b of the step size.
        l_star: Lower bound ℓ* of the loss; below it the step is 0.

    Identity: with a small γ_b, the method is FedAvg with rate γ_b and uniform weights; with c = ½,
    it solves a quadratic in one step.
    """
    without(local, "fedsps", "its step size comes from the batch's own loss and gradient")

    def step(
        oracle: Oracle,
        msg: State,
        local: State,
        batch: Batch,
        info: ClientInfo,
    ) -> State:
        loss, g = oracle.loss_and_grad(local["w"], batch)
        square = torch.linalg.vector_norm(
            g,
            dim=-1,
            keepdim=True,
            dtype=torch.float64,
        ).square()
        polyak = (loss - l_star).clamp_min(0) / (c * square)
        size = torch.where(square > 0, polyak, 0.0).clamp_max(gamma_b)
        w = torch.addcmul(local["w"], size.to(g.dtype), g, value=-1)
        return {"w": w}

    return Algorithm(step=step, weights="uniform")

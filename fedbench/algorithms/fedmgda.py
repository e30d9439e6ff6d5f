"""FedMGDA+."""

import torch
from torch import Tensor

from fedbench.algorithms.shared.gram import gram, shortest_combination
from fedbench.algorithms.shared.mixtures import normalized
from fedbench.core.algorithm import Algorithm, Weights, descent, server_descent
from fedbench.core.optim import Optimizer
from fedbench.core.options import Positive, UnitInterval
from fedbench.core.types import ClientInfo, State


def fedmgda(
    local: Optimizer,
    *,
    eps: UnitInterval = 0.5,
    server_lr: Positive = 1.0,
    normalize: bool = True,
    prior: Weights = "size",
) -> Algorithm:
    """FedMGDA+: the shortest mixture of unit updates near the prior weights.

    Source: Hu et al., IEEE TNSE 2022, Alg. 1.

    ḡ_k = Δ_k / ||Δ_k||; λ* = argmin ||Σ λ_k ḡ_k||² over the simplex with |λ_k - λ0_k| <= ε;
    w <- w - η_g Σ λ*_k ḡ_k. The step is not rescaled: its length is at most η_g.

    Args:
        local: The local solver.
        eps: Largest deviation ε in [0, 1] of a weight from its prior.
        server_lr: Server step size η_g, a length in parameter space if ``normalize``.
        normalize: Whether to divide Δ_k by its length.
        prior: Prior weights λ0, by number of training examples ("size") or "uniform".

    Identity: ε = 0 without normalisation is FedAvg; ε = 1 is MGDA: ḡ_k · d >= ||d||², with equality
    if λ_k > 0. Deviation: a client that did not move is left out and λ0 is renormalised; otherwise,
    it would prevent any step.
    """

    def direction(uploads: State, cohort: ClientInfo) -> Tensor:
        k = gram(uploads["delta"])
        length = k.diagonal().sqrt()
        moved = length > 0
        scale = torch.where(moved, 1 / length, 0.0) if normalize else moved.double()
        start = normalized(cohort.p.double() * moved)
        weight = start
        if eps and moved.sum() > 1:
            unit = k * scale * scale.unsqueeze(1)
            near = start[moved]
            weight = start.masked_scatter(
                moved,
                shortest_combination(
                    unit[moved][:, moved],
                    low=(near - eps).clamp_min(0),
                    high=(near + eps).clamp_max(1),
                ),
            )
        return (weight * scale).to(uploads["delta"].dtype) @ uploads["delta"]

    return Algorithm(
        **descent(local), **server_descent(lr=server_lr, direction=direction), weights=prior
    )

"""FedExP."""

import torch

from fedbench.core.algorithm import Algorithm, Weights, descent
from fedbench.core.optim import Optimizer
from fedbench.core.options import NonNegative
from fedbench.core.types import ClientInfo, State, lengths, weighted_sum


def fedexp(
    local: Optimizer,
    *,
    eps: NonNegative = 0.001,
    eps_per_client: bool = False,
    average: bool = True,
    weights: Weights = "size",
) -> Algorithm:
    """FedExP: a server rate that increases with the disagreement of the updates.

    Source: Jhunjhunwala, Wang & Joshi, ICLR 2023.

    d = Σ p_k Δ_k; η_g = max(1, Σ p_k ||Δ_k||² / (2 (||d||² + ε))); w <- w - η_g d.

    Args:
        local: The local solver.
        eps: The constant ε.
        eps_per_client: Whether ε is multiplied by C, as in the authors' code.
        average: Whether to deploy the mean of the last two models (after the first round, the last
            model); training continues from the last model.
        weights: Weights p_k, by number of training examples ("size") or "uniform" (the paper).

    Identity: with one client, equal updates or a large ε, the method is FedAvg; for C orthogonal
    updates of equal length with ε = 0 and uniform weights, η_g = C/2. Deviation: the authors' code
    lets ε decay with the square of a decaying local rate.
    """

    def update(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        delta = uploads["delta"]
        d = weighted_sum(cohort.p, delta)
        floor = eps * len(cohort.id) if eps_per_client else eps
        below = 2 * (d @ d + floor)
        above = cohort.p.double() @ lengths(delta).square()
        rate = torch.where(below > 0, above / below, 1.0).clamp_min(1.0)
        w = server["w"] - (rate * d).to(delta.dtype)
        mean = torch.where(server["t"] > 0, (server["w"] + w) / 2, w)
        return {
            "w": w,
            "mean": mean,
            "t": server["t"] + 1,
        }

    return Algorithm(
        **descent(local),
        server_init=lambda w, N: {
            "w": w,
            "mean": w,
            "t": w.new_zeros(()),
        },
        update=update,
        deploy=lambda server, clients: server["mean" if average else "w"],
        weights=weights,
    )

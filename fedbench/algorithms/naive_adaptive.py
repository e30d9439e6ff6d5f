"""Naive local-adaptive FedAvg."""

import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Descent, start_from_client, upload_with
from fedbench.core.optim import Optimizer, chain, without
from fedbench.core.options import HalfOpenUnit, NonNegative
from fedbench.core.types import State


def naive_adaptive(
    local: Optimizer,
    *,
    beta: HalfOpenUnit = 0.5,
    eps: NonNegative = 0.0,
) -> Algorithm:
    """FedAvg with each client's own second moment.

    Source: Wu et al., AAAI 2023, Alg. 1: their counter-example.

    v_k <- β v_k + (1-β) g², kept between rounds and never shared, from 0; w <- w - η_l g / (√v_k +
    ε), without bias correction or first moment; uniform averages.

    Args:
        local: Clipping and weight decay of the gradient; momentum is refused.
        beta: Decay β of the second moment.
        eps: Constant ε added to the denominator, 0 as printed; 1e-8 is safer in float32.

    Identity: β = 0, ε = 0 is a step by the sign of the gradient. Deviation: 0/0 is 0. Line 8 prints
    √v_{t,i} under a sum over j; v_{t,j} is meant, as the proof shows.
    """
    local = without(
        local, "naive_adaptive", "it has its own adaptation", "momentum", "adaptive steps"
    )

    def update(g: Tensor, state: State) -> tuple[Tensor, State]:
        v = beta * state["v"] + (1 - beta) * g.square()
        direction = torch.where(v > 0, g / (v.sqrt() + eps), 0.0)
        return direction, {"v": v}

    solver = chain(local, Optimizer(lambda w: {"v": torch.zeros_like(w)}, update))
    return Algorithm(
        client_init=solver.init,
        start=start_from_client,
        step=Descent(solver),
        finish=upload_with(),
        weights="uniform",
    )

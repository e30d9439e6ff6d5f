"""Naive local-adaptive FedAvg."""

import torch
from torch import Tensor

from fedbench.algorithms.shared.reasons import MOMENTS
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
    """Naive local-adaptive FedAvg: FedAvg with a separate second moment on each client.

    Source: Wu et al., AAAI 2023, Alg. 1 (their counter-example).

    v_k <- β v_k + (1-β) g², initially 0, kept between rounds and never shared; w <- w - η_l g /
    (√v_k + ε), without bias correction or first moment. The server averages uniformly.

    Args:
        local: The local solver; only its clipping and weight decay are used. Momentum is refused.
        beta: Decay β of the second moment.
        eps: Constant ε added to the denominator, 0 as printed; 1e-8 is safer in float32.

    Identity: with β = 0 and ε = 0, a step follows the sign of the gradient. Deviation: 0/0 is 0.
    Line 8 prints √v_{t,i} in a sum over j, but the proof shows that v_{t,j} is intended.
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
        whole=MOMENTS,
        weights="uniform",
    )

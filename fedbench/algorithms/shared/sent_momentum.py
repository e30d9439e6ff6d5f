"""Parts of methods that send a momentum m to the clients, who blend it into their local steps."""

from __future__ import annotations

from typing import TypedDict

import torch
from torch import Tensor

from fedbench.algorithms.shared.gram import combination
from fedbench.core.algorithm import Broadcast, LocalPart, ServerInit, Shift, Update, descent
from fedbench.core.types import ClientInfo, State


class MomentumPart(TypedDict):
    """The fields of an ``Algorithm`` that a server with such a momentum fills."""

    server_init: ServerInit
    broadcast: Broadcast
    update: Update


def blended(share: float) -> LocalPart:
    """Return the local solver w <- w - η_l (share · ∇F_k(w; batch) + (1-share) m), m in the message.

    It is written as a step of rate share · η_l along ∇F_k + m (1-share)/share, which compiled code knows. With share 0,
    m must be 0.
    """
    ratio = (1 - share) / share if share else 0.0
    solver = descent(extra=Shift("shift"), scale="share")

    def start(msg: State, client: State, info: ClientInfo) -> State:
        return {"w": msg["w"], "shift": ratio * msg["m"], "share": torch.full_like(info.lr, share)}

    return {"start": start, "step": solver["step"]}


def mean_gradient(server_lr: float) -> MomentumPart:
    """Return the server of FedCM: w <- w - η_g Σ p_k Δ_k, m <- Σ p_k Δ_k / (η_l τ_k), a mean of gradients."""

    def update(server: State, uploads: State, cohort: ClientInfo) -> State:
        delta, p = uploads["delta"], cohort.p.double()  # two sums of one upload, which is therefore held
        d, m = (combination(v, delta).to(delta.dtype) for v in (p, p / (cohort.lr * cohort.steps)))
        return {"w": torch.sub(server["w"], d, alpha=server_lr), "m": m}

    def server_init(w: Tensor, num_clients: int) -> State:
        return {"w": w, "m": torch.zeros_like(w)}

    return {"server_init": server_init, "broadcast": lambda server: server, "update": update}

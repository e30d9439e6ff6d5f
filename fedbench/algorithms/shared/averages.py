"""Parts of methods whose server keeps a mean of the clients' moves, or sends a momentum to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import torch
from torch import Tensor

from fedbench.core.algorithm import GradientShift, LocalPart, descent
from fedbench.core.types import Broadcast, ClientInfo, ServerInit, State, Update, weighted_sum


def unmoved(w: Tensor) -> State:
    """Return the state of a client that has not taken part: u_k = 0."""
    return {"drift": torch.zeros_like(w)}


def with_mean_drift(w: Tensor, num_clients: int, examples: Sequence[int] | None) -> State:
    """Return the state of a server that keeps ū, the mean of the u_k of all N clients.

    Args:
        w: The first model [P].
        num_clients: Number of clients.
        examples: Their training examples; clients without any never take part and do not count. None: all count.
    """
    count = num_clients if examples is None else sum(n > 0 for n in examples)
    return {"w": w, "drift": torch.zeros_like(w), "clients": w.new_full((), count)}


def drifted(server: State, delta: Tensor, count: int) -> State:
    """Return the server's state after ū <- ū - (1/N) Σ Δ_k and w <- w - (1/C) Σ Δ_k + ū.

    Args:
        server: A state ``with_mean_drift``.
        delta: (1/C) Σ Δ_k over the cohort, [P].
        count: The size C of the cohort.
    """
    drift = server["drift"] - delta * (count / server["clients"])
    return {**server, "w": server["w"] - delta + drift, "drift": drift}


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
    solver = descent(extra=GradientShift("shift"), scale="share")

    def start(msg: State, client: State, info: ClientInfo) -> State:
        return {"w": msg["w"], "shift": ratio * msg["m"], "share": torch.full_like(info.lr, share)}

    return {"start": start, "step": solver["step"]}


def mean_gradient(server_lr: float) -> MomentumPart:
    """Return the server of FedCM: w <- w - η_g Σ p_k Δ_k, m <- Σ p_k Δ_k / (η_l τ_k), a mean of gradients."""

    def update(server: State, uploads: State, cohort: ClientInfo) -> State:
        delta, p = uploads["delta"], cohort.p.double()  # two sums of one upload, which is therefore held
        d, m = (weighted_sum(v, delta).to(delta.dtype) for v in (p, p / (cohort.lr * cohort.steps)))
        return {"w": torch.sub(server["w"], d, alpha=server_lr), "m": m}

    def server_init(w: Tensor, num_clients: int) -> State:
        return {"w": w, "m": torch.zeros_like(w)}

    return {"server_init": server_init, "broadcast": lambda server: server, "update": update}

"""Parts of methods whose server averages client drifts or sends a momentum to the clients."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedbench.algorithms.shared.reasons import BLENDS
from fedbench.core.algorithm import (
    Algorithm,
    Averaging,
    GradientShift,
    LocalPart,
    Weights,
    by_weight,
    descent,
    start_from_client,
)
from fedbench.core.types import ClientInfo, State, Step, weighted_sum


def participants(num_clients: int, examples: Sequence[int] | None) -> int:
    """Return the number of clients with training examples, or of all clients if this is unknown."""
    return num_clients if examples is None else sum(n > 0 for n in examples)


def with_mean_drift(step: Step, examples: Sequence[int] | None) -> Algorithm:
    """Return a method that combines a local step with FedDyn's client and server states.

    Each client keeps u_k <- u_k - Δ_k, initially 0, in the local variable "drift". The server keeps
    the mean ū of the u_k of all N clients: ū <- ū - (1/N) Σ Δ_k and w <- w - (1/C) Σ Δ_k + ū;
    "mean" is w before ū is added.

    Args:
        step: The local step.
        examples: Number of training examples of every client. Clients without examples never take
            part and are not counted. If None, all clients are counted.
    """

    def server_init(w: Tensor, num_clients: int) -> State:
        count = w.new_full((), participants(num_clients, examples))
        return {
            "w": w,
            "mean": w,
            "drift": torch.zeros_like(w),
            "clients": count,
        }

    def finish(
        msg: State,
        client: State,
        local: State,
        info: ClientInfo,
    ) -> tuple[State, State]:
        delta = msg["w"] - local["w"]
        return {"delta": delta}, {"drift": client["drift"] - delta}

    def update(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        delta = uploads["delta"]
        mean = server["w"] - delta
        drift = server["drift"] - delta * (len(cohort.id) / server["clients"])
        return {
            **server,
            "w": mean + drift,
            "mean": mean,
            "drift": drift,
        }

    return Algorithm(
        server_init=server_init,
        client_init=lambda w: {"drift": torch.zeros_like(w)},
        start=start_from_client,
        step=step,
        finish=finish,
        update=Averaging(update, {"delta": by_weight}),
        weights="uniform",
        kinds=("integrates",),
    )


def blended(share: float) -> LocalPart:
    """Return the local solver w <- w - η_l (share · ∇F_k(w; batch) + (1-share) m).

    The message contains m. The step is implemented as a step of rate share · η_l along ∇F_k + m
    (1-share)/share, which compiled code supports. If ``share`` is 0, m must be 0.
    """
    ratio = (1 - share) / share if share else 0.0
    return descent(
        extra=GradientShift("shift"),
        scale="share",
        variables=lambda msg, client, info: {
            "shift": ratio * msg["m"],
            "share": torch.full_like(info.lr, share),
        },
    )


def with_mean_gradient(
    solver: LocalPart,
    server_lr: float,
    weights: Weights,
) -> Algorithm:
    """Return a method that combines a local solver with FedCM's server.

    The server sends the mean gradient m to the clients: w <- w - η_g Σ p_k Δ_k, m <- Σ p_k Δ_k /
    (η_l τ_k), with m initially 0.
    """

    def update(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        # the upload enters two sums, so it cannot be added up as clients finish
        delta, p = uploads["delta"], cohort.p.double()
        d = weighted_sum(p, delta).to(delta.dtype)
        m = weighted_sum(p / (cohort.lr * cohort.steps), delta).to(delta.dtype)
        return {"w": torch.sub(server["w"], d, alpha=server_lr), "m": m}

    return Algorithm(
        **solver,
        server_init=lambda w, num_clients: {"w": w, "m": torch.zeros_like(w)},
        broadcast=lambda server: server,
        update=update,
        whole=BLENDS,
        weights=weights,
    )

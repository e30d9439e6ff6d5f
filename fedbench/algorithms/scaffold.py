"""SCAFFOLD."""

from collections.abc import Sequence
from typing import Literal

import torch

from fedbench.algorithms.shared.averages import participants
from fedbench.core.algorithm import Algorithm, Averaging, GradientShift, Weights, by_weight, descent
from fedbench.core.optim import Optimizer, without
from fedbench.core.options import Positive
from fedbench.core.types import ClientInfo, State


def scaffold(
    local: Optimizer,
    *,
    server_lr: Positive = 1.0,
    option: Literal[1, 2] = 2,
    weights: Weights = "uniform",
    examples: Sequence[int] | None = None,
) -> Algorithm:
    """SCAFFOLD: local gradients corrected by control variates c and c_k.

    Source: Karimireddy et al., ICML 2020, Alg. 1.

    Local: w <- w - η_l (∇F_k(w; batch) + c - c_k). After local training, with option 1:
    c_k⁺ = ∇F_k(w^t) on all training examples; with option 2: c_k⁺ = c_k - c + Δ_k / (τ_k η_l),
    where τ_k is the number of steps. Server: w <- w - η_g Σ p_k Δ_k, c <- c + (C/N) Σ p_k
    (c_k⁺ - c_k). With p_k = 1/C, as in the paper, c remains the mean of all N c_k.

    Args:
        local: The local solver; option 2 requires plain SGD.
        server_lr: Server step size η_g.
        option: Number of the option, 1 or 2.
        weights: Weights p_k, "uniform" (paper) or by number of training examples ("size", as in
            FLamby's code).
        examples: Number of training examples of every client, [N], set by the run. Clients without
            examples do not count.

    Raises:
        RequestError: If option 2 is used with a local solver whose Δ_k / (τ_k η_l) is not a mean
            gradient.

    Identity: with all clients, the first round, and every round with τ_k = 1 and full batches, is
    FedAvg with the same weights.
    """
    if option == 2:
        reason = "with option 2 the control variates are mean gradients only under plain SGD"
        local = without(local, "scaffold", reason)

    solver = descent(  # line 10
        local,
        extra=GradientShift("shift"),
        variables=lambda msg, client, info: {"shift": msg["c"] - client["c"]},
    )

    def finish(
        msg: State,
        client: State,
        local: State,
        info: ClientInfo,
    ) -> tuple[State, State]:
        delta = msg["w"] - local["w"]
        if option == 1:  # line 12
            change = info.probe["grad"] - client["c"]
        else:
            change = torch.addcmul(-msg["c"], delta, 1 / (info.steps * info.lr))
        return {"delta": delta, "c": change}, {"c": client["c"] + change}  # lines 13-14

    def update(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        w = torch.sub(server["w"], uploads["delta"], alpha=server_lr)  # line 17
        return {
            **server,
            "w": w,
            "c": server["c"] + uploads["c"] * (len(cohort.id) / server["clients"]),
        }

    return Algorithm(
        **solver,
        server_init=lambda w, N: {
            "w": w,
            "c": torch.zeros_like(w),
            "clients": w.new_full((), participants(N, examples)),
        },
        client_init=lambda w: {"c": torch.zeros_like(w)},
        broadcast=lambda server: {"w": server["w"], "c": server["c"]},
        finish=finish,
        update=Averaging(update, {"delta": by_weight, "c": by_weight}),
        needs={"grad"} if option == 1 else frozenset(),
        weights=weights,
        kinds=("integrates",),
    )

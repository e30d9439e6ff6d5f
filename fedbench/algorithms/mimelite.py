"""MimeLite."""

from typing import Literal

import torch
from torch import Tensor

from fedbench.algorithms.shared.averages import blended
from fedbench.algorithms.shared.reasons import BLENDS
from fedbench.core.algorithm import Algorithm, Averaging, Weights, by_weight, descent
from fedbench.core.optim import Optimizer, without
from fedbench.core.options import HalfOpenUnit, Positive
from fedbench.core.types import ClientInfo, State


def mimelite(
    local: Optimizer,
    *,
    base: Literal["momentum", "adam"] = "momentum",
    beta1: HalfOpenUnit = 0.9,
    beta2: HalfOpenUnit = 0.99,
    eps: Positive = 1e-3,
    server_lr: Positive = 1.0,
    weights: Weights = "uniform",
) -> Algorithm:
    """MimeLite: local steps that use the server's optimizer state, frozen during the round.

    Source: Karimireddy et al., 2021.

    Local: w <- w - η_l ((1-β1) ∇F_k(w; batch) + β1 m), and with base "adam" the direction is
    divided by √v + ε. Server: c = Σ p_k ∇F_k(w^t) on all training examples; m <- β1 m + (1-β1) c,
    v <- β2 v + (1-β2) c², initially 0, without bias correction; w <- w - η_g Σ p_k Δ_k.

    Args:
        local: The local solver, plain SGD.
        base: The optimizer whose state is shared, "momentum" or "adam".
        beta1: Decay β1 of m, in [0, 1).
        beta2: Decay β2 of v, in [0, 1); for "adam".
        eps: Constant ε of the denominator; for "adam". In the first round, v = 0 and the direction
            is (1-β1) ∇F/ε.
        server_lr: Server step size η_g.
        weights: Weights p_k, "uniform" (the paper) or by number of training examples ("size").

    Raises:
        RequestError: If the local solver is not plain SGD, because the base optimizer takes its
            place.

    Identity: β1 = 0 with "momentum" is FedAvg; with one full-batch step per round, the method is
    FedAvgM with β = β1 and η_g = 1-β1.
    """
    without(local, "mimelite", "its local steps are those of the base optimizer")
    adam = base == "adam"
    solver = blended(1 - beta1)
    if adam:
        solver = descent(
            gradient=lambda oracle, msg, local, batch, info: (
                ((1 - beta1) * oracle.grad(local["w"], batch) + beta1 * msg["m"])
                / (msg["v"].sqrt() + eps)
            )
        )

    def server_init(w: Tensor, num_clients: int) -> State:
        zeros = torch.zeros_like(w)
        state = {"w": w, "m": zeros}
        if adam:
            state["v"] = zeros
        return state

    def update(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        c = uploads["grad"]
        w = torch.sub(server["w"], uploads["delta"], alpha=server_lr)
        new = {"w": w, "m": beta1 * server["m"] + (1 - beta1) * c}
        if adam:
            new["v"] = beta2 * server["v"] + (1 - beta2) * c.square()
        return new

    return Algorithm(
        **solver,
        server_init=server_init,
        broadcast=lambda server: server,
        finish=lambda msg, client, local, info: (
            {"delta": msg["w"] - local["w"], "grad": info.probe["grad"]},
            client,
        ),
        update=Averaging(update, {"delta": by_weight, "grad": by_weight}),
        needs={"grad"},
        whole=BLENDS,
        weights=weights,
        kinds=("moments down",) if adam else (),
    )

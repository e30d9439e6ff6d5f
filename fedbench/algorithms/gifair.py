"""GIFAIR-FL."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Averaging, Weights, by_weight, descent
from fedbench.core.optim import Optimizer
from fedbench.core.options import HalfOpenUnit
from fedbench.core.types import ClientInfo, State


def gifair(
    local: Optimizer,
    *,
    share: HalfOpenUnit = 0.5,
    form: Literal["server", "local"] = "server",
    rank_at: Literal["before", "last"] = "before",
    weights: Weights = "size",
) -> Algorithm:
    """GIFAIR-FL: objective Σ p_k F_k + λ Σ_{i<j} |F_i - F_j|.

    Source: Yue, Nouiehed & Al Kontar, 2022.

    The gradient weights client k by p_k + λ r_k, where r_k = Σ_j sign(F_k - F_j) is its rank;
    λ = share · min p_k / (C-1) keeps the weights positive. Every client is a separate group; ranks,
    p_k and C refer to the cohort.

    Args:
        local: The local solver.
        share: Strength of fairness in [0, 1), as a fraction of the largest λ.
        form: Use of the weights: for "server", w <- w - Σ (p_k + λ r_k) Δ_k; for "local", the rate
            of client k is multiplied by 1 + λ r_k/p_k and the local models are averaged with
            weights p_k (the paper).
        rank_at: Losses to rank: "before" ranks F_k(w^t); "last" ranks the loss that each client
            measured in its last round. A client without such a loss has sign 0 relative to all
            others.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: share = 0 is FedAvg; both forms are equal for one full-batch step. Deviation: "last"
    stores losses at the broadcast model, whereas the authors' code stores mean losses during local
    training.
    """

    def server_init(w: Tensor, num_clients: int) -> State:
        zeros = w.new_zeros(num_clients, dtype=torch.float64)
        return {"w": w, "loss": zeros, "known": zeros}

    def excess(server: State, cohort: ClientInfo) -> Tensor:  # λ r_k [C], float64
        loss = cohort.probe["loss"]
        known = torch.ones_like(loss)
        if rank_at == "last":
            loss = server["loss"][cohort.id]
            known = server["known"][cohort.id]
        signs = (loss.unsqueeze(1) - loss).sign()
        rank = (signs * known).sum(1) * known
        lam = share * cohort.p.double().min() / max(1, len(rank) - 1)
        return lam * rank

    def weighting(server: State, cohort: ClientInfo) -> Tensor:
        return cohort.p + excess(server, cohort)

    def step(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        return {
            "w": server["w"] - uploads["delta"],
            "loss": server["loss"].index_copy(0, cohort.id, cohort.probe["loss"]),
            "known": server["known"].index_fill(0, cohort.id, 1.0),
        }

    algo = Algorithm(
        **descent(local),
        server_init=server_init,
        update=Averaging(step, {"delta": weighting}),
        needs={"loss"},
        weights=weights,
    )
    if form == "server":
        return algo

    solver = descent(
        local,
        scale="factor",
        variables=lambda msg, client, info: {"factor": info.probe["factor"]},
    )
    return replace(
        algo,
        **solver,
        instruct=lambda server, cohort: {"factor": 1 + excess(server, cohort) / cohort.p},
        update=Averaging(step, {"delta": by_weight}),
    )

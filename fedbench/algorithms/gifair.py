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

    Its gradient weighs clients by p_k + λ r_k, r_k = Σ_j sign(F_k - F_j) the rank of client k; λ =
    share · min p_k / (C-1) keeps the weights positive. Every client is a group of its own; ranks,
    p_k and C are those of the cohort.

    Args:
        local: The local solver.
        share: Strength of fairness in [0, 1), as a share of the largest λ.
        form: Where the weights act: "server", w <- w - Σ (p_k + λ r_k) Δ_k; "local", the rate of
            client k is multiplied by 1 + λ r_k/p_k and the local models are averaged by p_k (the
            paper).
        rank_at: Losses that are ranked: "before", F_k(w^t); "last", those that the clients measured
            in the last round they took part in; a client without one has rank 0 towards all others.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: share = 0 is FedAvg; both forms agree for one full-batch step. Deviation: "last"
    remembers losses at the broadcast model, the authors' code mean losses during local training.
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

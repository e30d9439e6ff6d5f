"""FedMDFG."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedbench.algorithms.shared.guided import chosen, direction, step_sizes
from fedbench.core.algorithm import Algorithm, Trials, descent
from fedbench.core.optim import SGD, Optimizer, without
from fedbench.core.options import Natural, NonNegative, Positive, Range
from fedbench.core.types import ClientInfo, State


def fedmdfg(
    local: Optimizer = SGD,
    *,
    theta: Annotated[float, Range(at_least=0, at_most=90)] = 11.25,
    step: Literal["fixed", "search"] = "fixed",
    source: Literal["delta", "gradient"] = "delta",
    force: bool = True,
    s: Natural = 5,
    armijo: NonNegative = 1e-4,
    server_lr: Positive = 1.0,
) -> Algorithm:
    """FedMDFG (Pan et al., AAAI 2023): the shortest common descent direction, with a guidance towards equal losses.

    Ĝ_k are the clients' vectors at their mean length. d is the shortest point of the convex hull of the Ĝ_k, those of
    the last round's clients that are absent, and, while the losses are further than θ from equal, hᵀĜ with h ∝
    (1̂·F̂)F̂ - 1̂; it is given the length of the mean Ĝ. w <- w - a d.

    Args:
        local: The local solver; with ``source`` "gradient" plain SGD, as clients then take no step of their own.
        theta: Angle θ between the losses and equal losses, in degrees, above which the guidance is active.
        step: Step size a: "fixed" is η_g (times η_l for gradients); "search" begins at 2^s times that, halves it, and
            takes the first that lowers every loss by armijo · a · Ĝ_k·d and, under guidance, brings the losses nearer
            to equal (the paper). The cohort measures all candidates.
        source: The clients' vectors: Δ_k ("delta"), or ∇F_k(w) on all training examples ("gradient", the paper).
        force: Whether guidance is also active if the losses of some, but not all, clients of the cohort rose above
            their mean so far (the authors' code).
        s: Number of halvings of the search above and below the fixed step size.
        armijo: Share of the linear decrease that the search asks for.
        server_lr: The server's step size η_g.

    Identity: one client with a fixed step is FedAvg; without guidance d is FedMGDA+'s direction at another length.
    Deviation: the authors' search allows an increase where a decrease is meant, and its test of fairness is void.
    """
    gradients = source == "gradient"
    if gradients:
        without(local, method="fedmdfg", reason="with source=gradient clients take no step of their own")

    def server_init(w: Tensor, num_clients: int) -> State:
        zeros, ids = w.new_zeros(num_clients, dtype=torch.float64), w.new_zeros(0, dtype=torch.int64)
        return {"w": w, "expected": zeros, "count": zeros, "last": w.new_zeros(0, len(w)), "last_id": ids}

    def rate(cohort: ClientInfo) -> float:
        return server_lr * float(cohort.lr[0]) if gradients else server_lr

    def aim(server: State, uploads: State, cohort: ClientInfo) -> State:
        """Return the direction of the round, and what the server has to remember of it."""
        loss, absent = cohort.probe["loss"], ~torch.isin(server["last_id"], cohort.id)
        expected, n = (server[k].index_select(0, cohort.id) for k in ("expected", "count"))
        rose = (loss > expected) & (n > 0)
        forced = rose.any() & ~rose.all() & force
        found = direction(uploads["delta"], loss, server["last"][absent], theta, forced)
        mean = torch.where(rose, expected, (expected * n + loss) / (n + 1))
        return {
            **found,
            "changed": absent.any(),
            "expected": server["expected"].index_copy(0, cohort.id, mean),
            "count": server["count"].index_copy(0, cohort.id, n + 1),
        }

    def remembered(server: State, found: State, w: Tensor, cohort: ClientInfo) -> State:
        new = {"w": w, "expected": found["expected"], "count": found["count"]}
        if not found["live"].any():
            return {**server, **new}
        return {**new, "last": found["rows"], "last_id": cohort.id[found["live"]]}

    def fixed(server: State, uploads: State, cohort: ClientInfo) -> State:
        found = aim(server, uploads, cohort)
        return remembered(server, found, server["w"] - (rate(cohort) * found["d"]).to(server["w"].dtype), cohort)

    def propose(server: State, uploads: State, cohort: ClientInfo) -> State:
        found, w = aim(server, uploads, cohort), server["w"]
        sizes = step_sizes(rate(cohort), s, float(found["stretch"]), bool(found["changed"])).to(w.device)
        return {**found, "trials": torch.stack([w - (a * found["d"]).to(w.dtype) for a in sizes]), "sizes": sizes}

    def searched(server: State, uploads: State, cohort: ClientInfo) -> State:
        live, slope = uploads["live"], uploads["slope"]
        before, tried = cohort.probe["loss"][live], cohort.probe["loss_trials"][live]
        best = chosen(before, tried, armijo * slope[live].unsqueeze(1) * uploads["sizes"], uploads["fair"])
        return remembered(server, uploads, uploads["trials"][best], cohort)

    algo = Algorithm(
        **descent(local),
        server_init=server_init,
        update=fixed if step == "fixed" else searched,
        trials=None if step == "fixed" else Trials(propose, vectors=1),
        needs=frozenset({"loss"}),
        weights="uniform",
    )
    if not gradients:
        return algo
    return replace(
        algo,
        step=lambda oracle, msg, local, batch, info: local,
        finish=lambda msg, client, local, info: ({"delta": info.probe["grad"]}, client),
        needs=frozenset({"loss", "grad"}),
    )

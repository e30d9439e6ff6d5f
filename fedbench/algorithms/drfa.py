"""DRFA."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from fedbench.algorithms.shared.mixtures import normalized, project_simplex
from fedbench.core.algorithm import Algorithm, Averaging, Trials, by_weight, descent
from fedbench.core.errors import RequestError
from fedbench.core.optim import Optimizer
from fedbench.core.options import HalfOpenUnit, Natural, NonNegative, PositiveShare
from fedbench.core.types import Batch, ClientInfo, Oracle, State, Weighting


def drfa(
    local: Optimizer,
    *,
    gamma: NonNegative = 0.1,
    snapshot: Literal["start", "end", "random"] | Natural = "end",
    snapshot_weights: Literal["lambda", "uniform"] = "lambda",
    init: Literal["uniform", "size"] = "uniform",
    floor: HalfOpenUnit = 0.0,
    decay: PositiveShare = 1.0,
    examples: Sequence[int] | None = None,
) -> Algorithm:
    """DRFA: minimax optimisation over mixtures λ with several local steps.

    Source: Deng, Kamani & Mahdavi, NeurIPS 2020, Alg. 1.

    w <- w - Σ λ_k Δ_k; λ <- Π(λ + γ decay^t τ̄ F(w')), t = 1, 2, ...; τ̄ is the mean number of
    local steps, Π the projection onto the simplex, and w' = Σ λ_k w_k^(t') the average of the
    iterates after t' steps, with the same t' for all clients.

    Args:
        local: The local solver.
        gamma: Step size γ of the mixture per local step.
        snapshot: The step t': "start" (0), "end", a number, or "random" (drawn in every round from
            1 to the largest number of local steps). A client with fewer steps contributes its last
            iterate.
        snapshot_weights: Weights in w': the mixture ("lambda") or "uniform" (the authors' code).
        init: Initial mixture: "uniform" or by number of training examples ("size", the authors'
            code).
        floor: Lower bound on every λ_k, applied before λ is divided by its sum.
        decay: Factor on γ per round.
        examples: Number of training examples of every client, [N], set by the run. Clients without
            examples do not count.

    Identity: γ = 0 is FedAvg with uniform weights; "start" is AFL with lr_lambda = γτ. Deviation:
    the paper draws cohorts from λ. Here, cohorts are drawn uniformly: λ_k is renormalised over the
    cohort, and the losses of C clients are scaled by N/C. These losses are measured by a second,
    uniformly drawn cohort or, for "start" and "end", by the current or the next cohort, which
    measures them anyway.
    """
    snapshot = snapshot or "start"  # after 0 steps
    if init == "size" and examples is None:
        raise RequestError(
            "init=size needs the training examples of all clients: pass examples=[...]"
        )
    # w' is the next model, so the next round measures the losses at w'
    late = snapshot == "end" and snapshot_weights == "lambda"

    def server_init(w: Tensor, num_clients: int) -> State:
        n = torch.tensor(examples or [1] * num_clients, device=w.device).double()
        able = (n > 0).double()  # clients without training examples are never drawn
        first = n if init == "size" else able
        zero = n.new_zeros(())
        return {
            "w": w,
            "lambda": first / first.sum(),
            "able": able,
            "t": zero,
            "steps": zero,
        }

    def raised(
        server: State,
        ids: Tensor,
        loss: Tensor,
        t: Tensor,
        steps: Tensor,
    ) -> Tensor:
        rate = gamma * decay**t * steps * server["able"].sum() / len(ids)
        mixture = project_simplex(server["lambda"].index_add(0, ids, rate * loss))
        return _floored(mixture, server["able"], floor)

    def raised_late(server: State, cohort: ClientInfo) -> Tensor:  # by losses at the last w'
        after = raised(server, cohort.id, cohort.probe["loss"], server["t"], server["steps"])
        return torch.where(server["t"] > 0, after, server["lambda"])

    # λ [N] of this round
    mixture: Weighting = raised_late if late else lambda server, cohort: server["lambda"]

    def shares(server: State, cohort: ClientInfo) -> Tensor:  # renormalised λ_k of the cohort
        return normalized(mixture(server, cohort)[cohort.id])

    def step(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        t = server["t"] + 1
        steps = cohort.steps.double().mean()
        probe = cohort.probe
        if late:
            after = mixture(server, cohort)
        elif snapshot == "start":
            after = raised(server, cohort.id, probe["loss"], t, steps)
        else:
            after = raised(server, probe["trial_id"], probe["loss_trials"][:, 0], t, steps)
        return {
            **server,
            "w": server["w"] - uploads["delta"],
            "lambda": after,
            "t": t,
            "steps": steps,
        }

    algo = Algorithm(
        **descent(local),
        server_init=server_init,
        update=Averaging(step, {"delta": shares}),
        needs={"loss"},
        weights="uniform",
        kinds=("weights",),
        uniform="each measured loss stands for those of N/C clients",
    )
    if snapshot == "start" or late:
        return algo

    of_snapshot = shares if snapshot_weights == "lambda" else by_weight
    return _on_second_cohort(algo, snapshot, of_snapshot)


def _floored(mixture: Tensor, able: Tensor, floor: float) -> Tensor:
    """Return the mixture [N], raised to λ_k >= floor and divided by its sum."""
    mixture = mixture.clamp_min(floor) * able
    return mixture / mixture.sum() if floor else mixture


def _on_second_cohort(algo: Algorithm, snapshot: int | str, weighting: Weighting) -> Algorithm:
    """Return a variant of the method in which a second cohort measures the losses at w'.

    Args:
        algo: The method.
        snapshot: The step t', not 0.
        weighting: Weights of w'.
    """

    def propose(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        change = uploads["delta"].mean(0) if snapshot == "end" else uploads["snapshot"]
        return {"trials": (server["w"] - change).unsqueeze(0)}

    algo = replace(
        algo,
        needs=set(),
        trials=Trials(propose, drawn=True),
    )
    update = algo.averaging
    if snapshot == "end":  # the upload enters two averages, so it is not added up early
        return replace(algo, update=update.__call__)
    weights = {**update.weights, "snapshot": weighting}
    return _with_snapshot(replace(algo, update=replace(update, weights=weights)), snapshot)


def _with_snapshot(algo: Algorithm, snapshot: int | str) -> Algorithm:
    """Return a variant of the method whose clients also upload w - w_k after a number of steps.

    Args:
        algo: The method.
        snapshot: The number of steps, or "random".
    """

    def instruct(server: State, cohort: ClientInfo) -> State:
        if snapshot != "random":
            return {"stop": torch.full_like(cohort.key, int(snapshot))}
        first = cohort.id.argmin().view(1)  # makes the draw independent of the order of clients
        draw = cohort.key.index_select(0, first)
        stop = 1 + draw % cohort.steps.max().long()
        return {"stop": stop.expand(len(cohort.id))}

    def step(
        oracle: Oracle,
        msg: State,
        local: State,
        batch: Batch,
        info: ClientInfo,
    ) -> State:
        new = algo.step(oracle, msg, local, batch, info)
        goes_on = batch.step < info.probe["stop"]
        return {**new, "snapshot": torch.where(goes_on, new["w"], local["snapshot"])}

    def finish(
        msg: State,
        client: State,
        local: State,
        info: ClientInfo,
    ) -> tuple[State, State]:
        w = msg["w"]
        return {"delta": w - local["w"], "snapshot": w - local["snapshot"]}, client

    return replace(
        algo,
        instruct=instruct,
        start=lambda msg, client, info: {**algo.start(msg, client, info), "snapshot": msg["w"]},
        step=step,
        finish=finish,
        kinds=(*algo.kinds, "replaces"),
    )

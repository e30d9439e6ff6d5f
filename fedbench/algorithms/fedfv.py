"""FedFV."""

from collections.abc import Sequence
from math import ceil
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedbench.algorithms.shared.gram import gram
from fedbench.core.algorithm import Algorithm, descent
from fedbench.core.optim import Optimizer
from fedbench.core.options import Natural, Positive, UnitInterval
from fedbench.core.types import ClientInfo, State, weighted_sum

_STILL = 1e-12  # a direction this short, in units of the longest update, is rounding


def fedfv(
    local: Optimizer,
    *,
    alpha: UnitInterval = 0.1,
    tau: Natural = 1,
    history: Literal["code", "paper"] = "code",
    server_lr: Positive = 1.0,
) -> Algorithm:
    """FedFV: updates that conflict are projected onto each other's normal planes.

    Source: Wang et al., IJCAI 2021.

    Internal: in the order of rising F_k(w), every update but those of the share α of clients with
    the highest losses loses its part along each Δ_j that it conflicts with; g = (1/C) Σ h_k.
    External, from round τ on: for the rounds a = τ-1, ..., 0 back, g loses its part along the sum
    of the updates of clients last seen then that conflict with it, if it conflicts with that sum. g
    is scaled to the length of the mean update; w <- w - η_g g.

    Args:
        local: The local solver.
        alpha: Share α in [0, 1] of clients whose updates are kept; at least one is, unless α = 0.
        tau: Number τ of rounds whose updates can conflict; above 1 the server keeps an update of
            every client.
        history: Which rounds are meant: a = τ-1, ..., 0, so that this round's updates count too
            ("code"), or a = τ, ..., 1, absent clients alone ("paper").
        server_lr: The server's step size η_g.

    Identity: α = 1 and τ = 0 is FedAvg with uniform weights; a step is always η_g times the mean
    update long.
    """
    ages = [a - (history == "code") for a in range(tau, 0, -1)]
    remembers = any(ages)  # age 0 is this round

    def server_init(w: Tensor, num_clients: int) -> State:
        state = {"w": w, "t": w.new_zeros((), dtype=torch.int64)}
        if remembers:
            last = w.new_full((num_clients,), -1, dtype=torch.int64)
            state |= {"updates": w.new_zeros(num_clients, len(w)), "last": last}
        return state

    def update(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        delta, t = uploads["delta"], server["t"] + 1
        new: State = {"t": t}
        rows, age = delta, torch.zeros_like(cohort.id)
        if remembers:
            new["updates"] = server["updates"].index_copy(0, cohort.id, delta)
            last = server["last"]
            new["last"] = last.index_copy(0, cohort.id, t.expand(len(delta)))
            absent = (last >= 0) & (new["last"] < t)
            known = absent & (t - last <= max(ages))
            rows = torch.cat([delta, server["updates"][known]])
            age = torch.cat([age, t - last[known]])
        k = gram(rows)
        against = ages if t >= tau else ()
        d = weighted_sum(without_conflicts(k, age, cohort, alpha, against), rows)
        mean = delta.mean(0, dtype=torch.float64)
        length = d.norm()
        moves = length > _STILL * k.diagonal().max().sqrt()
        scale = torch.where(moves, server_lr * mean.norm() / length, 0.0)
        return {**new, "w": server["w"] - (scale * d).to(delta.dtype)}

    return Algorithm(
        **descent(local),
        server_init=server_init,
        update=update,
        needs={"loss"},
        weights="uniform",
    )


# an update that is not finite makes the direction NaN, and the run counts as diverged
@np.errstate(invalid="ignore")
def without_conflicts(
    k: Tensor,
    age: Tensor,
    cohort: ClientInfo,
    alpha: float,
    ages: Sequence[int],
) -> Tensor:
    """Return FedFV's direction before it is scaled, as a combination [M] of the updates.

    Args:
        k: Inner products of M updates [M, M], float64; those of the cohort come first.
        age: Rounds since each of them was made [M].
        cohort: The cohort, with its losses.
        alpha: Share of its clients, those with the highest losses, whose updates are kept.
        ages: Ages of the updates that it is held against, in their order.
    """
    products = k.numpy(force=True)
    ages_of_rows = age.numpy(force=True)
    loss = cohort.probe["loss"].numpy(force=True)
    ids = cohort.id.numpy(force=True)
    count = len(ids)
    # of equal losses the client with the smaller number comes first
    order = np.lexsort((ids, loss))
    g = np.zeros(len(products))
    h = _internal(products[:count, :count], order, alpha)
    g[:count] = h.mean(0)
    for a in ages:
        s = ((ages_of_rows == a) & (products @ g < 0)).astype(float)
        along, square = s @ products @ g, s @ products @ s
        if along < 0 and square > 0:
            g = g - along / square * s
    return torch.from_numpy(g).to(k)


def _internal(
    k: np.ndarray,
    order: np.ndarray,
    alpha: float,
) -> np.ndarray:
    """Return each update without its parts along the updates that it conflicts with.

    They are combinations of the updates, [C, C].
    """
    count = len(k)
    kept = count - ceil((count - 1) * (1 - alpha) - 1e-9) if alpha else 0
    h, moving = np.eye(count), np.ones(count)
    moving[order[count - kept :]] = 0
    for j in order:  # Δ_j is the original update, h the moving ones
        if k[j, j] > 0:
            along = np.minimum(h @ k[j], 0) * moving
            along[j] = 0
            h[:, j] -= along / k[j, j]
    return h

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

_STILL = 1e-12  # a direction shorter than this, relative to the longest update, is rounding error


def fedfv(
    local: Optimizer,
    *,
    alpha: UnitInterval = 0.1,
    tau: Natural = 1,
    history: Literal["code", "paper"] = "code",
    server_lr: Positive = 1.0,
) -> Algorithm:
    """FedFV: conflicting updates are projected onto each other's normal planes.

    Source: Wang et al., IJCAI 2021.

    Internal conflicts: for each Δ_j, in order of increasing F_j(w), every update that conflicts
    with Δ_j loses its component along Δ_j, except the updates of the share α of clients with the
    highest losses. This gives h_k and g = (1/C) Σ h_k. External conflicts, from round τ on: for
    a = τ-1, ..., 0, take the sum of the conflicting updates of clients last seen a rounds ago; if g
    conflicts with this sum, g loses its component along it. g is scaled to the length of the mean
    update; w <- w - η_g g.

    Args:
        local: The local solver.
        alpha: Share α in [0, 1] of clients whose updates are kept unchanged; at least one, unless
            α = 0.
        tau: Number τ of rounds whose updates can conflict; if it is above 1, the server keeps an
            update of every client.
        history: Rounds considered: a = τ-1, ..., 0, including this round's updates ("code"), or
            a = τ, ..., 1, with absent clients only ("paper").
        server_lr: Server step size η_g.

    Identity: α = 1 and τ = 0 is FedAvg with uniform weights; the length of a step is always η_g
    times that of the mean update.
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


# a non-finite update makes the direction NaN, and the run counts as diverged
@np.errstate(invalid="ignore")
def without_conflicts(
    k: Tensor,
    age: Tensor,
    cohort: ClientInfo,
    alpha: float,
    ages: Sequence[int],
) -> Tensor:
    """Return FedFV's unscaled direction as coefficients [M] of the updates.

    Args:
        k: Inner products [M, M] of the M updates, float64. The updates of the cohort come first.
        age: Age of each update in rounds, [M].
        cohort: The cohort, with losses.
        alpha: Share of the cohort's clients, those with the highest losses, whose updates are kept.
        ages: Ages of the earlier updates whose conflicts with the direction are removed, in this
            order.
    """
    products = k.numpy(force=True)
    ages_of_rows = age.numpy(force=True)
    loss = cohort.probe["loss"].numpy(force=True)
    ids = cohort.id.numpy(force=True)
    count = len(ids)
    # among clients with equal losses, the one with the smaller id comes first
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
    """Return each update without its components along conflicting updates.

    The result contains the coefficients [C, C] of the original updates.
    """
    count = len(k)
    kept = count - ceil((count - 1) * (1 - alpha) - 1e-9) if alpha else 0
    h, moving = np.eye(count), np.ones(count)
    moving[order[count - kept :]] = 0
    for j in order:  # Δ_j is the original update; h contains the projected ones
        if k[j, j] > 0:
            along = np.minimum(h @ k[j], 0) * moving
            along[j] = 0
            h[:, j] -= along / k[j, j]
    return h

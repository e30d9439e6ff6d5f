"""FedMDFG."""

from dataclasses import replace
from math import pi
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedbench.algorithms.shared.gram import gram, shortest_in_hull
from fedbench.core.algorithm import Algorithm, Trials, descent
from fedbench.core.optim import Optimizer, without
from fedbench.core.options import Natural, NonNegative, Positive
from fedbench.core.types import ClientInfo, State, weighted_sum

_ZERO = 1e-12  # of the longest vector: a client that did not move
# of the mean vector: a shortest point of this length is an error of the quadratic program
_STILL = 1e-6


def fedmdfg(
    local: Optimizer,
    *,
    theta: Annotated[float, Field(ge=0, le=90)] = 11.25,
    step: Literal["fixed", "search"] = "fixed",
    source: Literal["delta", "gradient"] = "delta",
    force: bool = True,
    s: Natural = 5,
    armijo: NonNegative = 1e-4,
    server_lr: Positive = 1.0,
) -> Algorithm:
    """FedMDFG: the shortest common descent direction, with a guidance towards equal losses.

    Source: Pan et al., AAAI 2023.

    Ĝ_k are the clients' vectors at their mean length. d is the shortest point of the convex hull of
    the Ĝ_k, those of the last round's clients that are absent, and, while the losses are further
    than θ from equal, hᵀĜ with h ∝ (1̂·F̂)F̂ - 1̂; it is given the length of the mean Ĝ. w <- w - a
    d.

    Args:
        local: The local solver; with ``source`` "gradient" plain SGD, as clients then take no step
            of their own.
        theta: Angle θ between the losses and equal losses, in degrees, above which the guidance is
            active.
        step: Step size a: "fixed" is η_g (times η_l for gradients); "search" begins at 2^s times
            that, halves it, and takes the first that lowers every loss by armijo · a · Ĝ_k·d and,
            under guidance, brings the losses nearer to equal (the paper). The cohort measures all
            candidates.
        source: The clients' vectors: Δ_k ("delta"), or ∇F_k(w) on all training examples
            ("gradient", the paper).
        force: Whether guidance is also active if the losses of some, but not all, clients of the
            cohort rose above their mean so far (the authors' code).
        s: Number of halvings of the search above and below the fixed step size.
        armijo: Share of the linear decrease that the search asks for.
        server_lr: The server's step size η_g.

    Identity: one client with a fixed step is FedAvg; without guidance d is FedMGDA+'s direction at
    another length. Deviation: the authors' search allows an increase where a decrease is meant, and
    its test of fairness is void.
    """
    gradients = source == "gradient"
    if gradients:
        without(local, "fedmdfg", "with source=gradient clients take no step of their own")

    def server_init(w: Tensor, num_clients: int) -> State:
        zeros = w.new_zeros(num_clients, dtype=torch.float64)
        return {
            "w": w,
            "expected": zeros,
            "count": zeros,
            "last": w.new_zeros(0, len(w)),
            "last_id": w.new_zeros(0, dtype=torch.int64),
        }

    def propose(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        """Return the models to choose from, their making, and the server's records of losses."""
        w, ids, loss = server["w"], cohort.id, cohort.probe["loss"]
        expected, count = server["expected"][ids], server["count"][ids]
        rose = (loss > expected) & (count > 0)
        mean = torch.where(rose, expected, (expected * count + loss) / (count + 1))
        forced = rose.any() & ~rose.all() & force
        absent = ~torch.isin(server["last_id"], ids)
        aimed = direction(uploads["delta"], loss, server["last"][absent], theta, forced)

        base = server_lr * float(cohort.lr[0]) if gradients else server_lr
        stretch = float(aimed["stretch"]) if step == "search" else 0.0
        changed = bool(absent.any())
        sizes = step_sizes(base, s, stretch, changed).to(w.device)
        models = [w - (size * aimed["d"]).to(w.dtype) for size in sizes]
        return {
            **aimed,
            "sizes": sizes,
            "trials": torch.stack(models),
            "expected": server["expected"].index_copy(0, ids, mean),
            "count": server["count"].index_copy(0, ids, count + 1),
        }

    def update(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        aimed = uploads if step == "search" else propose(server, uploads, cohort)
        live = aimed["live"]
        w = aimed["trials"][0]
        if step == "search":
            decrease = armijo * aimed["slope"][live].unsqueeze(1) * aimed["sizes"]
            losses = cohort.probe["loss"][live]
            tried = cohort.probe["loss_trials"][live]
            w = aimed["trials"][chosen(losses, tried, decrease, aimed["fair"])]

        new = {
            "w": w,
            "expected": aimed["expected"],
            "count": aimed["count"],
        }
        if not live.any():
            return {**server, **new}
        return {
            **new,
            "last": aimed["rows"],
            "last_id": cohort.id[live],
        }

    algo = Algorithm(
        **descent(local),
        server_init=server_init,
        update=update,
        trials=None if step == "fixed" else Trials(propose, vectors=1),
        needs={"loss"},
        weights="uniform",
    )
    if not gradients:
        return algo
    return replace(
        algo,
        step=lambda oracle, msg, local, batch, info: local,
        finish=lambda msg, client, local, info: ({"delta": info.probe["grad"]}, client),
        needs={"loss", "grad"},
    )


# ---- the direction with fair guidance, and the search for a step size


def direction(
    g: Tensor,
    loss: Tensor,
    kept: Tensor,
    theta: float,
    forced: Tensor,
) -> State:
    """Return the shortest common descent direction of vectors of one length.

    A row towards equal losses is among the vectors if the guidance is active.

    Args:
        g: The clients' vectors [C, P].
        loss: Their losses [C], float64.
        kept: Vectors of absent clients [K, P], taken as they are.
        theta: Angle in degrees between the losses and equal losses, above which the guidance is
            active.
        forced: Whether it is active at any angle.

    Returns:
        "d" [P], with the length of the mean vector, or 0 if the vectors have no common descent
        direction; "stretch", its length over that of the shortest point; "slope" [C], d's products
        with the vectors; "live" [C], which clients moved; "fair", whether the guidance is active;
        "rows" [L, P], the vectors of those that moved, at their mean length.
    """
    count = len(g)
    rows = torch.cat([g, kept])
    k = gram(rows)
    size = k.diagonal()[:count].sqrt()
    live = (size > _ZERO * size.max()) & (size > 0)
    absent = (0, len(kept))
    to_mean_length = torch.where(live, size[live].mean() / size, 0.0)
    scale = F.pad(to_mean_length, absent, value=1)
    k = k * scale * scale.unsqueeze(1)

    towards, angle = _towards_equal(loss, live)
    fair = (angle > theta) | forced
    used = torch.cat([live, live.new_ones(len(kept))])
    mixing = torch.eye(
        len(k),
        dtype=k.dtype,
        device=k.device,
    )[used]
    if fair and towards.any():
        mixing = torch.cat([mixing, F.pad(towards, absent).unsqueeze(0)])

    weight = torch.zeros_like(k[0])
    if live.any():
        weight = shortest_in_hull(mixing @ k @ mixing.T) @ mixing
    mean = F.pad(live.double() / live.sum().clamp_min(1), absent)
    shortest = weighted_sum(weight * scale, rows)
    mean_length = weighted_sum(mean * scale, rows).norm()
    length = shortest.norm()
    stretch = torch.where(length > _STILL * mean_length, mean_length / length, 0.0)
    return {
        "d": stretch * shortest,
        "stretch": stretch,
        "slope": stretch * (k @ weight)[:count],
        "live": live,
        "fair": fair,
        "rows": g[live] * to_mean_length[live].unsqueeze(1).to(g.dtype),
    }


def _towards_equal(loss: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """Return h [C], the unit part of -1̂ normal to F̂, and the angle of 1̂ and F̂ in degrees.

    Both are 0 if the losses are equal.
    """
    unit = F.normalize(
        loss * live,
        dim=0,
        eps=0.0,
    ).nan_to_num(0.0)
    ones = live / live.sum().clamp_min(1).double().sqrt()
    h = (ones @ unit) * unit - ones
    size = h.norm()
    # arccos would lose half of the digits at small angles
    angle = torch.atan2(size, ones @ unit) * (180 / pi)
    known = (size > _ZERO) & unit.any()
    return torch.where(known, h / size, 0.0), torch.where(known, angle, 0.0)


def step_sizes(
    base: float,
    s: int,
    stretch: float,
    changed: bool,
) -> Tensor:
    """Return the step sizes to try, each half of the one before.

    They go from 2^s · base, or base if the cohort has changed, down to 2^-s base / stretch. A
    direction of length 0 (``stretch`` 0) has nothing to try but base.
    """
    sizes = [base if changed or not stretch else 2.0**s * base]
    while stretch and sizes[-1] / 2 >= 2.0**-s * base / stretch:
        sizes.append(sizes[-1] / 2)
    return torch.tensor(sizes, dtype=torch.float64)


def chosen(
    before: Tensor,
    tried: Tensor,
    least: Tensor,
    fair: Tensor,
) -> Tensor:
    """Return the position of the step size to take.

    That is the first that decreases every loss enough and, under guidance, brings the losses nearer
    to equal; else the first that decreases their sum; else the one with the smallest sum.

    Args:
        before: Losses at the broadcast model [C].
        tried: Losses at the candidates [C, J].
        least: Decreases that are enough [C, J].
        fair: Whether the guidance is active.
    """
    enough = (before.unsqueeze(1) - tried >= least).all(0)
    even = _evenness(tried) > _evenness(before)
    total = tried.sum(0).nan_to_num(torch.inf)
    good = enough & (even | ~fair)
    lower = total < before.sum()
    first_lower = lower.int().argmax()
    first_good = good.int().argmax()
    best = torch.where(lower.any(), first_lower, total.argmin())
    return torch.where(good.any(), first_good, best)


def _evenness(loss: Tensor) -> Tensor:
    """Return √C times the cosine of losses [C, ...] and equal losses."""
    cosine: Tensor = loss.sum(0) / torch.linalg.vector_norm(loss, dim=0)
    return cosine

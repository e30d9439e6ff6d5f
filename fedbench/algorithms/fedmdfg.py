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

_ZERO = 1e-12  # a client whose vector is shorter than this fraction of the longest did not move
# a shortest point below this fraction of the mean vector's length is a rounding error of the
# quadratic program
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
    """FedMDFG: the shortest common descent direction, with guidance towards equal losses.

    Source: Pan et al., AAAI 2023.

    Ĝ_k are the clients' vectors, scaled to their mean length. d is the shortest point in the convex
    hull of the Ĝ_k, the Ĝ of clients in the last round that are now absent, and, while the angle
    between the losses and equal losses exceeds θ, hᵀĜ with h ∝ (1̂·F̂)F̂ - 1̂. d is scaled to the
    length of the mean Ĝ. w <- w - a d.

    Args:
        local: The local solver; plain SGD if ``source`` is "gradient", because clients then take no
            local steps.
        theta: Angle θ between the losses and equal losses, in degrees, above which the guidance is
            active.
        step: Step size a: "fixed" is η_g (times η_l for gradients); "search" starts at 2^s times
            that, halves it repeatedly, and takes the first value that decreases every loss by
            armijo · a · Ĝ_k·d and, under guidance, makes the losses more equal (the paper). The
            cohort evaluates all candidates.
        source: The clients' vectors: Δ_k ("delta"), or ∇F_k(w) on all training examples
            ("gradient", the paper).
        force: Whether guidance is also active if the losses of some, but not all, clients of the
            cohort exceed their own mean so far (the authors' code).
        s: Steps of the search, which starts s doublings above the fixed step size and ends s
            halvings below it.
        armijo: Share of the linear decrease that the search requires.
        server_lr: Server step size η_g.

    Identity: with one client and a fixed step, the method is FedAvg; without guidance, d is
    FedMGDA+'s direction with a different length. Deviation: the authors' search allows an increase
    where a decrease is intended, and its fairness test has no effect.
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
        """Return the candidate models, the direction behind them, and the server's loss records."""
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


# ---- the direction with fair guidance, and the step-size search


def direction(
    g: Tensor,
    loss: Tensor,
    kept: Tensor,
    theta: float,
    forced: Tensor,
) -> State:
    """Return the shortest common descent direction of vectors of equal length.

    If the guidance is active, the vectors include one that points towards equal losses.

    Args:
        g: The clients' vectors [C, P].
        loss: The clients' losses [C], float64.
        kept: Vectors of absent clients [K, P], used without scaling.
        theta: Angle in degrees between the losses and equal losses, above which the guidance is
            active.
        forced: Whether the guidance is active at any angle.

    Returns:
        "d" [P], with the length of the mean vector, or 0 if the vectors have no common descent
        direction; "stretch", the ratio of its length to that of the shortest point; "slope" [C],
        the inner products of d with the vectors; "live" [C], a mask of the clients that moved;
        "fair", whether the guidance is active; "rows" [L, P], the vectors of the clients that
        moved, scaled to their mean length.
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
    """Return h [C], which points towards equal losses, and the angle of 1̂ and F̂ in degrees.

    h is the part of -1̂ orthogonal to F̂, scaled to unit length. Both results are 0 if the losses
    are equal.
    """
    unit = F.normalize(
        loss * live,
        dim=0,
        eps=0.0,
    ).nan_to_num(0.0)
    ones = live / live.sum().clamp_min(1).double().sqrt()
    h = (ones @ unit) * unit - ones
    size = h.norm()
    # arccos would lose half of the digits for small angles
    angle = torch.atan2(size, ones @ unit) * (180 / pi)
    known = (size > _ZERO) & unit.any()
    return torch.where(known, h / size, 0.0), torch.where(known, angle, 0.0)


def step_sizes(
    base: float,
    s: int,
    stretch: float,
    changed: bool,
) -> Tensor:
    """Return the step sizes to try, each half of the previous one.

    They range from 2^s · base, or base if the cohort has changed, down to 2^-s base / stretch. For
    a direction of length 0 (``stretch`` 0), only base is returned.
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

    This is the first step size that decreases every loss enough and, under guidance, makes the
    losses more equal; otherwise the first that decreases their sum; otherwise the one with the
    smallest sum.

    Args:
        before: Losses [C] at the broadcast model.
        tried: Losses [C, J] at the candidates.
        least: Required decreases [C, J].
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
    """Return √C times the cosine of the angle between losses [C, ...] and equal losses."""
    cosine: Tensor = loss.sum(0) / torch.linalg.vector_norm(loss, dim=0)
    return cosine

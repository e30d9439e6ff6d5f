"""FAFED."""

from typing import Literal

import torch

from fedbench.algorithms.shared.reasons import MOMENTS
from fedbench.algorithms.shared.variance_reduction import (
    SAMPLED,
    first_exchange,
    rate,
    recursive_momentum,
)
from fedbench.core.algorithm import Algorithm, Averaging, by_weight, upload_with
from fedbench.core.optim import Optimizer, counter, without
from fedbench.core.options import HalfOpenUnit, Positive, UnitInterval
from fedbench.core.types import Batch, ClientInfo, Oracle, State


def fafed(
    local: Optimizer,
    *,
    alpha: UnitInterval = 0.1,
    beta: HalfOpenUnit = 0.9,
    rho: Positive = 0.01,
    decay_w: Positive | None = None,
    variant: Literal["paper", "code", "stateless"] = "paper",
    init_step: Literal["plain", "adaptive", "none"] = "plain",
    ext: float = 1.0,
) -> Algorithm:
    """FAFED: variance-reduced momentum m with a shared adaptive matrix A = √v + ρ.

    Source: Wu et al., AAAI 2023, Alg. 2.

    Step t computes two gradients on one batch, g = ∇F_k(x_t) and g' = ∇F_k(x_{t-1}):
    m_k <- g + (1-α)(m_k - g'); v_k <- β v_k + (1-β) g²; x_k <- x_k - η_t m_k / A, with A from the
    last exchange. The last step of a round averages first: v, m and x become means, then x <- mean
    x_k - η_t m / A with the new A.

    Args:
        local: The local solver; only its clipping and weight decay are used, on both gradients.
            Momentum is refused.
        alpha: Momentum parameter α; if it is 1, m is the plain gradient.
        beta: Decay β of the second moment.
        rho: Constant ρ added to √v.
        decay_w: The w in η_t = η_l / (w + t)^(1/3), with t in steps. If None, the rate is constant.
        variant: "paper" is the method above; "code" takes the last step before averaging, with the
            old A and the client's own m_k; "stateless" is for sampled cohorts, with x_{t-1} = x_t
            in a client's first step (the comparison in the FedCAda paper).
        init_step: x_1 = x_0 - η_0 m_0 ("plain", line 3), x_0 - η_0 m_0 / A ("adaptive") or x_0
            ("none").
        ext: Factor on g'; it is 0.95 in a public re-implementation.

    Identity: with A = 1, the method is STEM; with full batches, the mean of the m_k always equals
    the mean gradient.
    """
    solver = without(local, "fafed", "the method has its own", "momentum", "adaptive steps")

    def begin(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        g = uploads["g"]
        m, v = cohort.p @ g, cohort.p @ g.square()
        w = server["w"]
        if init_step != "none":
            scale = v.sqrt() + rho if init_step == "adaptive" else 1
            w = w - rate(cohort.lr[0], decay_w, 0) * m / scale
        return {
            **server,
            "w": w,
            "m": m,
            "v": v,
        }

    def step(
        oracle: Oracle,
        msg: State,
        local: State,
        batch: Batch,
        info: ClientInfo,
    ) -> State:
        g, m = recursive_momentum(solver, oracle, local, batch, alpha, ext)
        v = beta * local["v"] + (1 - beta) * g.square()
        s = batch.step + 1
        lr = rate(info.lr, decay_w, msg["t"] + s)
        w = local["w"] - lr * m / (msg["v"].sqrt() + rho)
        if variant != "code":
            w = torch.where(s >= info.steps, local["w"], w)
        return {
            "w": w,
            "prev": local["w"],
            "m": m,
            "v": v,
        }

    def update(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        w = server["w"] - uploads["delta"]
        m, v = uploads["m"], uploads["v"]
        t = server["t"] + cohort.steps.double().mean()  # iterations
        if variant != "code":
            lr = rate(cohort.lr[0], decay_w, t)
            w = w - lr * m / (v.sqrt() + rho)
        return {
            "w": w,
            "m": m,
            "v": v,
            "t": t,
        }

    return Algorithm(
        server_init=lambda w, N: {
            "w": w,
            "m": torch.zeros_like(w),
            "v": torch.zeros_like(w),
            "t": counter(w),
        },
        client_init=lambda w: {} if variant == "stateless" else {"prev": w},
        broadcast=lambda server: server,
        start=lambda msg, client, info: {
            **msg,
            "prev": msg["w"],
            **client,
        },
        step=step,
        finish=upload_with("m", "v"),
        whole=MOMENTS,
        update=Averaging(update, dict.fromkeys(("delta", "m", "v"), by_weight)),
        setup=first_exchange(solver, begin),
        weights="uniform",
        kinds=("moments", "replaces", "equal steps"),
        exposes={"moments": lambda uploads, clients: uploads["m"]},
        everyone=""
        if variant == "stateless"
        else f"{SAMPLED}; algo.variant=stateless restarts in every round",
    )

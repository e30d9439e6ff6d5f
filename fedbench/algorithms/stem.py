"""STEM."""

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
from fedbench.core.options import Positive, UnitInterval
from fedbench.core.types import Batch, ClientInfo, Oracle, State


def stem(
    local: Optimizer,
    *,
    alpha: UnitInterval = 0.1,
    decay_w: Positive | None = None,
    init_step: Literal["plain", "none"] = "plain",
) -> Algorithm:
    """STEM: local steps along a variance-reduced momentum d.

    Source: Khanduri et al., NeurIPS 2021, Alg. 1.

    Step t computes two gradients on one batch: d_k <- ∇F_k(x_t) + (1-α)(d_k - ∇F_k(x_{t-1}));
    x_k <- x_k - η_t d_k. After the steps of a round, x and d are averaged with uniform weights.

    Args:
        local: The local solver; only its clipping and weight decay are used, on both gradients.
            Momentum is refused.
        alpha: Momentum parameter α: the paper's a_t = c η_t², kept constant.
        decay_w: The w in η_t = η_l / (w + t)^(1/3), with t in steps. If None, the rate is constant.
        init_step: Whether the exchange before the first round, which computes d_0, also takes a
            step along it ("plain") or not ("none").

    Identity: α = 1 is local SGD; with one full-batch step per round, the method is gradient
    descent.
    """
    solver = without(local, "stem", "the method has its own", "momentum", "adaptive steps")

    def begin(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        w, m = server["w"], uploads["g"]
        if init_step == "plain":
            w = w - rate(cohort.lr[0], decay_w, 0) * m
        return {**server, "w": w, "m": m}

    def step(
        oracle: Oracle,
        msg: State,
        local: State,
        batch: Batch,
        info: ClientInfo,
    ) -> State:
        _, m = recursive_momentum(solver, oracle, local, batch, alpha)
        lr = rate(info.lr, decay_w, msg["t"] + batch.step + 1)
        w = local["w"] - lr * m
        return {
            "w": w,
            "prev": local["w"],
            "m": m,
        }

    def update(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        t = server["t"] + cohort.steps.double().mean()  # iterations
        return {
            "w": server["w"] - uploads["delta"],
            "m": uploads["m"],
            "t": t,
        }

    return Algorithm(
        server_init=lambda w, N: {
            "w": w,
            "m": torch.zeros_like(w),
            "t": counter(w),
        },
        client_init=lambda w: {"prev": w},
        broadcast=lambda server: server,
        start=lambda msg, client, info: {**msg, "prev": client["prev"]},
        step=step,
        finish=upload_with("m"),
        whole=MOMENTS,
        update=Averaging(update, {"delta": by_weight, "m": by_weight}),
        setup=first_exchange(solver, Averaging(begin, {"g": by_weight})),
        weights="uniform",
        kinds=("replaces", "equal steps"),
        everyone=SAMPLED,
        exposes={"moments": lambda uploads, clients: uploads["m"]},
    )

"""FedCAda."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from fedbench.algorithms.shared.reasons import MOMENTS
from fedbench.core.algorithm import Algorithm, Averaging, Weights, by_weight, upload_with
from fedbench.core.optim import Optimizer, without
from fedbench.core.options import HalfOpenUnit, Positive
from fedbench.core.types import Batch, ClientInfo, Oracle, State

ADJUST: dict[str, Callable[[Tensor], Tensor]] = {
    "plus": lambda z: 1 + z,
    "square": lambda z: 1 + z**2,
    "sin": lambda z: 1 + torch.sin(z),
    "sqrt": lambda z: 1 + z.sqrt(),
    "identity": torch.ones_like,
    "adam": lambda z: 1 - z,
}


def fedcada(
    local: Optimizer,
    *,
    beta1: HalfOpenUnit = 0.9,
    beta2: HalfOpenUnit = 0.999,
    eps: Positive = 1e-8,
    adjust: Literal["plus", "square", "sin", "sqrt", "identity", "adam"] = "plus",
    counter: Literal["round", "step"] = "round",
    server_lr: Positive = 1.0,
    weights: Weights = "uniform",
) -> Algorithm:
    """FedCAda: local Adam with moments averaged by the server and damped early steps.

    Source: Zhou et al., 2024, Alg. 2.

    m, v start at the server's M, V; m <- β1 m + (1-β1) g; v <- β2 v + (1-β2) g²; w <- w - η_l
    m̂/(√v̂ + ε) with m̂ = m/D(β1^t), v̂ = v/D(β2^t). Server: w <- w - η_g Σ p_k Δ_k; M and V are
    the means of m_k and v_k with the same weights.

    Args:
        local: The local solver; only its clipping and weight decay are used. Momentum is refused.
        beta1: Decay β1 of the first moment.
        beta2: Decay β2 of the second moment.
        eps: Constant ε added to the denominator.
        adjust: The function D(z): "plus" 1 + z, "square" 1 + z², "sin" 1 + sin z, "sqrt" 1 + √z,
            "identity" 1, "adam" 1 - z.
        counter: Meaning of t: "round" is the number of the round, from 1; "step" is the client's
            own number of steps.
        server_lr: Server step size η_g.
        weights: Weights p_k, "uniform" or by number of training examples ("size").

    Identity: with one client, adjust="adam" and counter="step", the method is Adam. Deviation: our
    copy of the paper lacks all formulas; they are reconstructed from its prose (Secs. 3.2, 4.3).
    """
    solver = without(
        local, "fedcada", "the method has its own moments", "momentum", "adaptive steps"
    )

    damping = ADJUST[adjust]

    def step(
        oracle: Oracle,
        msg: State,
        local: State,
        batch: Batch,
        info: ClientInfo,
    ) -> State:
        g, _ = solver.update(oracle.grad(local["w"], batch), local)
        t = local["t"] + (counter == "step")
        m = beta1 * local["m"] + (1 - beta1) * g
        v = beta2 * local["v"] + (1 - beta2) * g.square()
        d1 = damping(beta1**t).to(g.dtype)
        d2 = damping(beta2**t).to(g.dtype)
        w = local["w"] - info.lr * (m / d1) / ((v / d2).sqrt() + eps)
        return {
            "w": w,
            "m": m,
            "v": v,
            "t": t,
        }

    def update(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        w = torch.sub(server["w"], uploads["delta"], alpha=server_lr)
        return {
            "w": w,
            "m": uploads["m"],
            "v": uploads["v"],
            "t": server["t"] + 1,
        }

    def server_init(w: Tensor, num_clients: int) -> State:
        zeros = torch.zeros_like(w)
        return {
            "w": w,
            "m": zeros,
            "v": zeros,
            "t": w.new_zeros(1, dtype=torch.float64),
        }

    return Algorithm(
        server_init=server_init,
        client_init=lambda w: (
            {} if counter == "round" else {"t": w.new_zeros(1, dtype=torch.float64)}
        ),
        broadcast=lambda server: server,
        start=lambda msg, client, info: {
            **msg,
            "t": msg["t"] + 1,
            **client,
        },
        step=step,
        finish=upload_with("m", "v"),
        whole=MOMENTS,
        update=Averaging(update, dict.fromkeys(("delta", "m", "v"), by_weight)),
        weights=weights,
        kinds=("moments", "replaces"),
        exposes={"moments": lambda uploads, clients: uploads["m"]},
    )

"""FedSpeed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from torch import Tensor

from fedbench.algorithms.shared.averages import with_mean_drift
from fedbench.algorithms.shared.reasons import BLENDS
from fedbench.algorithms.shared.sharpness import uphill
from fedbench.core.algorithm import Algorithm, Descent, server_descent
from fedbench.core.optim import Optimizer, without
from fedbench.core.options import NonNegative, Positive, UnitInterval
from fedbench.core.types import Batch, ClientInfo, Oracle, State


def fedspeed(
    local: Optimizer,
    *,
    prox: Positive = 0.1,
    alpha: UnitInterval = 1.0,
    rho: NonNegative = 0.1,
    server: Literal["cohort", "all"] = "cohort",
    examples: Sequence[int] | None = None,
) -> Algorithm:
    """FedSpeed: FedDyn's corrected proximal term with gradients at a nearby point.

    Source: Sun et al., ICLR 2023.

    ŵ = w + ρ g/||g||, g = ∇F_k(w; batch). Local gradient: (1-α) g + α ∇F_k(ŵ; batch) + prox
    (w - w^t + u_k); after local training, u_k <- u_k + w_k - w^t, initially 0. Server: w <- (1/C) Σ
    (w_k + u_k), with the new u_k.

    Args:
        local: The local solver, plain SGD.
        prox: Strength of the proximal term, 1/λ in the paper.
        alpha: Share α in [0, 1] of the gradient at ŵ.
        rho: Radius ρ.
        server: "cohort" is the server step above (the paper); "all" is w <- (1/C) Σ w_k + ū, where
            ū is the mean of the u_k of all N clients (the authors' code). Both are equal if every
            client takes part.
        examples: Number of training examples of every client, [N], set by the run. Clients without
            examples do not count.

    Raises:
        RequestError: If the local solver is not plain SGD, because u_k would not converge to a
            gradient.

    Identity: if ρ = 0 or α = 0, and every client takes part or server = "all", the method is FedDyn
    with α = prox.
    """
    without(local, "fedspeed", "the u_k settle at the clients' gradients only under plain SGD")

    def gradient(
        oracle: Oracle,
        msg: State,
        local: State,
        batch: Batch,
        info: ClientInfo,
    ) -> Tensor:
        g, uphill_g = uphill(oracle, local["w"], batch, rho)
        pull = prox * (local["w"] - msg["w"] + local["drift"])
        return (1 - alpha) * g + alpha * uphill_g + pull

    algo = replace(
        with_mean_drift(Descent(gradient=gradient), examples),
        whole=BLENDS,
    )
    if server == "all":
        return algo

    def finish(
        msg: State,
        client: State,
        local: State,
        info: ClientInfo,
    ) -> tuple[State, State]:
        delta = msg["w"] - local["w"]
        drift = client["drift"] - delta
        return {"delta": delta - drift}, {"drift": drift}

    return replace(algo, **server_descent(), finish=finish, kinds=())

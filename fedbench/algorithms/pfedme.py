"""pFedMe."""

from typing import Literal

from fedbench.core.algorithm import Algorithm, Weights, server_descent, upload_with
from fedbench.core.optim import Optimizer, without
from fedbench.core.options import Count, Positive
from fedbench.core.types import Batch, ClientInfo, Oracle, State


def pfedme(
    local: Optimizer,
    *,
    lam: Positive = 15.0,
    inner: Count = 5,
    personal_lr: Positive = 0.09,
    beta: Positive = 1.0,
    start: Literal["warm", "reset"] = "warm",
    weights: Weights = "size",
) -> Algorithm:
    """Personal models θ_k near x_k, which averages to w (pFedMe).

    Source: Dinh, Tran & Nguyen, NeurIPS 2020.

    x = θ = w^t; every local step takes one batch, K times θ <- θ - η_p (∇F_k(θ; batch) + λ (θ -
    x)), and then x <- x - η_l λ (x - θ). Server: w <- (1-β) w + β Σ p_k x_k. Clients are judged on
    their last θ_k, before their first round on w^0.

    Args:
        local: The local solver, plain SGD.
        lam: Strength λ of the pull of θ towards x; η_l λ should be below 1.
        inner: Number K of steps of θ on a batch.
        personal_lr: Learning rate η_p of θ.
        beta: The server's step size β.
        start: Whether θ goes on over the local steps of a round ("warm", the authors' code) or
            starts at x in each ("reset").
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Raises:
        RequestError: If the local solver is not plain: its steps are those above.

    Identity: K = 1, η_p = 1/λ, "reset" and β = 1 is FedAvg. Deviation: the authors' code decays θ
    by 0.001, trains all clients and averages a sample of them, and replaces θ_k by x_k before it
    evaluates.
    """
    without(local, "pfedme", "its local steps are proximal ones")

    def step(
        oracle: Oracle,
        msg: State,
        local: State,
        batch: Batch,
        info: ClientInfo,
    ) -> State:
        x, theta = local["w"], local["personal" if start == "warm" else "w"]
        for _ in range(inner):
            theta = theta - personal_lr * (oracle.grad(theta, batch) + lam * (theta - x))
        return {"w": x - info.lr * lam * (x - theta), "personal": theta}

    return Algorithm(
        **server_descent(lr=beta),
        client_init=lambda w: {"personal": w},
        start=lambda msg, client, info: {"w": msg["w"], "personal": msg["w"]},
        step=step,
        finish=upload_with(),
        deploy=lambda server, clients: clients["personal"],
        weights=weights,
    )

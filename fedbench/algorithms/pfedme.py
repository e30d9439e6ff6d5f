"""pFedMe."""

from typing import Literal

from fedbench.algorithms.shared.reasons import PERSONAL
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
    """Personal models θ_k near local models x_k, whose average is w (pFedMe).

    Source: Dinh, Tran & Nguyen, NeurIPS 2020.

    Initially, x = θ = w^t. Every local step takes one batch, repeats θ <- θ - η_p (∇F_k(θ;
    batch) + λ (θ - x)) K times, and then sets x <- x - η_l λ (x - θ). Server: w <- (1-β) w + β Σ
    p_k x_k. Clients are evaluated on their last θ_k, or on w^0 before their first round.

    Args:
        local: The local solver, plain SGD.
        lam: Strength λ of the pull of θ towards x; η_l λ should be below 1.
        inner: Number K of steps of θ per batch.
        personal_lr: Learning rate η_p of θ.
        beta: Server step size β.
        start: Whether θ continues across the local steps of a round ("warm", the authors' code) or
            restarts from x in each step ("reset").
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Raises:
        RequestError: If the local solver is not plain SGD, because the local steps are those above.

    Identity: with K = 1, η_p = 1/λ, "reset" and β = 1, the method is FedAvg. Deviation: the
    authors' code applies weight decay 0.001 to θ, trains all clients and averages a sample of them,
    and replaces θ_k with x_k before evaluation.
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
        whole=PERSONAL,
        weights=weights,
    )

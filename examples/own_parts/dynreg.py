"""FedDyn (Acar et al., ICLR 2021, Alg. 1), a method with states of the clients and the server."""

import torch
from torch import Tensor

from fedbench import Algorithm, descent
from fedbench.core.optim import SGD, Optimizer
from fedbench.core.options import Positive
from fedbench.core.types import ClientInfo, State


def dynreg(local: Optimizer = SGD, *, alpha: Positive = 0.1) -> Algorithm:
    """FedDyn: every client keeps a vector g, and the server a vector h.

    The local objective is F_k(v) - <g_k, v> + α/2 ||v - w||². After it, g_k <- g_k - α (w_k - w)
    and h <- h - α Σ_S (w_k - w) / N. The new model is the mean of the w_k less h / α.

    Identity: with one client, g and h are equal after every round.

    Args:
        local: The local solver.
        alpha: Strength α of the dynamic regularizer.
    """

    def server_init(w: Tensor, num_clients: int) -> State:
        return {
            "w": w,
            "h": torch.zeros_like(w),
            "clients": torch.full_like(w[:1], num_clients),
        }

    def start(msg: State, client: State, info: ClientInfo) -> State:
        return {"w": msg["w"], "g": client["g"], **local.init(msg["w"])}

    def extra(msg: State, local_variables: State, info: ClientInfo) -> Tensor:
        # added to the gradient of a batch
        return alpha * (local_variables["w"] - msg["w"]) - local_variables["g"]

    def finish(
        msg: State,
        client: State,
        local_variables: State,
        info: ClientInfo,
    ) -> tuple[State, State]:
        delta = msg["w"] - local_variables["w"]
        return {"delta": delta}, {"g": client["g"] + alpha * delta}

    def update(server: State, uploads: State, cohort: ClientInfo) -> State:
        delta = uploads["delta"]  # [C, P]
        h = server["h"] + alpha * delta.sum(0) / server["clients"]
        w = server["w"] - delta.mean(0) - h / alpha
        return {**server, "h": h, "w": w}

    return Algorithm(
        server_init=server_init,
        client_init=lambda w: {"g": torch.zeros_like(w)},
        start=start,
        step=descent(local, extra=extra)["step"],
        finish=finish,
        update=update,
        weights="uniform",
    )

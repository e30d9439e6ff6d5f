"""Local Adam."""

from __future__ import annotations

from typing import Literal

from fedbench.core.algorithm import Algorithm, Weights, descent, server_descent, upload_delta
from fedbench.core.errors import choice, number
from fedbench.core.optim import SGD, Optimizer, adam, chain, without
from fedbench.core.types import ClientInfo, State


def local_adam(
    local: Optimizer = SGD,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    state: Literal["persist", "reset"] = "persist",
    weights: Weights = "uniform",
) -> Algorithm:
    """FedAvg whose local solver is Adam with moments of each client's own (FedCAda paper, Alg. 1: its baseline).

    Args:
        local: clipping and weight decay of the gradient; no momentum.
        beta1: β1.
        beta2: β2.
        eps: ε.
        state: m, v and the count of steps live on with the client, or start from 0 in every round.
        weights: p_k uniform, or by number of training examples.

    Identity: one client with lasting moments is Adam.
    Deviation: the pseudo-code is lost in the paper's text. Clients that sat out keep their old moments.
    """
    choice("algo.state", state, ("persist", "reset"))
    choice("algo.weights", weights, ("size", "uniform"))
    eps = number("algo.eps", eps, above=0)
    local = without(local, "momentum", "adaptive steps", method="local_adam", reason="Adam has its own")
    solver = adam(beta1, beta2, eps, bias_correction=True)
    if state == "reset":
        return Algorithm(**descent(chain(local, solver)), **server_descent(), weights=weights)

    def finish(msg: State, client: State, local: State, info: ClientInfo) -> tuple[State, State]:
        return upload_delta(msg, client, local, info)[0], {k: local[k] for k in client}

    return Algorithm(
        client_init=solver.init,
        start=lambda msg, client, info: {"w": msg["w"], **client},
        step=descent(chain(local, solver))["step"],
        finish=finish,
        weights=weights,
        exposes={"moments": lambda uploads, clients: clients["m"]},
    )

"""Local Adam."""

from typing import Literal

from fedbench.core.algorithm import (
    Algorithm,
    Descent,
    Weights,
    descent,
    start_from_client,
    upload_with,
)
from fedbench.core.optim import Optimizer, adam, chain, without
from fedbench.core.options import HalfOpenUnit, Positive


def local_adam(
    local: Optimizer,
    *,
    beta1: HalfOpenUnit = 0.9,
    beta2: HalfOpenUnit = 0.999,
    eps: Positive = 1e-8,
    state: Literal["persist", "reset"] = "persist",
    weights: Weights = "uniform",
) -> Algorithm:
    """FedAvg whose local solver is Adam, with moments of each client's own.

    Source: FedCAda paper, Alg. 1: its baseline.

    Args:
        local: Clipping and weight decay of the gradient; momentum is refused.
        beta1: Decay β1 of the first moment.
        beta2: Decay β2 of the second moment.
        eps: Constant ε added to the denominator.
        state: "persist": a client keeps m, v and the count of steps between rounds; "reset": they
            start from 0 in every round.
        weights: Weights p_k, "uniform" or by number of training examples ("size").

    Identity: one client with moments that persist is Adam. Deviation: the text of the paper has
    lost its pseudo-code. Clients that do not take part keep their old moments.
    """
    local = without(local, "local_adam", "Adam has its own", "momentum", "adaptive steps")
    solver = chain(local, adam(beta1, beta2, eps, bias_correction=True))
    if state == "reset":
        return Algorithm(**descent(solver), weights=weights)
    return Algorithm(
        client_init=solver.init,
        start=start_from_client,
        step=Descent(solver),
        finish=upload_with(),
        weights=weights,
        exposes={"moments": lambda uploads, clients: clients["m"]},
    )

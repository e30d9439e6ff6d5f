"""Local Adam."""

from typing import Literal

from fedbench.algorithms.shared.reasons import MOMENTS
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
    """Local Adam: FedAvg with Adam as the local solver and separate moments on each client.

    Source: FedCAda paper, Alg. 1 (its baseline).

    Args:
        local: The local solver; only its clipping and weight decay are used. Momentum is refused.
        beta1: Decay β1 of the first moment.
        beta2: Decay β2 of the second moment.
        eps: Constant ε added to the denominator.
        state: With "persist", a client keeps m, v and the step count between rounds; with "reset",
            they start from 0 in every round.
        weights: Weights p_k, "uniform" or by number of training examples ("size").

    Identity: with one client and persistent moments, the method is Adam. Deviation: our copy of the
    paper lacks the pseudo-code. Clients that do not take part keep their old moments.
    """
    local = without(local, "local_adam", "Adam has its own", "momentum", "adaptive steps")
    solver = chain(local, adam(beta1, beta2, eps, bias_correction=True))
    if state == "reset":
        return Algorithm(**descent(solver), weights=weights, whole=MOMENTS)
    return Algorithm(
        client_init=solver.init,
        start=start_from_client,
        step=Descent(solver),
        finish=upload_with(),
        whole=MOMENTS,
        weights=weights,
        exposes={"moments": lambda uploads, clients: clients["m"]},
    )

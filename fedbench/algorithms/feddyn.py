"""FedDyn."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from fedbench.algorithms.shared.averages import with_mean_drift
from fedbench.core.algorithm import Algorithm, Descent, ProximalTerm
from fedbench.core.errors import RequestError
from fedbench.core.optim import Optimizer, without
from fedbench.core.options import Positive


def feddyn(
    local: Optimizer,
    *,
    alpha: Positive = 0.01,
    weights: Literal["uniform", "size"] = "uniform",
    deploy: Literal["server", "mean"] = "server",
    examples: Sequence[int] | None = None,
) -> Algorithm:
    """FedDyn: a dynamic regulariser that aligns local optima with the global optimum.

    Source: Acar et al., ICLR 2021, Alg. 1.

    Local gradient: ∇F_k(w; batch) + α (w - w^t + u_k); after local training,
    u_k <- u_k + w_k - w^t, initially 0 (the paper's ∇_k is -α u_k, and its h is -α ū). Server:
    ū <- ū - (1/N) Σ Δ_k, w <- w - (1/C) Σ Δ_k + ū.

    Args:
        local: The local solver, plain SGD.
        alpha: Strength α of the regulariser.
        weights: The objective: "uniform" is the mean of the F_k; "size" is their mean weighted by
            the number of training examples, with α_k = α/(N p_k) on client k, where p_k is its
            share of all examples. In both cases, local models are averaged uniformly.
        deploy: The model to evaluate: the server's w ("server"), or the mean of the cohort's local
            models ("mean").
        examples: Number of training examples of every client, [N], set by the run. Clients without
            examples do not count.

    Raises:
        RequestError: If the local solver is not plain SGD, because u_k would not converge to a
            gradient.

    Identity: on quadratics with many local steps, the method reaches the optimum of the mean. It
    does not tend to FedAvg for α -> 0: the first server step is -2 (1/C) Σ Δ_k for any α.
    """
    without(local, "feddyn", "the u_k settle at the clients' gradients only under plain SGD")
    step = Descent(extra=ProximalTerm(alpha, "drift"))
    if weights == "size":
        if examples is None:
            raise RequestError(
                "weights=size needs the training examples of all clients: pass examples=[...]"
            )
        typical = alpha * sum(examples) / sum(n > 0 for n in examples)
        step = Descent(
            extra=lambda msg, local, info: (
                typical / info.n * (local["w"] - msg["w"] + local["drift"])
            )
        )

    algo = with_mean_drift(step, examples)
    if deploy == "mean":
        algo = replace(algo, deploy=lambda server, clients: server["mean"])
    return algo

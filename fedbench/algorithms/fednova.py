"""FedNova."""

from torch import Tensor

from fedbench.core.algorithm import Algorithm, Weights, by_weight, descent, server_descent
from fedbench.core.errors import RequestError
from fedbench.core.optim import Optimizer, sgd
from fedbench.core.options import HalfOpenUnit
from fedbench.core.types import ClientInfo, State


def fednova(
    local: Optimizer,
    *,
    server_momentum: HalfOpenUnit = 0.0,
    weights: Weights = "size",
) -> Algorithm:
    """FedNova: an average of normalised updates, scaled by the effective number of steps τ_eff.

    Source: Wang et al., NeurIPS 2020, Eq. 8 and Alg. 1.

    a_k = ||a||_1 is the total weight of a constant gradient in τ_k local steps: τ_k for plain SGD,
    and [τ_k - ρ(1-ρ^τ_k)/(1-ρ)]/(1-ρ) with momentum ρ. τ_eff = Σ p_k a_k; w <- w - τ_eff Σ p_k Δ_k
    / a_k.

    Args:
        local: The local solver, which must be linear in the gradients.
        server_momentum: Momentum ρ_s of the server's direction, b <- ρ_s b + d (the authors' code:
            gmf).
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Raises:
        RequestError: If the local solver has no a_k.

    Identity: with equal a_k, the method is FedAvg. Deviation: Nesterov momentum and clipping are
    not in the paper; a_k is computed for Nesterov's direction, and ignores clipping (which is not
    linear).
    """
    passes = local.passes
    if passes is None:
        raise RequestError(
            "fednova needs a local solver that is linear in the gradients; "
            "use plain or momentum SGD"
        )

    def finish(
        msg: State,
        client: State,
        local: State,
        info: ClientInfo,
    ) -> tuple[State, State]:
        a = passes(info.steps)  # [C, 1]
        return {"unit": (msg["w"] - local["w"]) / a, "a": a}, client

    def direction(uploads: State, cohort: ClientInfo) -> Tensor:
        tau_eff = cohort.p @ uploads["a"].squeeze(1)
        return tau_eff * uploads["unit"]

    server = server_descent(
        sgd(momentum=server_momentum),
        direction=direction,
        averaged={"unit": by_weight},
    )
    return Algorithm(
        **descent(local),
        **server,
        finish=finish,
        weights=weights,
        kinds=("numbers",),
    )

"""TERM."""

from torch import Tensor

from fedbench.core.algorithm import Algorithm, Weights, descent, server_descent
from fedbench.core.optim import Optimizer
from fedbench.core.options import Positive
from fedbench.core.types import ClientInfo, State


def term(
    local: Optimizer,
    *,
    t: float = 1.0,
    weights: Weights = "uniform",
    server_lr: Positive = 1.0,
) -> Algorithm:
    """Federated TERM: tilted weights ω_k ∝ p_k exp(t F_k(w)); w <- w - η_g Σ ω_k Δ_k.

    Source: Li et al., ICLR 2021.

    Args:
        local: The local solver.
        t: The tilt: clients with a high loss count more if it is positive, and less if it is
            negative.
        weights: Weights p_k, "uniform" (as throughout the authors' code) or by number of training
            examples ("size").
        server_lr: Server step size η_g; 1/C imitates the trainer of the authors' TERM repository,
            which averages twice.

    Identity: t = 0 is FedAvg with the same weights; for t -> ∞, only the model of the client with
    the highest loss counts.
    """

    def tilted(server: State, cohort: ClientInfo) -> Tensor:
        tilt = t * cohort.probe["loss"]  # [C] float64
        omega = cohort.p * (tilt - tilt.max()).exp()
        return omega / omega.sum()

    server = server_descent(lr=server_lr, averaged={"delta": tilted})
    return Algorithm(
        **descent(local),
        **server,
        needs={"loss"},
        weights=weights,
    )

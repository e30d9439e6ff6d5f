"""FedPer (Arivazhagan et al., 2019): FedAvg of the body; every client keeps its head."""

from fedbench.core.algorithm import Algorithm, Weights, averaging_method
from fedbench.core.optim import Optimizer
from fedbench.core.options import Positive


def fedper(
    local: Optimizer,
    *,
    server_lr: Positive = 1.0,
    weights: Weights = "size",
) -> Algorithm:
    """FedPer: body and head move together in every local step, and only the body is averaged.

    The personal part is ``parts.personal``, by default the head. The paper keeps the last K_P
    layers; patterns choose more than the last one.

    Source: Arivazhagan et al., 2019 (arXiv 1912.00818), Alg. 1 and 2.

    Args:
        local: The local solver.
        server_lr: Server step size η_g.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: with ``parts.personal=[]`` the method is FedAvg.
    """
    return averaging_method(
        local,
        server_lr,
        weights,
        personal_part=("head",),
    )

"""FedPer (Arivazhagan et al., 2019): FedAvg of the body; every client keeps its head."""

from fedbench.core.algorithm import Algorithm, Weights, descent
from fedbench.core.optim import Optimizer


def fedper(
    local: Optimizer,
    *,
    weights: Weights = "size",
) -> Algorithm:
    """FedPer: body and head move together in every local step, and only the body is averaged.

    The personal part is ``parts.personal``, by default the head. The paper keeps the last K_P
    layers; patterns choose more than the last one.

    Source: Arivazhagan et al., 2019 (arXiv 1912.00818), Alg. 1 and 2.

    Args:
        local: The local solver.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: with ``parts.personal=[]`` the method is FedAvg.
    """
    return Algorithm(**descent(local), weights=weights, personal_part=("head",))

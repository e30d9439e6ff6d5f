"""FedBN (Li et al., ICLR 2021): FedAvg; every client keeps its normalisation layers."""

from fedbench.core.algorithm import Algorithm, Weights, averaging_method
from fedbench.core.optim import Optimizer
from fedbench.core.options import Positive


def fedbn(
    local: Optimizer,
    *,
    server_lr: Positive = 1.0,
    weights: Weights = "uniform",
) -> Algorithm:
    """FedBN: weights, biases and running statistics of normalisation layers are never averaged.

    The personal part is ``parts.personal``, by default ``norm``. Every client is evaluated with
    its own layers and statistics. With GroupNorm, only weights and biases remain to be kept.

    Source: Li et al., ICLR 2021; the authors' code.

    Args:
        local: The local solver.
        server_lr: Server step size η_g.
        weights: Weights p_k, "uniform" as in the authors' code, or by number of training examples
            ("size").

    Identity: if all clients have the same data, all evaluated numbers are those of FedAvg.
    """
    return averaging_method(
        local,
        server_lr,
        weights,
        personal_part=("norm",),
    )

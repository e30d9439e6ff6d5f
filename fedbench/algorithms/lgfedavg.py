"""LG-FedAvg (Liang et al., 2020): FedAvg of the head; every client keeps its body."""

from fedbench.core.algorithm import Algorithm, Weights, averaging_method
from fedbench.core.optim import Optimizer
from fedbench.core.options import Positive


def lgfedavg(
    local: Optimizer,
    *,
    server_lr: Positive = 1.0,
    weights: Weights = "uniform",
) -> Algorithm:
    """LG-FedAvg: body and head move together in every local step, and only the head is averaged.

    The personal part is ``parts.personal``, by default the body.

    Source: Liang et al., 2020 (arXiv 2001.01523); the authors' code. It begins with a finished
    FedAvg model, as ``init.path`` does, and keeps for each client the model that was best on the
    test set, which is not done here.

    Args:
        local: The local solver.
        server_lr: Server step size η_g.
        weights: Weights p_k, "uniform" as in the authors' code, or by number of training examples
            ("size").

    Identity: with ``parts.personal=[head]`` the method is FedPer.
    """
    return averaging_method(
        local,
        server_lr,
        weights,
        personal_part=("body",),
    )

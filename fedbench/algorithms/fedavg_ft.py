"""FedAvg with fine-tuning: every client trains the server's model before it is evaluated."""

from fedbench.core.algorithm import Algorithm, Weights, averaging_method
from fedbench.core.optim import Optimizer
from fedbench.core.options import Positive


def fedavg_ft(
    local: Optimizer,
    *,
    server_lr: Positive = 1.0,
    weights: Weights = "size",
) -> Algorithm:
    """FedAvg-FT: FedAvg, whose clients are evaluated after an epoch of fine-tuning.

    Number of epochs, learning rate and moved parameters are ``finetune.epochs``, ``finetune.lr``
    and ``finetune.parts``. Nothing of the fine-tuning is kept. Literature on personalisation uses
    this baseline (e.g. Collins et al., ICML 2021); one epoch is the choice of fedbench.

    Args:
        local: The local solver, also of the fine-tuning.
        server_lr: Server step size η_g.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: with ``finetune.epochs=0`` the method is FedAvg.
    """
    return averaging_method(
        local,
        server_lr,
        weights,
        finetune_epochs=1,
    )

"""FedBABU (Oh et al., 2022): FedAvg of the body under a head that is trained in evaluation only."""

from fedbench.core.algorithm import Algorithm, Weights, averaging_method
from fedbench.core.optim import Optimizer
from fedbench.core.options import Positive


def fedbabu(
    local: Optimizer,
    *,
    server_lr: Positive = 1.0,
    weights: Weights = "uniform",
) -> Algorithm:
    """FedBABU: the head keeps its initial values, and clients fine-tune the whole model.

    The frozen part is ``parts.frozen``, by default the head. Before an evaluation, every client
    trains body and head for ``finetune.epochs`` epochs, by default 5; with 0, the server's model is
    evaluated. Nothing of the fine-tuning is kept.

    Source: Oh, Kim & Yun, ICLR 2022; the authors' code, in which the head has a learning rate of 0
    and all clients have the same weight.

    Args:
        local: The local solver, also of the fine-tuning.
        server_lr: Server step size η_g.
        weights: Weights p_k, "uniform" or by number of training examples ("size").

    Identity: with ``parts.frozen=[]`` and ``finetune.epochs=0`` the method is FedAvg.
    """
    return averaging_method(
        local,
        server_lr,
        weights,
        frozen_part=("head",),
        finetune_epochs=5,
    )

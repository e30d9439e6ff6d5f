"""FedNTD (Lee et al., 2022): local steps keep the broadcast model's view of the other classes."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Weights, averaging_method
from fedbench.core.objective import Objective, cross_entropy
from fedbench.core.optim import Optimizer
from fedbench.core.options import NonNegative, Positive
from fedbench.core.types import Batch, ClientInfo, Outputs, State


def not_true_distillation(
    *,
    beta: NonNegative = 1.0,
    tau: Positive = 1.0,
) -> Objective:
    """Cross-entropy plus β τ² KL(q^g || q) over the classes other than the label.

    q and q^g are the softmax of the logits divided by τ over these classes, for the local model and
    for the broadcast model.

    Source: Lee et al., NeurIPS 2022; the authors' code.

    Args:
        beta: Weight β of the divergence.
        tau: Temperature τ.
    """

    def values(
        own: Outputs,
        others: Mapping[str, Outputs],
        batch: Batch,
        local: State,
        info: ClientInfo,
    ) -> Tensor:
        label = batch.y.unsqueeze(2)

        def log_shares(logits: Tensor) -> Tensor:
            # log-softmax over the other classes; 0 at the label
            masked = (logits / tau).scatter(2, label, -torch.inf)
            return masked.log_softmax(2).scatter(2, label, 0)

        of_server = log_shares(others["broadcast"].logits)
        share = of_server.exp().scatter(2, label, 0)
        divergence = share * (of_server - log_shares(own.logits))
        return cross_entropy(own.logits, batch.y) + beta * tau**2 * divergence.sum(2)

    return Objective(values, models=("broadcast",))


def fedntd(
    local: Optimizer,
    *,
    beta: NonNegative = 1.0,
    tau: Positive = 1.0,
    server_lr: Positive = 1.0,
    weights: Weights = "size",
) -> Algorithm:
    """FedNTD: FedAvg with distillation of the not-true classes from the broadcast model.

    Source: Lee et al., NeurIPS 2022; the authors' code, whose configuration has τ = 1.

    Args:
        local: The local solver.
        beta: Weight β of the distillation.
        tau: Temperature τ.
        server_lr: Server step size η_g.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: with β = 0, with two classes or with one local step, the method is FedAvg.
    """
    return averaging_method(
        local,
        server_lr,
        weights,
        objective=not_true_distillation(beta=beta, tau=tau),
    )

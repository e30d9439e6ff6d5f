"""FedDecorr (Shi et al., 2023): the features of a batch are decorrelated in local steps."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Weights, averaging_method
from fedbench.core.objective import Objective, cross_entropy
from fedbench.core.optim import Optimizer
from fedbench.core.options import NonNegative, Positive
from fedbench.core.types import Batch, ClientInfo, Outputs, State

Form = Literal["code", "paper"]


def decorrelation(
    *,
    coef: NonNegative = 0.1,
    form: Form = "code",
) -> Objective:
    """Cross-entropy of a batch plus a penalty on the correlations r_ij of its features.

    Source: Shi et al., ICLR 2023, and the authors' code.

    Args:
        coef: Weight of the penalty.
        form: "code": the mean of ((B-1) r_ij)² / B over i ≠ j; "paper": Σ_ij r_ij² / D². B is the
            number of examples in the batch and D that of features. The published numbers belong to
            "code", which is about B times as large.
    """

    def values(
        own: Outputs,
        others: Mapping[str, Outputs],
        batch: Batch,
        local: State,
        info: ClientInfo,
    ) -> Tensor:
        losses = torch.where(batch.weight > 0, cross_entropy(own.logits, batch.y), 0)
        loss = (losses * batch.weight).sum(1, keepdim=True)
        return loss + coef * penalty(own.features, batch.weight > 0, form)

    return Objective(values, features=True)


def penalty(
    features: Tensor,
    real: Tensor,
    form: Form,
) -> Tensor:
    """Return the penalty on the correlations of features [A, B, D], as [A, 1].

    It is 0 for a single example or feature. ``real`` [A, B] marks the examples that are no padding.
    """
    dimensions = features.shape[2]
    mask = real.unsqueeze(2)
    count = real.sum(1).unsqueeze(1)  # B of each client
    if dimensions == 1:
        return torch.zeros_like(count, dtype=features.dtype)

    mean = (features * mask).sum(1) / count
    centred = (features - mean.unsqueeze(1)) * mask
    freedom = (count - 1).clamp(min=1)
    variance = centred.square().sum(1) / freedom
    scaled = centred / (variance + 1e-8).sqrt().unsqueeze(1)

    # ||UᵀU||² = ||UUᵀ||²: the smaller of the two products
    wide = dimensions > features.shape[1]
    product = scaled @ scaled.mT if wide else scaled.mT @ scaled
    total = product.square().sum((1, 2)).unsqueeze(1)
    if form == "paper":
        return total / (freedom * dimensions).square()
    diagonal = scaled.square().sum(1).square().sum(1, keepdim=True)
    return (total - diagonal) / (dimensions * (dimensions - 1)) / count


def feddecorr(
    local: Optimizer,
    *,
    coef: NonNegative = 0.1,
    form: Form = "code",
    server_lr: Positive = 1.0,
    weights: Weights = "size",
) -> Algorithm:
    """FedDecorr: FedAvg with a penalty on the correlations of features in a batch.

    Source: Shi et al., ICLR 2023; the authors' code.

    The features are the inputs of the head, divided by √(1e-8 + their variance in the batch).

    Args:
        local: The local solver.
        coef: Weight of the penalty.
        form: "code", to which the default of coef belongs, or "paper".
        server_lr: Server step size η_g.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: with coef = 0, or batches of one example, the method is FedAvg.
    """
    return averaging_method(
        local,
        server_lr,
        weights,
        objective=decorrelation(coef=coef, form=form),
    )

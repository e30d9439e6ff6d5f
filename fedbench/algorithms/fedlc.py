"""FedLC (Zhang et al., 2022): logits are calibrated by the client's numbers of examples."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Weights, averaging_method
from fedbench.core.objective import Objective, cross_entropy
from fedbench.core.optim import Optimizer
from fedbench.core.options import NonNegative, Positive
from fedbench.core.types import Batch, ClientInfo, Outputs, State


def calibrated(
    *,
    tau: NonNegative = 1.0,
    floor: NonNegative = 0.0,
) -> Objective:
    """Cross-entropy of the logits l_c - τ n_c^(-1/4).

    n_c is the number of the client's training examples of class c.

    Source: Zhang et al., ICML 2022, with the class of the label in the denominator, as in the code
    of FedDecorr and FL-bench.

    Args:
        tau: Strength τ.
        floor: n_c of a class without examples. With 0, the softmax leaves it out.
    """

    def values(
        own: Outputs,
        others: Mapping[str, Outputs],
        batch: Batch,
        local: State,
        info: ClientInfo,
    ) -> Tensor:
        counts = info.probe["labels"]
        counts = torch.where(counts > 0, counts, floor)
        shifts = tau * counts.pow(-0.25) if tau else torch.zeros_like(counts)
        return cross_entropy(own.logits - shifts.unsqueeze(1), batch.y)

    return Objective(values, class_counts=True)


def fedlc(
    local: Optimizer,
    *,
    tau: NonNegative = 1.0,
    floor: NonNegative = 0.0,
    server_lr: Positive = 1.0,
    weights: Weights = "size",
) -> Algorithm:
    """FedLC: FedAvg on the cross-entropy of logits calibrated by the client's class counts.

    Source: Zhang et al., ICML 2022.

    Args:
        local: The local solver.
        tau: Strength τ of the calibration.
        floor: Number of examples that replaces 0; with 0, these classes are left out.
        server_lr: Server step size η_g.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: with τ = 0, or if every client has equally many examples of every class, the method is
    FedAvg.
    """
    return averaging_method(
        local,
        server_lr,
        weights,
        objective=calibrated(tau=tau, floor=floor),
    )

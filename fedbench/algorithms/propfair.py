"""PropFair."""

from typing import Literal

import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Descent, Weights, averaging_method
from fedbench.core.optim import Optimizer
from fedbench.core.options import Positive
from fedbench.core.types import Batch, ClientInfo, Oracle, State


def propfair(
    local: Optimizer,
    *,
    M: Positive = 2.0,
    eps: Positive = 0.2,
    tail: Literal["huber", "scaled"] = "huber",
    server_lr: Positive = 1.0,
    weights: Weights = "size",
) -> Algorithm:
    """PropFair: proportional fairness, with the objective Σ p_k (-log(M - F_k)).

    Source: Zhang et al., TMLR 2023.

    Local steps descend along c ∇F_k(w; batch), where c = 1/(M - F_k(w; batch)) uses the loss of the
    same batch. For M - F_k < ε, ``tail`` sets the continuation of the logarithm. The server step is
    that of FedAvg.

    Args:
        local: The local solver; clipping, decay and momentum act on the scaled gradient.
        M: Baseline M of the utility M - F_k; it should exceed the losses that training is to reach.
        eps: Smallest utility ε for which the logarithm is used.
        tail: Factor c for utilities below ε: "huber" is 1/ε, which keeps the slope at ε (the
            paper); "scaled" is 1/M, which reduces the slope (the authors' code).
        server_lr: Server step size η_g.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: ε > M is FedAvg with rate η_l/ε ("huber") or η_l/M ("scaled"); for M -> ∞ with η_l = M
    η, the method tends to FedAvg with rate η.
    """
    below = 1 / eps if tail == "huber" else 1 / M

    def gradient(
        oracle: Oracle,
        msg: State,
        local: State,
        batch: Batch,
        info: ClientInfo,
    ) -> Tensor:
        loss, g = oracle.loss_and_grad(local["w"], batch)
        utility = M - loss  # [A, 1]
        return g * torch.where(utility >= eps, 1 / utility, below).to(g.dtype)

    return averaging_method(local, server_lr, weights, step=Descent(local, gradient))

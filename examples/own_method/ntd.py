"""FedNTD (Lee et al., NeurIPS 2022): distillation of the broadcast model's not-true classes."""

import torch
import torch.nn.functional as F
from torch import Tensor

from fedbench.core.algorithm import Algorithm, descent
from fedbench.core.optim import SGD, Optimizer
from fedbench.core.options import NonNegative
from fedbench.core.types import Batch, ClientInfo, Oracle, State


def ntd(local: Optimizer = SGD, *, beta: NonNegative = 1.0) -> Algorithm:
    """FedNTD with temperature 1: cross-entropy + β KL(broadcast model ‖ local model).

    The divergence is that of the classes other than the label. Identities: β = 0 is FedAvg, and so
    is any β with one local step, because the divergence has gradient 0 at the broadcast model.

    Args:
        local: The local solver.
        beta: Weight β of the distillation.
    """

    def gradient(
        oracle: Oracle,
        msg: State,
        local_variables: State,
        batch: Batch,
        info: ClientInfo,
    ) -> Tensor:
        w = local_variables["w"]  # [A, P]
        teacher = oracle.logits(msg["w"].expand(len(w), -1), batch.x)
        others = torch.arange(teacher.shape[-1] - 1, device=w.device)
        others = others + (others >= batch.y.unsqueeze(-1))  # the classes but the label

        def loss(w: Tensor) -> Tensor:
            logits = oracle.logits(w, batch.x)  # [A, B, classes]
            cross_entropy = -logits.log_softmax(-1).gather(-1, batch.y.unsqueeze(-1)).squeeze(-1)
            q = logits.gather(-1, others).log_softmax(-1)
            p = teacher.gather(-1, others).log_softmax(-1)
            divergence = F.kl_div(q, p, reduction="none", log_target=True).sum(-1)
            # a sum over the clients has the gradient of each client in its row
            return ((cross_entropy + beta * divergence) * batch.weight).sum()

        gradients: Tensor = torch.func.grad(loss)(w)
        return gradients

    return Algorithm(**descent(local, gradient=gradient))

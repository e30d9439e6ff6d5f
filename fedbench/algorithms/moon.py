"""MOON (Li et al., 2021): local features stay near those of the broadcast model."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Weights, averaging_method
from fedbench.core.objective import Objective, cross_entropy
from fedbench.core.optim import Optimizer
from fedbench.core.options import NonNegative, Positive
from fedbench.core.types import Batch, ClientInfo, Outputs, State

_SHORT = 1e-8  # a shorter vector has no direction


def contrastive(*, mu: NonNegative, tau: Positive) -> Objective:
    """Cross-entropy plus μ ln(1 + exp((cos(z, z_p) - cos(z, z_g)) / τ)).

    z, z_g and z_p are the features under the local, the broadcast and the client's previous model.

    Source: Li et al., CVPR 2021, Eq. 3 and 4.

    Args:
        mu: Weight μ of the contrast.
        tau: Temperature τ.
    """

    def values(
        own: Outputs,
        others: Mapping[str, Outputs],
        batch: Batch,
        local: State,
        info: ClientInfo,
    ) -> Tensor:
        to_server = cosine(own.features, others["broadcast"].features)
        to_previous = cosine(own.features, others["previous"].features)
        contrast = F.softplus((to_previous - to_server) / tau, threshold=50)
        return cross_entropy(own.logits, batch.y) + mu * contrast

    return Objective(values, models=("broadcast", "previous"), features=True)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Return the cosines of vectors [..., D], 0 without gradient where one is very short."""
    of_a = a.square().sum(-1)
    of_b = b.square().sum(-1)
    short = (of_a < _SHORT**2) | (of_b < _SHORT**2)
    lengths = (of_a * of_b).masked_fill(short, 1).sqrt()
    products = (a * b).sum(-1)
    return torch.where(short, 0, products / lengths)


def moon(
    local: Optimizer,
    *,
    mu: NonNegative = 1.0,
    tau: Positive = 0.5,
    server_lr: Positive = 1.0,
    weights: Weights = "size",
) -> Algorithm:
    """MOON: FedAvg with a contrast between the broadcast and the client's previous model.

    Source: Li et al., CVPR 2021, Eq. 3 and 4; the authors' code.

    In a client's first round, its previous model is the one from which it starts, so that the
    contrast has no gradient.

    Args:
        local: The local solver.
        mu: Weight μ of the contrast; the paper tunes 0.1, 1, 5 and 10.
        tau: Temperature τ.
        server_lr: Server step size η_g.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: with μ = 0, the method is FedAvg.
    """
    return averaging_method(
        local,
        server_lr,
        weights,
        objective=contrastive(mu=mu, tau=tau),
    )

"""FedAMP (Huang et al., 2021): every client is pulled to a mixture of models like its own."""

import torch
from torch import Tensor

from fedbench.algorithms.shared.gram import gram
from fedbench.algorithms.shared.reasons import PERSONAL
from fedbench.core.algorithm import Algorithm, descent
from fedbench.core.errors import RequestError
from fedbench.core.optim import Optimizer, without
from fedbench.core.options import NonNegative, Positive
from fedbench.core.types import ClientInfo, State, weighted_sum

_ROUNDING = 1e-9


def fedamp(
    local: Optimizer,
    *,
    alpha: Positive = 1e4,
    lam: NonNegative = 1.0,
    sigma: Positive = 1e6,
    clients: int | None = None,
) -> Algorithm:
    """FedAMP: the server sends every client a mixture u_k of all models, weighted by proximity.

    Source: Huang et al., AAAI 2021, Alg. 1, with A(x) = 1 - e^(-x/σ).

    ξ_kj = (α/σ) e^(-||w_k - w_j||²/σ) for j ≠ k; u_k = (1 - Σ_j ξ_kj) w_k + Σ_j ξ_kj w_j. Local
    gradient, from the client's own w_k: ∇F_k(w; batch) + (λ/α) (w - u_k). All w_k start at w^0.
    Clients are evaluated on w_k; the server's model is the mean of the w_k.

    Args:
        local: The local solver, plain SGD.
        alpha: Step size α of the mixtures.
        lam: Strength λ of the pull towards u_k.
        sigma: Scale σ of the squared distances.
        clients: Number of clients with training examples, set by the run. If None, the sums of ξ
            are not checked.

    Raises:
        RequestError: If the local solver is not plain SGD, or Σ_j ξ_kj exceeds 1.

    Identity: λ = 0 is local training; u_k = w_k if all models are equal. Deviation: PFLlib's
    penalty is the norm itself, whose gradient has the constant length λ/(2α).
    """
    without(local, "fedamp", "its local steps are those of the proximal problem")
    # distances start at 0, where the sums are largest
    largest = ((clients or 1) - 1) * alpha / sigma
    if largest > 1 + _ROUNDING:
        raise RequestError(
            f"fedamp: the weights of the other clients' models sum to {largest:.4g} for "
            f"{clients} clients, and must not exceed 1; lower algo.alpha or raise algo.sigma"
        )

    def instruct(server: State, cohort: ClientInfo) -> State:
        models = server["models"][cohort.id]
        xi = alpha / sigma * torch.exp(-_squared_distances(models) / sigma)
        xi.fill_diagonal_(0)
        own = torch.diag(1 - xi.sum(1))
        mixtures = weighted_sum(xi + own, models)
        return {"w": mixtures.to(models.dtype)}

    def update(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        models = uploads["model"]
        mean = weighted_sum(torch.full_like(cohort.p, 1 / len(models)), models)
        return {
            **server,
            "w": mean.to(models.dtype),
            "models": server["models"].index_copy(0, cohort.id, models),
        }

    solver = descent(
        extra=lambda msg, local, info: (local["w"] - info.probe["w"]) * (lam / alpha),
        variables=lambda msg, client, info: {"w": client["personal"]},
    )
    return Algorithm(
        **solver,
        server_init=lambda w, num_clients: {"w": w, "models": w.repeat(num_clients, 1)},
        client_init=lambda w: {"personal": w},
        instruct=instruct,
        finish=lambda msg, client, local, info: (
            {"model": local["w"]},
            {"personal": local["w"]},
        ),
        update=update,
        deploy=lambda server, clients: clients["personal"],
        weights="uniform",
        whole=PERSONAL,
        everyone="the server mixes the models of all clients",
        kinds=("apart",),
    )


def _squared_distances(models: Tensor) -> Tensor:
    """Return the squared distances between models [C, P], as [C, C] float64."""
    # differences from one of them lose less to rounding than the models themselves
    products = gram(models - models[0])
    squares = products.diag()
    return (squares[:, None] + squares - 2 * products).clamp_min(0)

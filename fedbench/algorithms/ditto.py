"""Ditto."""

from fedbench.core.algorithm import Algorithm, ProximalTerm, Weights, descent
from fedbench.core.optim import Optimizer
from fedbench.core.options import Count, NonNegative, Positive


def ditto(
    local: Optimizer,
    *,
    lam: NonNegative = 0.1,
    personal_lr: Positive | None = None,
    personal_epochs: Count | None = None,
    weights: Weights = "size",
) -> Algorithm:
    """Ditto: FedAvg, and on every client a personal model v_k pulled towards the global one.

    Source: Li et al., ICML 2021, Alg. 1.

    Clients in the cohort also train their v_k for some epochs: v <- v - η_p (∇F_k(v; batch) + λ
    (v - w^t)), where w^t is the broadcast model. v_k starts at w^0 and never leaves its client.
    Clients are evaluated on v_k.

    Args:
        local: The local solver of both models; its state is reset at the start of each phase.
        lam: Strength λ of the pull towards the global model.
        personal_lr: Learning rate η_p of v_k. If None, η_l.
        personal_epochs: Number of epochs for v_k. If None, that for w.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: the global model is FedAvg's; λ = 0 is separate local training. Deviation: v_k is
    trained in separate epochs; in the authors' code every batch is used for both models.
    """
    solver = descent(
        local,
        lr=personal_lr,
        extra=ProximalTerm(lam),
        variables=lambda msg, client, info: {"w": client["personal"]},
    )
    personal = Algorithm(
        **solver,
        finish=lambda msg, client, local, info: ({}, {"personal": local["w"]}),
    )
    return Algorithm(
        **descent(local),
        client_init=lambda w: {"personal": w},
        personal=personal,
        personal_epochs=personal_epochs,
        deploy=lambda server, clients: clients["personal"],
        weights=weights,
    )

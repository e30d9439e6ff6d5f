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
    """Ditto: FedAvg, and a personal model v_k on every client that is drawn to it.

    Source: Li et al., ICML 2021, Alg. 1.

    A client of the cohort also runs epochs of v <- v - η_p (∇F_k(v; batch) + λ (v - w^t)) on its
    v_k, which starts at w^0 and never leaves it. The anchor is the broadcast model. Clients are
    judged on v_k.

    Args:
        local: The local solver of both models; its state is reset at the start of each phase.
        lam: Strength λ of the pull towards the global model.
        personal_lr: Learning rate η_p of v_k; None is η_l.
        personal_epochs: Number of epochs of v_k; None is that of w.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: the global model is FedAvg's; λ = 0 is separate local training.
    Deviation: v_k has epochs of its own; in the authors' code every batch serves both models.
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

"""AFL."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedbench.algorithms.shared.mixtures import normalized, project_simplex
from fedbench.core.algorithm import Algorithm, Averaging, descent
from fedbench.core.optim import Optimizer
from fedbench.core.options import NonNegative
from fedbench.core.types import ClientInfo, State

_ALL = "the mixture λ needs every client's loss; algo.partial=true updates λ for the cohort only"


def afl(
    local: Optimizer,
    *,
    lr_lambda: NonNegative = 0.1,
    average: bool = False,
    partial: bool = False,
    examples: Sequence[int] | None = None,
) -> Algorithm:
    """AFL: minimax optimisation over mixtures λ of all N clients.

    Source: Mohri et al., ICML 2019.

    w <- w - Σ λ_k Δ_k; λ <- Π(λ + γ_λ F), where F_k = F_k(w) before the step and Π is the Euclidean
    projection onto the simplex; λ is initially 1/N.

    Args:
        local: The local solver.
        lr_lambda: Step size γ_λ of the mixture.
        average: Whether to deploy the average of the models after each round, as in the paper's
            theory, instead of the last model.
        partial: Whether to allow sampled cohorts: the cohort's weights λ_k are renormalised
            (uniform if all are 0), only its λ_k are increased by γ_λ F_k, and the whole of λ is
            projected. Deviation if true: the paper has no such variant.
        examples: Number of training examples of every client, [N], set by the run. Clients without
            examples do not count.

    Identity: γ_λ = 0 is FedAvg with uniform weights. Deviation: local training instead of a single
    gradient; with one full-batch step the two are equal (γ_w = η_l).
    """

    def server_init(w: Tensor, num_clients: int) -> State:
        counts = torch.tensor(examples or [1] * num_clients, device=w.device)
        able = (counts > 0).double()
        return {
            "w": w,
            "lambda": able / able.sum(),
            "mean": w,
            "t": w.new_zeros(()),
        }

    def update(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        w = server["w"] - uploads["delta"]
        loss = cohort.probe["loss"]
        raised = server["lambda"].index_add(0, cohort.id, loss, alpha=lr_lambda)
        t = server["t"] + 1
        mean = server["mean"]
        mean = torch.where(t > 1, mean + (w - mean) / t, w)
        return {
            "w": w,
            "lambda": project_simplex(raised),
            "mean": mean,
            "t": t,
        }

    def shares(server: State, cohort: ClientInfo) -> Tensor:  # λ_k of the cohort, renormalised
        return normalized(server["lambda"][cohort.id])

    return Algorithm(
        **descent(local),
        server_init=server_init,
        update=Averaging(update, {"delta": shares}),
        deploy=lambda server, clients: server["mean" if average else "w"],
        needs={"loss"},
        weights="uniform",
        everyone="" if partial else _ALL,
    )

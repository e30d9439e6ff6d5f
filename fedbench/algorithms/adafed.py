"""AdaFed."""

from typing import Literal

import torch
from torch import Tensor

from fedbench.algorithms.shared.gram import gram
from fedbench.core.algorithm import Algorithm, descent, server_descent
from fedbench.core.optim import Optimizer
from fedbench.core.options import NonNegative, Positive
from fedbench.core.types import ClientInfo, Need, State

_RANK = 1e-12  # eigenvalues below this share of the largest count as 0


def adafed(
    local: Optimizer,
    *,
    gamma: NonNegative = 1.0,
    server_lr: Positive = 1.0,
    loss_at: Literal["before", "after"] = "before",
    normalize_loss: Literal["none", "mean"] = "none",
) -> Algorithm:
    """AdaFed: the direction along which every client descends ∝ its loss^γ.

    Source: Hamidi & Yang, TMLR 2024, Alg. 1.

    The paper orthogonalises the updates g_k = Δ_k one after another (Eqs. 5-6) and averages them by
    inverse squared length (Eq. 14). The point it reaches is d = Gᵀa / (sᵀa), K a = s, K = G Gᵀ, s_k
    = |f_k|^γ, in any order of the clients: g_k · d = s_k ||d||² (Thm. 4.1). w <- w - η_g d (Eq.
    19).

    Args:
        local: The local solver.
        gamma: Exponent γ >= 0 of the losses.
        server_lr: The server's step size η_g.
        loss_at: Whether f_k is taken at the broadcast model ("before", as Theorem 4.1 needs) or at
            w_k ("after", as Alg. 1 reads).
        normalize_loss: "mean" divides f by its mean over the cohort, which keeps the direction and
            makes its length independent of the level of the losses; "none" does not.

    Identity: a single client has d = g / f^γ; γ = 0 is the shortest point of the affine hull of the
    g_k. Deviation: clients that did not move are left out; dependent updates are solved by least
    squares (the printed sequence divides by 0), and then not all clients descend.
    """
    probe: Need = "loss" if loss_at == "before" else "loss_after"

    def direction(uploads: State, cohort: ClientInfo) -> Tensor:
        f = cohort.probe[probe].abs()  # [C] float64
        if normalize_loss == "mean":
            f = f / f.mean().clamp_min(torch.finfo(torch.float64).tiny)
        k = gram(uploads["delta"])
        length = k.diagonal().sqrt()
        # unit updates: the system is solved to better accuracy
        scale = torch.where(length > 0, 1 / length, 0.0)
        k_unit = k * scale * scale.unsqueeze(1)
        s = f**gamma * scale
        # eigh raises for values that are not finite; d becomes NaN by the update itself, and the
        # run counts as diverged
        value, vector = torch.linalg.eigh(k_unit.nan_to_num(0.0, 0.0, 0.0))
        inverse = torch.where(value > _RANK * value[-1], 1 / value, 0.0)
        a = vector @ (inverse * (vector.T @ s))
        total = s @ a
        weight = torch.where(total > 0, a / total, 0.0) * scale  # all losses 0: no update
        return weight.to(uploads["delta"].dtype) @ uploads["delta"]

    return Algorithm(
        **descent(local),
        **server_descent(lr=server_lr, direction=direction),
        needs={probe},
    )

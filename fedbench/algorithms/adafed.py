"""AdaFed."""

from typing import Literal

import torch
from torch import Tensor

from fedbench.algorithms.shared.gram import gram
from fedbench.core.algorithm import Algorithm, descent, server_descent
from fedbench.core.optim import Optimizer
from fedbench.core.options import NonNegative, Positive
from fedbench.core.types import ClientInfo, Need, State, weighted_sum

_RANK = 1e-12  # eigenvalues below this fraction of the largest one count as 0


def adafed(
    local: Optimizer,
    *,
    gamma: NonNegative = 1.0,
    server_lr: Positive = 1.0,
    loss_at: Literal["before", "after"] = "before",
    normalize_loss: Literal["none", "mean"] = "none",
) -> Algorithm:
    """AdaFed: a direction along which every client's loss decreases in proportion to loss^γ.

    Source: Hamidi & Yang, TMLR 2024, Alg. 1.

    The paper orthogonalises the updates g_k = Δ_k one after another (Eqs. 5-6) and averages them by
    inverse squared length (Eq. 14). For any order of the clients, the result is d = Gᵀa / (sᵀa), K
    a = s, K = G Gᵀ, s_k = |f_k|^γ: g_k · d = s_k ||d||² (Thm. 4.1). w <- w - η_g d (Eq. 19).

    Args:
        local: The local solver.
        gamma: Exponent γ >= 0 of the losses.
        server_lr: Server step size η_g.
        loss_at: Whether f_k is measured at the broadcast model ("before", as Theorem 4.1 requires)
            or at w_k ("after", as in Alg. 1).
        normalize_loss: "mean" divides f by its mean over the cohort, which keeps the direction and
            makes its length independent of the level of the losses; "none" leaves f unchanged.

    Identity: with a single client, d = g / f^γ; with γ = 0, d is the shortest point of the affine
    hull of the g_k. Deviation: clients that did not move are left out; linearly dependent updates
    are handled by least squares (the printed recursion divides by 0), and then not all losses
    decrease.
    """
    probe: Need = "loss" if loss_at == "before" else "loss_after"

    def direction(uploads: State, cohort: ClientInfo) -> Tensor:
        f = cohort.probe[probe].abs()  # [C] float64
        if normalize_loss == "mean":
            f = f / f.mean().clamp_min(torch.finfo(torch.float64).tiny)
        k = gram(uploads["delta"])
        length = k.diagonal().sqrt()
        # normalising the updates makes the solution of the system more accurate
        scale = torch.where(length > 0, 1 / length, 0.0)
        k_unit = k * scale * scale.unsqueeze(1)
        s = f**gamma * scale
        # eigh raises an error for non-finite values; here, the updates themselves make d NaN, and
        # the run counts as diverged
        value, vector = torch.linalg.eigh(k_unit.nan_to_num(0.0, 0.0, 0.0))
        inverse = torch.where(value > _RANK * value[-1], 1 / value, 0.0)
        a = vector @ (inverse * (vector.T @ s))
        total = s @ a
        weight = torch.where(total > 0, a / total, 0.0) * scale  # all losses 0: no update
        # similar updates get large weights of either sign, whose sum needs float64
        return weighted_sum(weight, uploads["delta"]).to(uploads["delta"].dtype)

    return Algorithm(
        **descent(local),
        **server_descent(lr=server_lr, direction=direction),
        needs={probe},
    )

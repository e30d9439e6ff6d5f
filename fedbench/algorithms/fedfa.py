"""FedFa."""

from typing import Literal

import torch

from fedbench.algorithms.shared.mixtures import normalized
from fedbench.core.algorithm import Algorithm, descent
from fedbench.core.errors import RequestError
from fedbench.core.optim import Optimizer, chain, sgd, without
from fedbench.core.options import Count, HalfOpenUnit, NonNegative, OpenUnit, UnitInterval
from fedbench.core.types import ClientInfo, Need, State


def fedfa(
    local: Optimizer,
    *,
    alpha: UnitInterval = 0.5,
    beta: UnitInterval = 0.5,
    gamma_s: HalfOpenUnit = 0.5,
    gamma_c: HalfOpenUnit = 0.9,
    b: Count = 1,
    server_lr: NonNegative | None = None,
    acc_at: Literal["after", "before"] = "after",
    server_sign: Literal[-1, 1] = -1,
    c: OpenUnit = 1e-6,
) -> Algorithm:
    """FedFa: double momentum, and weights by training accuracy and participation frequency.

    Source: Huang et al., 2020.

    a_k = Acc_k/Σ Acc, φ_k = f_k/Σ f (f_k: number of rounds with client k); A ∝ -log2 a,
    B ∝ -log2(1-φ), each normalised to sum 1; ω = α A + β B; w̄ = w - Σ ω_k Δ_k; m <- γ_s
    m + (1-γ_s)(w̄ - w); w <- w̄ - η m if the round is divisible by b, else w̄.

    Args:
        local: The local solver, without momentum.
        alpha: Weight α of the accuracies.
        beta: Weight β of the frequencies; α + β = 1, or both 0 for uniform weights (Eq. 3, Figs.
            2-5).
        gamma_s: Momentum γ_s of the server.
        gamma_c: Momentum γ_c of the clients (equivalent to momentum ρ = γ_c; reset in every round).
        b: Number of rounds between steps along m; m itself is updated in every round.
        server_lr: Step size η along m. If None, η_l.
        acc_at: Whether Acc_k is the accuracy of the model after local training (Alg. 2) or of the
            broadcast model.
        server_sign: Sign of the step along m: -1 steps backwards, as printed; 1 steps forwards, as
            argued in the text.
        c: Value that replaces an accuracy, or a 1-φ, of 0.

    Identity: with equal accuracies and counts, γ_c = 0 and b beyond the last round, the method is
    FedAvg with uniform weights. Deviation: Eq. 11 prints c outside the logarithm, but it must be
    inside.
    """
    if abs(alpha + beta - 1) > 1e-9 and alpha + beta > 0:
        raise RequestError(
            f"algo.alpha + algo.beta must be 1, got {alpha:g} + {beta:g}; "
            "set both (both 0: uniform)"
        )
    local = without(local, "fedfa", "its clients' momentum is algo.gamma_c", "momentum")
    probe: Need = "accuracy" if acc_at == "before" else "accuracy_after"

    def finish(
        msg: State,
        client: State,
        local: State,
        info: ClientInfo,
    ) -> tuple[State, State]:
        count = client["count"] + 1
        return {"delta": msg["w"] - local["w"], "count": count}, {"count": count}

    def update(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        accuracy = cohort.probe[probe]
        count = uploads["count"].squeeze(1)
        a = torch.where(accuracy > 0, accuracy / accuracy.sum(), c)
        a = torch.where(accuracy.sum() > 0, a, 1 / len(a))
        rest = 1 - count / count.sum()
        uniform = (1 - alpha - beta) / len(a)
        rest = torch.where(rest > 0, rest, c)
        by_accuracy = normalized(-torch.log2(a))
        by_frequency = normalized(-torch.log2(rest))
        omega = alpha * by_accuracy + beta * by_frequency + uniform
        change = -(omega.to(uploads["delta"].dtype) @ uploads["delta"])
        m = gamma_s * server["m"] + (1 - gamma_s) * change
        t = server["t"] + 1
        rate = cohort.lr[0].double() if server_lr is None else t.new_tensor(server_lr)
        rate = torch.where(t % b == 0, server_sign * rate, 0.0)
        step = rate.to(m.dtype) * m
        return {
            "w": server["w"] + change + step,
            "m": m,
            "t": t,
        }

    return Algorithm(
        **descent(chain(local, sgd(momentum=gamma_c))),
        server_init=lambda w, N: {
            "w": w,
            "m": torch.zeros_like(w),
            "t": w.new_zeros((), dtype=torch.float64),
        },
        client_init=lambda w: {"count": w.new_zeros(1, dtype=torch.float64)},
        finish=finish,
        update=update,
        needs={probe},
        weights="uniform",
        kinds=("weights",),
    )

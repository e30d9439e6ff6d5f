"""AdaFedAdam."""

from math import exp
from typing import Literal

import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Averaging, descent
from fedbench.core.optim import Optimizer
from fedbench.core.options import HalfOpenUnit, NonNegative, Positive
from fedbench.core.types import ClientInfo, Need, State, lengths

_OFFSET = 1e-10  # added to a loss before a fractional or negative power
_FLOOR = 0.1  # smallest certainty: at or below 0, β^χ >= 1 and the bias correction fails
# number of first updates with step η instead of η χ
_PLAIN_STEPS = {
    "one": float("inf"),
    "certainty": 0,
    "certainty_after_6": 6,
}


def adafedadam(
    local: Optimizer,
    *,
    alpha: NonNegative = 1.0,
    server_lr: Positive = 1e-3,
    beta1: HalfOpenUnit = 0.9,
    beta2: HalfOpenUnit = 0.999,
    eps: Positive = 1e-8,
    step_scale: Literal["one", "certainty", "certainty_after_6"] = "certainty",
    inverse_rate: Literal["ratio", "loss"] = "loss",
) -> Algorithm:
    """AdaFedAdam: Adam on client updates rescaled to the length of the local gradient.

    Source: Ju et al., 2023, Algs. 1-2.

    Client: r_k = ||Δ_k|| / ||∇F_k(w)||, U_k = Δ_k / r_k, certainty χ_k = ln(r_k/η_l) + 1. Server:
    ω_k ∝ n_k I_k^α, g = Σ ω_k U_k, χ = Σ ω_k χ_k; Adam with decays β1^χ, β2^χ, their running
    products in the bias correction, and step η χ.

    Args:
        local: Any local solver; η_l is its learning rate.
        alpha: Exponent α >= 0, the strength of fairness.
        server_lr: Server step size η.
        beta1: Decay β1 of the first moment.
        beta2: Decay β2 of the second moment.
        eps: Constant ε added to the denominator.
        step_scale: Step size: "one" is η, as printed in Alg. 1; "certainty" is η χ (Sec. 5.1, item
            3); "certainty_after_6" is η in the first six updates and η χ afterwards (the authors'
            code).
        inverse_rate: Inverse training rate I_k: F_k(w)/F_k(w^0) ("ratio", the paper) or F_k(w)
            ("loss", the authors' code).

    Identity: with one local full-batch step, the method is Adam on Σ ω_k ∇F_k(w) for any η_l
    (χ = 1). Deviation: a client that did not move, or whose gradient is 0, gets U_k = 0 and χ_k = 1
    and keeps its weight; χ_k is at least 0.1, and a remark says how often it would be lower.
    """

    def server_init(w: Tensor, num_clients: int) -> State:
        zeros = torch.zeros_like(w)
        count = w.new_zeros((), dtype=torch.float64)
        one = count + 1
        return {
            "w": w,
            "m": zeros,
            "v": zeros,
            "c_m": one,
            "c_v": one,
            "t": count,
            "raised": count,
        }

    def finish(
        msg: State,
        client: State,
        local: State,
        info: ClientInfo,
    ) -> tuple[State, State]:
        delta = msg["w"] - local["w"]
        grad = info.probe["grad"]
        moved = lengths(delta).unsqueeze(1)
        slope = lengths(grad).unsqueeze(1)
        alive = (moved > 0) & (slope > 0)
        r = torch.where(alive, moved / slope, info.lr)  # η'_k; r = η_l gives certainty 1
        unit = torch.where(alive, 1 / r, 0.0).to(delta.dtype)
        certainty = torch.log(r / info.lr) + 1
        return {"update": delta * unit, "certainty": certainty}, client

    def share(server: State, cohort: ClientInfo) -> Tensor:  # ω [C], float64
        rate = cohort.probe["loss"] + (0.0 if alpha % 1 == 0 else _OFFSET)
        if inverse_rate == "ratio":
            rate = rate / (cohort.probe["loss_init"] + _OFFSET)
        top = rate.max()
        # all losses 0: weights n_k
        omega = cohort.n * torch.where(top > 0, rate / top, 1.0) ** alpha
        return omega / omega.sum()

    def update(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        g = uploads["update"]
        certainty = uploads["certainty"].squeeze(1)
        # states of earlier versions have no count
        raised = server.get("raised", 0 * server["t"]) + (certainty < _FLOOR).sum()
        chi = share(server, cohort) @ certainty.clamp_min(_FLOOR)
        b1, b2 = beta1**chi, beta2**chi
        c_m, c_v = server["c_m"] * b1, server["c_v"] * b2
        m = b1 * server["m"] + (1 - b1) * g
        v = b2 * server["v"] + (1 - b2) * g.square()
        scale = torch.where(server["t"] < _PLAIN_STEPS[step_scale], 1.0, chi)
        m_hat, v_hat = m / (1 - c_m), v / (1 - c_v)
        return {
            "w": server["w"] - scale * server_lr * m_hat / (v_hat.sqrt() + eps),
            "m": m,
            "v": v,
            "c_m": c_m,
            "c_v": c_v,
            "t": server["t"] + 1,
            "raised": raised,
        }

    def remarks(server: State) -> list[str]:
        raised = int(server.get("raised", 0))
        if not raised:
            return []
        return [
            f"number of certainties below {_FLOOR}, which were raised to it: {raised} (of clients "
            f"that moved by less than {exp(_FLOOR - 1):.2g} of a step along their gradient)"
        ]

    needs: set[Need] = {"loss", "grad"}
    if inverse_rate == "ratio":
        needs.add("loss_init")

    return Algorithm(
        **descent(local),
        server_init=server_init,
        finish=finish,
        update=Averaging(update, {"update": share}),
        needs=needs,
        remarks=remarks,
    )

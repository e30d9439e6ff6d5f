"""q-FedAvg."""

import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, descent, server_descent
from fedbench.core.optim import Optimizer
from fedbench.core.options import NonNegative, Positive
from fedbench.core.types import ClientInfo, State, lengths

_OFFSET = 1e-10  # added to every loss, as in the authors' code


def qfedavg(
    local: Optimizer,
    *,
    q: NonNegative = 1.0,
    L: Positive | None = None,
) -> Algorithm:
    """Weighting by powers of the losses (q-FedAvg), for the objective Σ F_k^{q+1}/(q+1).

    Source: Li et al., ICLR 2020, Alg. 2.

    G_k = L Δ_k; D_k = F_k^q G_k; h_k = q F_k^{q-1} ||G_k||² + L F_k^q; w <- w - Σ D_k / Σ h_k. F_k
    is the loss at the broadcast model on all training examples. p_k does not appear: the authors'
    code samples clients by size instead.

    Args:
        local: The local solver.
        q: Exponent q >= 0, the strength of fairness.
        L: Estimate of the Lipschitz constant. If None, 1/η_l as in the paper (the comparison in the
            AdaFedAdam paper needs L = 1).

    Identity: q = 0 is FedAvg with uniform weights, for any L. Deviation: both numerator and
    denominator are divided by (max F)^q, so that a large q does not cause overflow.
    """

    def direction(uploads: State, cohort: ClientInfo) -> Tensor:
        loss = cohort.probe["loss"] + _OFFSET  # [C] float64
        top = loss.max()
        f = loss / top
        lipschitz = 1 / cohort.lr.double() if L is None else torch.full_like(loss, L)
        length = lipschitz * lengths(uploads["delta"])  # ||G_k||
        h = q * f ** (q - 1) * length.square() / top + lipschitz * f**q
        weight: Tensor = lipschitz * f**q / h.sum()
        return weight.to(uploads["delta"].dtype) @ uploads["delta"]

    return Algorithm(
        **descent(local),
        **server_descent(direction=direction),
        needs={"loss"},
        weights="uniform",
    )

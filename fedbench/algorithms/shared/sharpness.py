"""Sharpness-aware gradients (SAM; Foret et al., ICLR 2021)."""

import torch
from torch import Tensor

from fedbench.core.types import Batch, Oracle


def uphill(
    oracle: Oracle,
    w: Tensor,
    batch: Batch,
    rho: float,
) -> tuple[Tensor, Tensor]:
    """Return g = ∇F_k(w; batch) and the gradient on the same batch at w + ρ g/||g||, [A, P] each.

    ||g|| is the norm of each client's whole vector. If g = 0, both gradients are at w.
    """
    g = oracle.grad(w, batch)
    length = torch.linalg.vector_norm(g, dim=-1, keepdim=True)
    scale = torch.where(length > 0, rho / length, 0.0)
    return g, oracle.grad(w + g * scale, batch)

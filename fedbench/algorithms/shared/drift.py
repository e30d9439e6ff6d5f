"""Parts of methods whose clients keep the sum u_k of their moves w_k - w^t (FedDyn's ∇_k is -α u_k)."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.core.types import State


def unmoved(w: Tensor) -> State:
    """Return the state of a client that has not taken part: u_k = 0."""
    return {"drift": torch.zeros_like(w)}


def with_mean_drift(w: Tensor, num_clients: int) -> State:
    """Return the state of a server that keeps ū, the mean of the u_k of all N clients."""
    return {"w": w, "drift": torch.zeros_like(w), "clients": w.new_full((), num_clients)}


def drifted(server: State, delta: Tensor, count: int) -> State:
    """Return the server's state after ū <- ū - (1/N) Σ Δ_k and w <- w - (1/C) Σ Δ_k + ū.

    Args:
        server: A state ``with_mean_drift``.
        delta: (1/C) Σ Δ_k over the cohort, [P].
        count: The size C of the cohort.
    """
    drift = server["drift"] - delta * (count / server["clients"])
    return {**server, "w": server["w"] - delta + drift, "drift": drift}

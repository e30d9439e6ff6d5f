"""Parts of methods whose clients keep the sum u_k of their moves w_k - w^t (FedDyn's ∇_k is -α u_k)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedbench.core.types import State


def unmoved(w: Tensor) -> State:
    """Return the state of a client that has not taken part: u_k = 0."""
    return {"drift": torch.zeros_like(w)}


def with_mean_drift(w: Tensor, num_clients: int, examples: Sequence[int] | None) -> State:
    """Return the state of a server that keeps ū, the mean of the u_k of all N clients.

    Args:
        w: The first model [P].
        num_clients: Number of clients.
        examples: Their training examples; clients without any never take part and do not count. None: all count.
    """
    count = num_clients if examples is None else sum(n > 0 for n in examples)
    return {"w": w, "drift": torch.zeros_like(w), "clients": w.new_full((), count)}


def drifted(server: State, delta: Tensor, count: int) -> State:
    """Return the server's state after ū <- ū - (1/N) Σ Δ_k and w <- w - (1/C) Σ Δ_k + ū.

    Args:
        server: A state ``with_mean_drift``.
        delta: (1/C) Σ Δ_k over the cohort, [P].
        count: The size C of the cohort.
    """
    drift = server["drift"] - delta * (count / server["clients"])
    return {**server, "w": server["w"] - delta + drift, "drift": drift}

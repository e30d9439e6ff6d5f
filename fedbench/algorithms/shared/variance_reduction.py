"""Parts of variance-reduced methods: recursive momentum, a decaying rate, an initial exchange."""

import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm
from fedbench.core.optim import Optimizer
from fedbench.core.types import Batch, Oracle, State, Update

SAMPLED = "a client that skips a round keeps an outdated iterate and momentum"


def recursive_momentum(
    solver: Optimizer,
    oracle: Oracle,
    local: State,
    batch: Batch,
    alpha: float,
    ext: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return g = ∇F_k(w; batch) and m <- g + (1-α)(m - ext·∇F_k(w_prev; batch)), [A, P] each.

    Both gradients use the same batch, at two iterates (STORM: Cutkosky & Orabona, NeurIPS 2019).
    Clipping and weight decay of ``solver`` apply to both.
    """
    g, _ = solver.update(oracle.grad(local["w"], batch), {"w": local["w"]})
    g_prev, _ = solver.update(oracle.grad(local["prev"], batch), {"w": local["prev"]})
    return g, torch.add(g, local["m"] - ext * g_prev, alpha=1 - alpha)


def rate(
    lr: Tensor,
    decay: float | None,
    t: Tensor | int,
) -> Tensor:
    """Return the rate η_t of iteration t: η_l, or η_l / (decay + t)^(1/3) if ``decay`` is given."""
    if decay is None:
        return lr
    return (lr / (decay + t) ** (1 / 3)).to(lr.dtype)


def first_exchange(solver: Optimizer, update: Update) -> Algorithm:
    """Return the exchange before the first round, in which every client uploads a gradient as "g".

    The gradient is computed on one batch.
    """
    return Algorithm(
        step=lambda oracle, msg, local, batch, info: {
            "g": solver.update(oracle.grad(local["w"], batch), local)[0]
        },
        finish=lambda msg, client, local, info: ({"g": local["g"]}, client),
        update=update,
        weights="uniform",
    )

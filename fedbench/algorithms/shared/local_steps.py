"""Parts of local steps: gradients uphill, proximal pulls and mixed examples."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, LocalPart, descent
from fedbench.core.optim import Optimizer
from fedbench.core.randomness import fold_in
from fedbench.core.types import Batch, ClientInfo, Oracle, State


def uphill(oracle: Oracle, w: Tensor, batch: Batch, rho: float) -> tuple[Tensor, Tensor]:
    """Return g = ∇F_k(w; batch) and the gradient on the same batch at w + ρ g/||g||, [A, P] each.

    The length is that of the whole vector of each client; where g = 0 both gradients are at w.
    """
    g = oracle.grad(w, batch)
    length = torch.linalg.vector_norm(g, dim=-1, keepdim=True)
    return g, oracle.grad(w + g * torch.where(length > 0, rho / length, 0.0), batch)


class Mixed:
    """An oracle on mixed examples: a loss of mixed labels is a mixture of two losses with hard labels.

    The examples are x̃ = λ x + (1-λ) x[π], the loss λ ℓ(x̃, y) + (1-λ) ℓ(x̃, y[π]); λ ~ U(0, 1) = Beta(1, 1).

    (Zhang et al., ICLR 2018.) λ and the permutation π of a batch are pure functions of the client's key and the step.

    Args:
        oracle: The oracle of the plain loss.
        key: Key of each client in this round, [A, 1].
        step: Number of the local step, [A, 1].
    """

    def __init__(self, oracle: Oracle, key: Tensor, step: Tensor) -> None:
        self.oracle, self.key, self.step = oracle, key, step.long()

    def grad(self, w: Tensor, batch: Batch) -> Tensor:
        """Return the gradients [A, P]."""
        share, one, other = self._mix(batch)
        return share * self.oracle.grad(w, one) + (1 - share) * self.oracle.grad(w, other)

    def loss_and_grad(self, w: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]."""
        share, one, other = self._mix(batch)
        (f, g), (f_other, g_other) = (self.oracle.loss_and_grad(w, b) for b in (one, other))
        return share * f + (1 - share) * f_other, share * g + (1 - share) * g_other

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes] of plain examples."""
        return self.oracle.logits(w, x)

    def _mix(self, batch: Batch) -> tuple[Tensor, Batch, Batch]:
        draw = fold_in(0, self.key, self.step).double() / 2.0**63
        share = draw.to(batch.weight.dtype)  # λ [A, 1]
        slots = torch.arange(batch.y.shape[1], device=batch.y.device).expand_as(batch.y)
        order = fold_in(1, self.key.expand_as(slots), self.step.expand_as(slots), slots)
        order = torch.where(batch.weight > 0, order, torch.iinfo(torch.int64).max)  # padding stays behind
        pair = torch.argsort(order, dim=1, stable=True)
        rows = torch.arange(len(pair), device=pair.device).unsqueeze(1)
        wide = share.view(-1, *(1,) * (batch.x.dim() - 1))
        x = wide * batch.x + (1 - wide) * batch.x[rows, pair]
        return share, batch._replace(x=x), batch._replace(x=x, y=batch.y[rows, pair])


def with_mixup(algo: Algorithm) -> Algorithm:
    """Return the method with mixup in its local steps."""

    def start(msg: State, client: State, info: ClientInfo) -> State:
        return {**algo.start(msg, client, info), "mixup": torch.zeros_like(info.lr)}

    def step(oracle: Oracle, msg: State, local: State, batch: Batch, info: ClientInfo) -> State:
        mixed = Mixed(oracle, info.key, local["mixup"])
        return {**algo.step(mixed, msg, local, batch, info), "mixup": local["mixup"] + 1}

    return replace(algo, start=start, step=step, blends_examples=True)


def pulled(local: Optimizer, strength: float) -> LocalPart:
    """Return a local solver of F_k(w) + strength · μ_k ||w - w^t|| (not squared); μ_k is "mu" in the client state.

    The first batch of every epoch has no pull, as in the code of FedCorr's authors.
    """

    def gradient(oracle: Oracle, msg: State, local: State, batch: Batch, info: ClientInfo) -> Tensor:
        apart = local["w"] - msg["w"]
        length = torch.linalg.vector_norm(apart, dim=-1, keepdim=True)
        weight = strength * local["mu"] * (local["s"] % info.per_epoch > 0)
        return oracle.grad(local["w"], batch) + weight / torch.where(length > 0, length, 1.0) * apart

    solver = descent(local, gradient)

    def start(msg: State, client: State, info: ClientInfo) -> State:
        return {**solver["start"](msg, client, info), "mu": client["mu"], "s": torch.zeros_like(info.lr)}

    def step(oracle: Oracle, msg: State, local: State, batch: Batch, info: ClientInfo) -> State:
        return {**solver["step"](oracle, msg, local, batch, info), "s": local["s"] + 1}

    return {"start": start, "step": step}

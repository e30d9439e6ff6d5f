"""Mixup: local steps on mixed examples (Zhang et al., ICLR 2018)."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm
from fedbench.core.randomness import fold_in
from fedbench.core.types import Batch, Loss, OracleWrapper


@dataclass(eq=False)
class MixupOracle(OracleWrapper):
    """An oracle on mixed examples.

    The loss for mixed labels is a mixture of two losses with hard labels.

    The examples are x̃ = λ x + (1-λ) x[π], and the loss is λ ℓ(x̃, y) + (1-λ) ℓ(x̃, y[π]), with λ ~
    U(0, 1) = Beta(1, 1). λ and the permutation π of a batch are pure functions of the client's key
    and the step.

    Attributes:
        key: Key of each client in this round, [A, 1].
    """

    key: Tensor

    def loss_and_grad(
        self,
        w: Tensor,
        batch: Batch,
        loss: Loss | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]; of another loss, if one is given."""
        share, one, other = self.mix(batch)
        one_loss, g = self.oracle.loss_and_grad(w, one, loss)
        other_loss, other_g = self.oracle.loss_and_grad(w, other, loss)
        mixed_loss = share * one_loss + (1 - share) * other_loss
        mixed_g = share * g + (1 - share) * other_g
        return mixed_loss, mixed_g

    def mix(self, batch: Batch) -> tuple[Tensor, Batch, Batch]:
        """Return λ [A, 1], and the mixed examples with the first and with the second labels."""
        step = torch.full_like(self.key, batch.step)
        drawn = fold_in(0, self.key, step)
        uniform = drawn.double() / 2.0**63
        share = uniform.to(batch.weight.dtype)
        size = batch.y.shape[1]
        place = torch.arange(size, device=batch.y.device)
        order = fold_in(1, self.key, step, place)
        # padding stays at the end
        last = torch.iinfo(torch.int64).max
        order = torch.where(batch.weight > 0, order, last)
        pair = torch.argsort(order, dim=1, stable=True)
        rows = torch.arange(len(pair), device=pair.device).unsqueeze(1)
        ones = [1] * (batch.x.dim() - 1)
        wide = share.view(-1, *ones)
        x = wide * batch.x + (1 - wide) * batch.x[rows, pair]
        mixed = batch._replace(x=x)
        other = mixed._replace(y=batch.y[rows, pair])
        return share, mixed, other


def with_mixup(algo: Algorithm) -> Algorithm:
    """Return a method with mixup in its local steps."""
    return replace(
        algo,
        step=lambda oracle, msg, local, batch, info: algo.step(
            MixupOracle(oracle, info.key), msg, local, batch, info
        ),
        blends_examples=True,
    )

"""How the losses and gradients of a cohort are computed: the only code that differs by model family and device.

Algorithms and the trainer see an ``Oracle`` and do not know which one. Tests show that all agree up to rounding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fedbench.core.types import Batch, Oracle
from fedbench.simulation.task import FEW_CLASSES, Task, example_losses


@dataclass(eq=False)
class _OfTask(ABC):
    """An oracle of one task."""

    task: Task

    def grad(self, w: Tensor, batch: Batch) -> Tensor:
        """Return the gradients [A, P]."""
        return self.loss_and_grad(w, batch)[1]

    @abstractmethod
    def loss_and_grad(self, w: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]."""


class LoopOracle(_OfTask):
    """One client after another through plain autograd: the reference, and the fastest for convolutions on a CPU."""

    def loss_and_grad(self, w: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]."""
        pairs = [self._parts(own, batch, k) for k, own in enumerate(w)]
        grads = [torch.cat([g.flatten() for g in parts]) for _, parts in pairs]
        return torch.stack([loss for loss, _ in pairs]).unsqueeze(1), torch.stack(grads)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes]."""
        return torch.stack([self.task.predict(*client) for client in zip(w, x, strict=True)])

    def descend_(self, w: Tensor, batch: Batch, lr: Tensor) -> None:
        """Change w [A, P] into w - lr · ∇F_k(w; batch), in place; lr [A, 1]."""
        for k, own in enumerate(w):
            for v, g in zip(self.task.layout.views(own), self._parts(own, batch, k)[1], strict=True):
                v.addcmul_(g, lr[k], value=-1)

    def _parts(self, w: Tensor, batch: Batch, k: int) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the loss of client k, at its model w [P], and the gradients of the parameters."""
        # the leaves are the parameters, not w: differentiating through slices of w costs a full buffer per parameter
        leaves = [v.detach().requires_grad_() for v in self.task.layout.views(w)]
        key = None if batch.key is None else batch.key[k]
        with torch.enable_grad():
            logits = self.task.apply(leaves, self.task.images(batch.x[k]), key)
            loss = example_losses(logits, batch.y[k], 1) @ batch.weight[k]
        return loss.detach(), torch.autograd.grad(loss, leaves)


class VmapOracle(_OfTask):
    """Any model, the whole cohort at once: the forward pass under vmap, plain autograd on the stacked parameters.

    The clients do not interact, so the gradient of the sum of their losses contains the gradient of each.
    """

    def loss_and_grad(self, w: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]."""
        losses, grads = self._parts(w, batch)
        return losses, torch.cat([g.flatten(1) for g in grads], 1)

    def descend_(self, w: Tensor, batch: Batch, lr: Tensor) -> None:
        """Change w [A, P] into w - lr · ∇F_k(w; batch), in place; lr [A, 1]."""
        _, grads = self._parts(w, batch)
        for v, g in zip(self.task.layout.views(w), grads, strict=True):
            v.addcmul_(g, lr.view(-1, *[1] * (g.dim() - 1)), value=-1)

    def _parts(self, w: Tensor, batch: Batch) -> tuple[Tensor, tuple[Tensor, ...]]:
        leaves = [v.detach().requires_grad_() for v in self.task.layout.views(w)]
        with torch.enable_grad():
            logits = self.task.apply_each(leaves, batch.x, batch.key)
            losses = (example_losses(logits, batch.y, 2) * batch.weight).sum(1, keepdim=True)
        return losses.detach(), torch.autograd.grad(losses, leaves, torch.ones_like(losses))

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes]."""
        return self.task.apply_each(self.task.layout.views(w), x)


class DenseOracle(_OfTask):
    """Chains of linear layers with ReLU, the whole cohort at once, forward and backward written out.

    Three batched matrix products per layer and no autograd: on small models the calls cost more than the arithmetic.
    """

    def grad(self, w: Tensor, batch: Batch) -> Tensor:
        """Return the gradients [A, P]."""
        views, inputs, logits = self._forward(w, batch.x)
        return self._backward(views, inputs, _softmax(logits), batch)

    def loss_and_grad(self, w: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]."""
        views, inputs, logits = self._forward(w, batch.x)
        losses = (example_losses(logits, batch.y, 2) * batch.weight).sum(1, keepdim=True)
        return losses, self._backward(views, inputs, _softmax(logits), batch)

    def descend_(self, w: Tensor, batch: Batch, lr: Tensor) -> None:
        """Change w [A, P] into w - lr · ∇F_k(w; batch), in place; lr [A, 1].

        The update uses the products that would give the gradient; the gradient itself is not stored.
        """
        views, inputs, logits = self._forward(w, batch.x)
        d = _residual(_softmax(logits), batch.y, batch.weight * lr)
        for layer in range(len(inputs) - 1, -1, -1):
            weight, bias, h = views[2 * layer], views[2 * layer + 1], inputs[layer]
            below = torch.bmm(d, weight).mul_(h > 0) if layer else d
            weight.baddbmm_(d.transpose(1, 2), h, alpha=-1)
            bias.sub_(d.sum(1))
            d = below

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes]."""
        return self._forward(w, x)[2]

    def _forward(self, w: Tensor, x: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
        views = self.task.layout.views(w)
        inputs = [x.flatten(2)]
        for weight, bias in zip(views[:-2:2], views[1:-2:2], strict=True):
            inputs.append(torch.baddbmm(bias.unsqueeze(1), inputs[-1], weight.transpose(1, 2)).relu_())
        return views, inputs, torch.baddbmm(views[-1].unsqueeze(1), inputs[-1], views[-2].transpose(1, 2))

    def _backward(self, views: list[Tensor], inputs: list[Tensor], d: Tensor, batch: Batch) -> Tensor:
        """Return the gradients [A, P]; ``d`` [A, B, K] holds the predicted probabilities and is overwritten."""
        _residual(d, batch.y, batch.weight)
        grads: list[Tensor] = []
        for layer in range(len(inputs) - 1, -1, -1):
            h = inputs[layer]
            grads[:0] = [torch.bmm(d.transpose(1, 2), h).flatten(1), d.sum(1)]
            if layer:
                d = torch.bmm(d, views[2 * layer]).mul_(h > 0)
        return torch.cat(grads, 1)


def _residual(d: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Turn predicted probabilities d [A, B, K] into the derivative of the loss by the logits, in place."""
    hit = y.unsqueeze(2)
    return d.scatter_add_(2, hit, d.new_full((), -1).expand(hit.shape)).mul_(weight.unsqueeze(2))


def _softmax(logits: Tensor) -> Tensor:
    if logits.shape[-1] >= FEW_CLASSES or logits.is_cuda:
        return torch.softmax(logits, -1)
    e = (logits - logits.amax(-1, keepdim=True)).exp_()
    return e.div_(e.sum(-1, keepdim=True))


def make_oracle(task: Task, mode: str) -> Oracle:
    """Return the oracle of an engine mode, "loop" or "stacked"."""
    if mode == "loop":
        return LoopOracle(task)
    return DenseOracle(task) if task.traits.dense and not task.bf16 else VmapOracle(task)

"""How the losses and gradients of a cohort are computed: the only code that differs by model family and device.

Algorithms and the trainer see an ``Oracle`` and do not know which one. Tests show that all agree up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedbench.core.types import Batch, Oracle
from fedbench.simulation.task import FEW_CLASSES, Task, example_losses


@dataclass(eq=False)
class VmapOracle:
    """Any model, the whole cohort at once: the forward pass under vmap, plain autograd on the stacked parameters."""

    task: Task

    def grad(self, w: Tensor, batch: Batch) -> Tensor:
        """Return the gradients [A, P]."""
        return self.loss_and_grad(w, batch)[1]

    def loss_and_grad(self, w: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]."""
        losses, grads = self._differentiate(w, batch)
        return losses, torch.cat([g.flatten(1) for g in grads], 1)

    def descend_(self, w: Tensor, batch: Batch, lr: Tensor) -> None:
        """Change w [A, P] into w - lr · ∇F_k(w; batch), in place; lr [A, 1]."""
        _, grads = self._differentiate(w, batch)
        for v, g in zip(self.task.layout.views(w), grads, strict=True):
            v.addcmul_(g, lr.view(-1, *[1] * (g.dim() - 1)), value=-1)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes]."""
        return self.task.apply_each(self.task.layout.views(w), x)

    def _differentiate(self, w: Tensor, batch: Batch) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the losses [A, 1] and the gradients of the parameters [A, ...].

        Clients do not interact, so the gradient of the sum of their losses contains the gradient of each.
        """
        # the leaves are the parameters, not w: differentiating through slices of w costs a full buffer per parameter
        leaves = [v.detach().requires_grad_() for v in self.task.layout.views(w)]
        with torch.enable_grad():
            losses = self._losses(leaves, batch)
        return losses.detach(), torch.autograd.grad(losses, leaves, torch.ones_like(losses))

    def _losses(self, parameters: list[Tensor], batch: Batch) -> Tensor:
        logits = self.task.apply_each(parameters, batch.x, batch.key)
        return (example_losses(logits, batch.y, 2) * batch.weight).sum(1, keepdim=True)


class LoopOracle(VmapOracle):
    """One client after another: the reference, and the fastest for convolutions on a CPU."""

    def loss_and_grad(self, w: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]."""
        of_one = super().loss_and_grad
        pairs = map(of_one, w.split(1), _clients(batch))
        losses, grads = zip(*pairs, strict=True)
        return torch.cat(losses), torch.cat(grads)

    def descend_(self, w: Tensor, batch: Batch, lr: Tensor) -> None:
        """Change w [A, P] into w - lr · ∇F_k(w; batch), in place; lr [A, 1]."""
        for client in zip(w.split(1), _clients(batch), lr, strict=True):
            super().descend_(*client)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes]."""
        return torch.stack([self.task.predict(*client) for client in zip(w, x, strict=True)])

    def _losses(self, parameters: list[Tensor], batch: Batch) -> Tensor:
        logits = self.task.apply(
            [v.squeeze(0) for v in parameters],
            self.task.images(batch.x[0]),
            None if batch.key is None else batch.key[0],
        )
        return (example_losses(logits, batch.y[0], 1) @ batch.weight[0]).view(1, 1)


def _clients(batch: Batch) -> Iterator[Batch]:
    """Yield the batch of every client, of one client each."""
    for k in range(len(batch.y)):
        one = slice(k, k + 1)
        key = None if batch.key is None else batch.key[one]
        yield Batch(batch.x[one], batch.y[one], batch.weight[one], key, batch.step)


@dataclass(eq=False)
class DenseOracle:
    """Chains of linear layers with ReLU, the whole cohort at once, forward and backward written out.

    Three batched matrix products per layer and no autograd: on small models the calls cost more than the arithmetic.
    """

    task: Task

    def grad(self, w: Tensor, batch: Batch) -> Tensor:
        """Return the gradients [A, P]."""
        return self._gradient(*self._forward(w, batch.x), batch)

    def loss_and_grad(self, w: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]."""
        views, inputs, logits = self._forward(w, batch.x)
        losses = (example_losses(logits, batch.y, 2) * batch.weight).sum(1, keepdim=True)
        return losses, self._gradient(views, inputs, logits, batch)

    def descend_(self, w: Tensor, batch: Batch, lr: Tensor) -> None:
        """Change w [A, P] into w - lr · ∇F_k(w; batch), in place; lr [A, 1].

        The update uses the products that would give the gradient; the gradient itself is not stored.
        """
        views, inputs, logits = self._forward(w, batch.x)
        last = _residual(logits, batch.y, batch.weight * lr)
        for layer, h, d in _backward(views, inputs, last):
            views[2 * layer].baddbmm_(d.transpose(1, 2), h, alpha=-1)
            views[2 * layer + 1].sub_(d.sum(1))

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes]."""
        return self._forward(w, x)[2]

    def _forward(self, w: Tensor, x: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Return weights and biases in turn, the inputs of the layers [A, B, ...], and the logits."""
        views = self.task.layout.views(w)
        h = x.flatten(2)
        inputs: list[Tensor] = []
        for weight, bias in zip(views[::2], views[1::2], strict=True):
            if inputs:
                h.relu_()
            inputs.append(h)
            h = torch.baddbmm(bias.unsqueeze(1), h, weight.transpose(1, 2))
        return views, inputs, h

    def _gradient(self, views: list[Tensor], inputs: list[Tensor], logits: Tensor, batch: Batch) -> Tensor:
        """Return the gradients [A, P]."""
        grads: list[Tensor] = []
        for _, h, d in _backward(views, inputs, _residual(logits, batch.y, batch.weight)):
            weight = torch.bmm(d.transpose(1, 2), h)
            grads[:0] = [weight.flatten(1), d.sum(1)]
        return torch.cat(grads, 1)


def _backward(views: list[Tensor], inputs: list[Tensor], d: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield every layer from the last on, its input, and the derivative of the loss by its output.

    A layer's weights may be changed once it has been yielded.
    """
    for layer in range(len(inputs) - 1, -1, -1):
        h = inputs[layer]
        below = torch.bmm(d, views[2 * layer]).mul_(h > 0) if layer else d
        yield layer, h, d
        d = below


def _residual(logits: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Return the derivative of the loss by the logits [A, B, K], with weights [A, B] of the examples."""
    label = y.unsqueeze(2)
    d = _softmax(logits)
    return d.scatter_add_(2, label, d.new_full((), -1).expand(label.shape)).mul_(weight.unsqueeze(2))


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

"""Oracles, which compute the losses and gradients of a cohort.

Only this code differs by model family and device. Algorithms and the trainer see an ``Oracle`` and
do not know which one it is. Tests show that all of them agree up to rounding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedbench.core.types import Batch, Oracle
from fedbench.simulation.task import FEW_CLASSES, Task, example_losses


@dataclass(eq=False)
class VmapOracle(Oracle):
    """Any model, the whole cohort at once: autograd on the stacked parameters.

    The forward pass is vectorised over the clients by vmap.
    """

    task: Task

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

        Clients do not interact, so the gradient of the sum of their losses contains the gradient of
        each.
        """
        leaves = [v.detach().requires_grad_() for v in self.task.layout.views(w)]
        with torch.enable_grad():
            logits = self.task.apply_each(leaves, batch.x, batch.key)
            losses = (example_losses(logits, batch.y, 2) * batch.weight).sum(1, keepdim=True)
        return losses.detach(), torch.autograd.grad(losses, leaves, torch.ones_like(losses))


@dataclass(eq=False)
class LoopOracle(Oracle):
    """One client after another: the reference, and the fastest for convolutions on a CPU."""

    task: Task

    def loss_and_grad(self, w: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]."""
        losses, gradients = [], []
        for k, model in enumerate(w):
            loss, grads = self._differentiate(model, batch, k)
            losses.append(loss)
            gradients.append(torch.cat([g.flatten() for g in grads]))

        return torch.stack(losses).unsqueeze(1), torch.stack(gradients)

    def descend_(self, w: Tensor, batch: Batch, lr: Tensor) -> None:
        """Change w [A, P] into w - lr · ∇F_k(w; batch), in place; lr [A, 1]."""
        for k, model in enumerate(w):
            _, grads = self._differentiate(model, batch, k)
            for v, g in zip(self.task.layout.views(model), grads, strict=True):
                v.addcmul_(g, lr[k], value=-1)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes]."""
        return torch.stack([self.task.predict(*client) for client in zip(w, x, strict=True)])

    def _differentiate(self, w: Tensor, batch: Batch, k: int) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the loss of client k, at its model w [P], and the gradients of the parameters."""
        # the leaves are the parameters, not w: differentiating through slices of w costs a full
        # buffer per parameter
        leaves = [v.detach().requires_grad_() for v in self.task.layout.views(w)]
        key = None if batch.key is None else batch.key[k]
        with torch.enable_grad():
            logits = self.task.apply(leaves, self.task.images(batch.x[k]), key)
            loss = example_losses(logits, batch.y[k], 1) @ batch.weight[k]
        return loss.detach(), torch.autograd.grad(loss, leaves)


@dataclass(eq=False)
class DenseOracle(Oracle):
    """Chains of linear layers with ReLU, the whole cohort at once, with derivatives written out.

    Three batched matrix products per layer and no autograd: on small models the calls cost more
    than the arithmetic.
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

        The update uses the products that would give the gradient; the gradient itself is not
        stored.
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

    def _gradient(
        self, views: list[Tensor], inputs: list[Tensor], logits: Tensor, batch: Batch
    ) -> Tensor:
        """Return the gradients [A, P]."""
        grads: list[Tensor] = []
        for _, h, d in _backward(views, inputs, _residual(logits, batch.y, batch.weight)):
            weight = torch.bmm(d.transpose(1, 2), h)
            grads[:0] = [weight.flatten(1), d.sum(1)]
        return torch.cat(grads, 1)


def _backward(
    views: list[Tensor], inputs: list[Tensor], d: Tensor
) -> Iterator[tuple[int, Tensor, Tensor]]:
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
    minus_one = d.new_full((), -1).expand(label.shape)
    d.scatter_add_(2, label, minus_one)
    return d.mul_(weight.unsqueeze(2))


def _softmax(logits: Tensor) -> Tensor:
    """Return the softmax over the classes; the second form is faster on a CPU for few of them."""
    if logits.shape[-1] >= FEW_CLASSES or logits.is_cuda:
        return torch.softmax(logits, -1)
    e = (logits - logits.amax(-1, keepdim=True)).exp_()
    return e.div_(e.sum(-1, keepdim=True))


def make_oracle(task: Task, mode: str) -> Oracle:
    """Return the oracle of an engine mode, "loop" or "stacked"."""
    if mode == "loop":
        return LoopOracle(task)
    if task.traits.dense and not task.bf16:
        return DenseOracle(task)
    return VmapOracle(task)

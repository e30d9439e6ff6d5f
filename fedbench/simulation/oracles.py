"""Oracles, which compute the losses and gradients of a cohort.

Only this code depends on the model family and the device. Algorithms and the trainer use any
``Oracle`` in the same way. Tests show that all oracles agree up to rounding.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TypeVar

import torch
from torch import Tensor

from fedbench.core.types import Batch, Loss, Oracle, Outputs
from fedbench.simulation.task import FEW_CLASSES, Inputs, Task, example_losses

T = TypeVar("T")


@dataclass(eq=False)
class VmapOracle(Oracle):
    """An oracle for any model, for the whole cohort at once: autograd on stacked parameters.

    The forward pass is vectorised over the clients by vmap.
    """

    task: Task

    def loss_and_grad(
        self,
        w: Tensor,
        batch: Batch,
        loss: Loss | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]; of another loss, if one is given."""
        losses, grads = self._differentiate(w, batch, loss)
        return losses, torch.cat([g.flatten(1) for g in grads], 1)

    def descend_(
        self,
        w: Tensor,
        batch: Batch,
        lr: Tensor,
    ) -> None:
        """Replace w [A, P] with w - lr · ∇F_k(w; batch), in place; lr is [A, 1]."""
        _, grads = self._differentiate(w, batch)
        parameters = self.task.layout.views(w)

        for v, g in zip(parameters, grads, strict=True):
            rates = lr.reshape(-1, *[1] * (v.dim() - 1))
            v.addcmul_(g, rates, value=-1)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes]."""
        _check_models(w, x)
        return self.task.apply(Inputs(self.task.layout.views(w), x), each=True)

    def outputs(self, w: Tensor, x: Tensor) -> Outputs:
        """Return the logits [A, B, classes] and features [A, B, D]."""
        _check_models(w, x)
        return self.task.outputs(Inputs(self.task.layout.views(w), x), each=True)

    def _differentiate(
        self,
        w: Tensor,
        batch: Batch,
        loss: Loss | None = None,
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the losses [A, 1] and the gradients of the parameters [A, ...].

        Clients do not interact, so the gradient of the sum of their losses contains the gradient of
        each.
        """
        _check_models(w, batch.x)
        leaves, statistics = _tensors(self.task, w)
        real = batch.weight if batch.training else None
        with torch.enable_grad():
            inputs = Inputs([*leaves, *statistics], batch.x, batch.key, real)
            if loss is None:
                losses = _batch_losses(self.task.apply(inputs, each=True), batch)
            else:
                losses = _client_losses(loss(self.task.outputs(inputs, each=True)), batch)

        gradients = _gradients(losses, leaves, unused=loss is not None)
        return losses.detach(), [*gradients, *_moved(statistics, batch)]


@dataclass(eq=False)
class LoopOracle(Oracle):
    """The reference oracle, one client after another; fastest for convolutions on a CPU.

    Attributes:
        task: The model and its loss.
        lanes: Number of clients whose kernels may run at the same time in a captured step.
    """

    task: Task
    lanes: int = 1

    def loss_and_grad(
        self,
        w: Tensor,
        batch: Batch,
        loss: Loss | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]; of another loss, if one is given."""
        _check_models(w, batch.x)
        if loss is not None:
            return self._jointly(w, batch, loss)

        def one(k: int) -> tuple[Tensor, Tensor]:
            of_client, grads = self._differentiate(w[k], batch, k)
            return of_client, torch.cat([g.flatten() for g in grads])

        results = each_client(one, len(w), self.lanes)
        losses, gradients = zip(*results, strict=True)
        return torch.stack(losses).unsqueeze(1), torch.stack(gradients)

    def descend_(
        self,
        w: Tensor,
        batch: Batch,
        lr: Tensor,
    ) -> None:
        """Replace w [A, P] with w - lr · ∇F_k(w; batch), in place; lr is [A, 1]."""

        def one(k: int) -> None:
            _, grads = self._differentiate(w[k], batch, k)
            parameters = self.task.layout.views(w[k])
            for v, g in zip(parameters, grads, strict=True):
                v.addcmul_(g, lr[k], value=-1)

        each_client(one, len(w), self.lanes)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes]."""
        _check_models(w, x)
        logits = [self.task.predict(model, rows) for model, rows in zip(w, x, strict=True)]
        return torch.stack(logits)

    def outputs(self, w: Tensor, x: Tensor) -> Outputs:
        """Return the logits [A, B, classes] and features [A, B, D]."""
        _check_models(w, x)
        outputs = []
        for model, examples in zip(w, x, strict=True):
            inputs = Inputs(self.task.layout.views(model), self.task.images(examples))
            outputs.append(self.task.outputs(inputs))
        return _stacked(outputs)

    def _jointly(
        self,
        w: Tensor,
        batch: Batch,
        loss: Loss,
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P] of another loss."""
        with torch.enable_grad():
            passes = [self._forward(self.task.outputs, v, batch, k) for k, v in enumerate(w)]
            leaves, statistics, outputs = zip(*passes, strict=True)
            losses = _client_losses(loss(_stacked(outputs)), batch)

        gradients = _gradients(losses, list(chain.from_iterable(leaves)))
        count = len(leaves[0])
        rows = []
        for k in range(len(w)):
            own = gradients[k * count : (k + 1) * count]
            row = [*own, *_moved(statistics[k], batch)]
            rows.append(torch.cat([g.flatten() for g in row]))
        return losses.detach(), torch.stack(rows)

    def _differentiate(
        self,
        w: Tensor,
        batch: Batch,
        k: int,
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the loss of client k, at its model w [P], and the gradients of the parameters."""
        with torch.enable_grad():
            leaves, statistics, logits = self._forward(self.task.apply, w, batch, k)
            loss = example_losses(logits, batch.y[k], 1) @ batch.weight[k]
        gradients = torch.autograd.grad(loss, leaves)
        return loss.detach(), [*gradients, *_moved(statistics, batch)]

    def _forward(
        self,
        call: Callable[[Inputs], T],
        w: Tensor,
        batch: Batch,
        k: int,
    ) -> tuple[list[Tensor], list[Tensor], T]:
        """Return the parameters and statistics of client k, and the result of its forward pass."""
        leaves, statistics = _tensors(self.task, w)
        x = self.task.images(batch.x[k])
        key = None if batch.key is None else batch.key[k]
        real = batch.weight[k] if batch.training else None
        return leaves, statistics, call(Inputs([*leaves, *statistics], x, key, real))


def each_client(
    one: Callable[[int], T],
    count: int,
    lanes: int,
) -> list[T]:
    """Return the results of a function of each of ``count`` clients.

    While a step is captured as a CUDA graph, clients are distributed over streams, and the graph
    may run their kernels at the same time. Kernels, arguments and results are the same.

    Args:
        one: The function of a client's position.
        count: Number of clients.
        lanes: Number of streams.
    """
    if lanes == 1 or not torch.cuda.is_current_stream_capturing():
        return [one(k) for k in range(count)]
    home = torch.cuda.current_stream()
    streams = _streams(lanes)[:count]
    for stream in streams:
        stream.wait_stream(home)
    results = []
    for k in range(count):
        with torch.cuda.stream(streams[k % len(streams)]):
            results.append(one(k))
    for stream in streams:
        home.wait_stream(stream)
    return results


@cache
def _streams(lanes: int) -> list[torch.cuda.Stream]:
    """Return streams that are reused, because libraries allocate memory per stream."""
    return [torch.cuda.Stream() for _ in range(lanes)]


@dataclass(eq=False)
class DenseOracle(Oracle):
    """An oracle for chains of linear layers with ReLU, with hand-written derivatives.

    It processes the whole cohort at once. Each layer takes three batched matrix products and no
    autograd, because on small models the calls cost more than the arithmetic.
    """

    task: Task

    def grad(self, w: Tensor, batch: Batch) -> Tensor:
        """Return the gradients [A, P]."""
        views, inputs, logits = self._forward(w, batch.x)
        return self._gradient(views, inputs, _residual(logits, batch.y, batch.weight))

    def loss_and_grad(
        self,
        w: Tensor,
        batch: Batch,
        loss: Loss | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]; of another loss, if one is given."""
        views, inputs, logits = self._forward(w, batch.x)
        if loss is None:
            last = _residual(logits, batch.y, batch.weight)
            return _batch_losses(logits, batch), self._gradient(views, inputs, last)

        own = Outputs(logits.requires_grad_(), inputs[-1].detach().requires_grad_())
        with torch.enable_grad():
            losses = _client_losses(loss(own), batch)
        gradient = self._gradient(views, inputs, *_gradients(losses, own))
        return losses.detach(), gradient

    def descend_(
        self,
        w: Tensor,
        batch: Batch,
        lr: Tensor,
    ) -> None:
        """Replace w [A, P] with w - lr · ∇F_k(w; batch), in place; lr is [A, 1].

        The update uses the products that would give the gradient; the gradient itself is not
        stored.
        """
        views, inputs, logits = self._forward(w, batch.x)
        last = _residual(logits, batch.y, batch.weight * lr)
        for layer, h, d in _backward(views, inputs, last):
            weight = views[2 * layer]
            bias = views[2 * layer + 1]
            weight.baddbmm_(d.transpose(1, 2), h, alpha=-1)
            bias.sub_(d.sum(1))

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes]."""
        return self._forward(w, x)[2]

    def outputs(self, w: Tensor, x: Tensor) -> Outputs:
        """Return the logits [A, B, classes] and features [A, B, D]."""
        _, inputs, logits = self._forward(w, x)
        return Outputs(logits, inputs[-1])

    def _forward(
        self,
        w: Tensor,
        x: Tensor,
    ) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Return alternating weights and biases, the layers' inputs [A, B, ...], and the logits."""
        _check_models(w, x)
        views = self.task.layout.views(w)
        weights = views[::2]
        biases = views[1::2]

        h = x.flatten(2)
        inputs: list[Tensor] = []
        for weight, bias in zip(weights, biases, strict=True):
            if inputs:
                h.relu_()
            inputs.append(h)
            h = torch.baddbmm(bias.unsqueeze(1), h, weight.transpose(1, 2))
        return views, inputs, h

    def _gradient(
        self,
        views: list[Tensor],
        inputs: list[Tensor],
        by_logits: Tensor,
        by_features: Tensor | None = None,
    ) -> Tensor:
        """Return the gradients [A, P], given those at the logits and the features."""
        grads: list[Tensor] = []
        for _, h, d in _backward(views, inputs, by_logits, by_features):
            weight = torch.bmm(d.transpose(1, 2), h)
            bias = d.sum(1)
            grads[:0] = [weight.flatten(1), bias]
        return torch.cat(grads, 1)


def _check_models(w: Tensor, x: Tensor) -> None:
    """Raise a ValueError unless there is a model per client: w [A, P] for x [A, B, ...]."""
    if w.dim() != 2 or len(w) != len(x):
        raise ValueError(
            f"the oracle takes a model per client, w [A, P] with A = {len(x)}, "
            f"got {list(w.shape)}; for one model w [P], pass w.expand(len(batch.x), -1)"
        )


def _tensors(task: Task, w: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Return the parameters in w [..., P] as leaves of autograd, and copies of the statistics.

    Differentiating through slices of w would cost a full buffer per parameter. A pass may move the
    statistics in place.
    """
    views = task.layout.views(w)
    leaves = [v.detach().requires_grad_() for v in views[: task.parameters]]
    return leaves, [v.clone() for v in views[task.parameters :]]


def _moved(statistics: list[Tensor], batch: Batch) -> list[Tensor]:
    """Return the entries of a gradient in the places of the statistics after a pass."""
    return statistics if batch.training else list(map(torch.zeros_like, statistics))


def _batch_losses(logits: Tensor, batch: Batch) -> Tensor:
    """Return each client's weighted sum of the losses of its batch, [A, 1]."""
    losses = example_losses(logits, batch.y, 2) * batch.weight
    return losses.sum(1, keepdim=True)


def _client_losses(values: Tensor, batch: Batch) -> Tensor:
    """Return the losses of the clients [A, 1], from those of their examples [A, B] or their own."""
    if values.shape != batch.weight.shape:
        return values
    # a loss may be infinite on padding, whose label is arbitrary
    real = torch.where(batch.weight > 0, values, 0)
    return (real * batch.weight).sum(1, keepdim=True)


def _gradients(
    losses: Tensor,
    leaves: Sequence[Tensor],
    unused: bool = True,
) -> Sequence[Tensor]:
    """Return the gradients of the sum of the losses.

    With ``unused``, they are 0 for leaves on which no loss depends, which is an error otherwise.
    """
    ones = torch.ones_like(losses)
    return torch.autograd.grad(
        losses,
        leaves,
        ones,
        allow_unused=unused,
        materialize_grads=unused,
    )


def _stacked(outputs: Iterable[Outputs]) -> Outputs:
    """Return the outputs of several clients as [A, B, ...]."""
    return Outputs(*map(torch.stack, zip(*outputs, strict=True)))


def _backward(
    views: list[Tensor],
    inputs: list[Tensor],
    d: Tensor,
    by_features: Tensor | None = None,
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield each layer, last to first, its input, and the loss gradient at its output.

    ``d`` is the gradient at the logits; that at the last layer's input may have a further term.
    The weights of a layer may be changed once the layer has been yielded.
    """
    for layer in range(len(inputs) - 1, -1, -1):
        h = inputs[layer]
        below = d
        if layer:
            active = h > 0  # the derivative of ReLU
            below = torch.bmm(d, views[2 * layer])
            if by_features is not None and layer == len(inputs) - 1:
                below.add_(by_features)
            below.mul_(active)
        yield layer, h, d
        d = below


def _residual(logits: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Return the gradient of the loss at the logits, [A, B, K]; ``weight`` is [A, B]."""
    label = y.unsqueeze(2)
    d = _softmax(logits)
    minus_one = d.new_full((), -1).expand(label.shape)
    d.scatter_add_(2, label, minus_one)
    return d.mul_(weight.unsqueeze(2))


def _softmax(logits: Tensor) -> Tensor:
    """Return the softmax over the classes; the second form is faster on a CPU for few classes."""
    if logits.shape[-1] >= FEW_CLASSES or logits.is_cuda:
        return torch.softmax(logits, -1)
    e = (logits - logits.amax(-1, keepdim=True)).exp_()
    return e.div_(e.sum(-1, keepdim=True))


def make_oracle(
    task: Task,
    mode: str,
    lanes: int = 1,
) -> Oracle:
    """Return the oracle of an engine mode, "loop" or "stacked"."""
    if mode == "loop":
        return LoopOracle(task, lanes)
    if task.traits.dense and not task.bf16:
        return DenseOracle(task)
    return VmapOracle(task)

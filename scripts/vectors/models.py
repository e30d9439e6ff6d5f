"""Softmax regression and a network of two layers, with derivatives written out.

A model is a flat vector w: weight matrices row by row, [outputs, inputs], each followed by its
biases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def softmax(z: Array) -> Array:
    """Return the softmax of each row of logits; a logit of -inf has share 0."""
    e = np.exp(z - z.max(1, keepdims=True))
    shares: Array = e / e.sum(1, keepdims=True)
    return shares


def one_hot(y: Labels, classes: int) -> Array:
    """Return the labels as rows with a single 1."""
    rows: Array = np.eye(classes)[y]
    return rows


@dataclass(frozen=True)
class Model:
    """A chain of linear layers with ReLU between them.

    Attributes:
        sizes: Sizes of the layers, from the number of features to the number of classes.
    """

    sizes: tuple[int, ...]

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.sizes[-1]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the tensors in the order of w."""
        shapes: list[tuple[int, ...]] = []
        for inputs, outputs in zip(self.sizes[:-1], self.sizes[1:], strict=True):
            shapes += [(outputs, inputs), (outputs,)]
        return shapes

    @property
    def counts(self) -> list[int]:
        """Numbers of values of the tensors in the order of w."""
        return [int(np.prod(shape)) for shape in self.shapes]

    @property
    def head(self) -> int:
        """Number of values of the last layer, which are the last ones of w."""
        return sum(self.counts[-2:])

    def tensors(self, w: Array) -> list[Array]:
        """Return w as a list of tensors."""
        parts = np.split(w, np.cumsum(self.counts)[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def layers(self, w: Array, x: Array) -> list[Array]:
        """Return the inputs of every layer and, last, the logits, [B, ...]."""
        tensors = self.tensors(w)
        values = [x]
        for weight, bias in zip(tensors[::2], tensors[1::2], strict=True):
            if len(values) > 1:  # the last value is that of a hidden layer
                values[-1] = np.maximum(values[-1], 0)
            values.append(values[-1] @ weight.T + bias)
        return values

    def logits(self, w: Array, x: Array) -> Array:
        """Return the logits [B, classes]."""
        return self.layers(w, x)[-1]

    def features(self, w: Array, x: Array) -> Array:
        """Return the inputs of the last layer, [B, D]."""
        return self.layers(w, x)[-2]

    def losses(self, w: Array, x: Array, y: Labels) -> Array:
        """Return the cross-entropy of every example, [B]."""
        z = self.logits(w, x)
        top = z.max(1)
        total: Array = top + np.log(np.exp(z - top[:, None]).sum(1))
        return total - z[np.arange(len(y)), y]

    def loss(self, w: Array, x: Array, y: Labels) -> float:
        """Return the mean cross-entropy."""
        return float(self.losses(w, x, y).mean())

    def accuracy(self, w: Array, x: Array, y: Labels) -> float:
        """Return the share of the examples whose largest logit is the label's."""
        return float((self.logits(w, x).argmax(1) == y).mean())

    def gradient(self, w: Array, x: Array, y: Labels) -> Array:
        """Return the gradient of the mean cross-entropy, [P]."""
        d = softmax(self.logits(w, x)) - one_hot(y, self.classes)
        return self.backward(w, x, d / len(y))

    def shifted_gradient(self, w: Array, x: Array, y: Labels, shifts: Array) -> Array:
        """Return the gradient of the mean cross-entropy of logits plus shifts [classes]."""
        d = softmax(self.logits(w, x) + shifts) - one_hot(y, self.classes)
        return self.backward(w, x, d / len(y))

    def backward(self, w: Array, x: Array, d_logits: Array, d_features: Array | float = 0) -> Array:
        """Return the gradient of a function of the logits and of the features, [P].

        Args:
            w: The model.
            x: The examples.
            d_logits: Derivatives by the logits, [B, classes].
            d_features: Derivatives by the features that do not pass through the logits, [B, D].
        """
        inputs = self.layers(w, x)[:-1]
        weights = self.tensors(w)[::2]
        parts: list[Array] = []
        d = d_logits
        for layer in reversed(range(len(weights))):
            parts = [(d.T @ inputs[layer]).ravel(), d.sum(0), *parts]
            d = d @ weights[layer]
            if layer == len(weights) - 1:
                d = d + d_features
            d = d * (inputs[layer] > 0)
        return np.concatenate(parts)


@dataclass(frozen=True)
class NormModel(Model):
    """A network of two layers with BatchNorm between the first one and its ReLU.

    w ends with gamma and beta of BatchNorm. The running statistics are a vector of their own:
    means, then variances.
    """

    eps: float = 1e-5
    rate: float = 0.1

    @property
    def hidden(self) -> int:
        """Number of hidden units."""
        return self.sizes[1]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the tensors in the order of w."""
        return [*super().shapes, (self.hidden,), (self.hidden,)]

    @property
    def statistics(self) -> Array:
        """The first running statistics: means 0, variances 1."""
        return np.concatenate([np.zeros(self.hidden), np.ones(self.hidden)])

    def training_pass(
        self, w: Array, statistics: Array, x: Array, y: Labels, moves: bool = True
    ) -> tuple[Array, Array]:
        """Return the gradient of the mean cross-entropy, and the statistics after the pass.

        Args:
            w: The model.
            statistics: Its running statistics.
            x: The examples of a batch.
            y: Their labels.
            moves: Whether a batch normalises by its own statistics; otherwise, and for a batch of
                one example, the running statistics are constants.
        """
        first, bias, last, last_bias, gamma, beta = self.tensors(w)
        a = x @ first.T + bias
        count = len(y)
        moves = moves and count > 1
        mean, variance = np.split(statistics, 2)
        new = statistics
        if moves:
            mean = a.mean(0)
            variance = a.var(0)
            unbiased = variance * count / (count - 1)
            fresh = np.concatenate([mean, unbiased])
            new = (1 - self.rate) * statistics + self.rate * fresh
        deviation = np.sqrt(variance + self.eps)
        unit = (a - mean) / deviation
        normed = gamma * unit + beta
        h = np.maximum(normed, 0)

        d = (softmax(h @ last.T + last_bias) - one_hot(y, self.classes)) / count
        by_last = [(d.T @ h).ravel(), d.sum(0)]
        d = (d @ last) * (normed > 0)
        by_norm = [(d * unit).sum(0), d.sum(0)]
        d = d * gamma
        if moves:  # the mean and the variance depend on the batch
            d = d - d.mean(0) - unit * (d * unit).mean(0)
        d = d / deviation
        by_first = [(d.T @ x).ravel(), d.sum(0)]
        return np.concatenate([*by_first, *by_last, *by_norm]), new

"""Chains of linear layers with ReLU between them, and logistic regression."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod
from typing import Literal

import torch
from torch import Tensor, nn

from fedbench.core.errors import RequestError, WrongValue
from fedbench.core.options import Count
from fedbench.models.base import ModelTraits


def linear_layers(sizes: Iterable[int]) -> nn.ModuleList:
    """Return linear layers that map each size to the next."""
    return nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))


def apply_layers(layers: Iterable[nn.Module], x: Tensor) -> Tensor:
    """Apply layers with ReLU between them, [..., inputs] -> [..., outputs]."""
    first, *others = layers
    h: Tensor = first(x)
    for layer in others:
        h = layer(torch.relu(h))
    return h


class Linear(nn.Linear):
    """Multinomial logistic regression: logits = W x + b.

    The parameters are ``weight`` [classes, features] and ``bias``.

    Args:
        input_shape: Shape of one example, which is flattened.
        classes: Number of classes.
        sigmoid: Whether to use σ(W x + b) as logits, as in the code of FedML and FLUTE.
    """

    traits = ModelTraits(dense=True)

    def __init__(
        self,
        input_shape: Sequence[int],
        classes: int,
        sigmoid: bool = False,
    ) -> None:
        super().__init__(prod(input_shape), classes)
        self.sigmoid = sigmoid
        if sigmoid:
            self.traits = ModelTraits()  # no hand-written passes

    def forward(self, x: Tensor) -> Tensor:
        """Map examples [B, *input_shape] to logits [B, classes]."""
        logits = super().forward(x.flatten(1))
        return torch.sigmoid(logits) if self.sigmoid else logits


class Logistic(nn.Linear):
    """Logistic regression for two classes: logits 0 and z = w x + b.

    The cross-entropy of these logits is the binary cross-entropy of σ(z), with the same gradients.

    Raises:
        RequestError: If the data do not have two classes.
    """

    traits = ModelTraits()

    def __init__(self, input_shape: Sequence[int], classes: int) -> None:
        if classes != 2:
            raise RequestError(
                f"model=logistic is for two classes, got {classes}; use model=linear"
            )
        super().__init__(prod(input_shape), 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map examples [B, *input_shape] to logits [B, 2]."""
        z = super().forward(x.flatten(1))
        return torch.cat([torch.zeros_like(z), z], dim=1)


class MLP(nn.Module):
    """Multi-layer perceptron with ReLU.

    Args:
        input_shape: Shape of one example, which is flattened.
        classes: Number of classes.
        hidden: Sizes of the hidden layers, at least one.
        norm: "batch": BatchNorm between every hidden layer and its ReLU; "none": nothing.

    Raises:
        RequestError: If a size is below 1, or there is no hidden layer.
    """

    traits = ModelTraits(dense=True)

    def __init__(
        self,
        input_shape: Sequence[int],
        classes: int,
        hidden: Sequence[Count] = (128,),
        norm: Literal["none", "batch"] = "none",
    ) -> None:
        super().__init__()
        if not hidden:
            raise WrongValue(
                "hidden", "must have at least one layer; without any it is model=linear"
            )
        self.layers = linear_layers([prod(input_shape), *hidden, classes])
        self.norms = nn.ModuleList()
        if norm == "batch":
            self.traits = ModelTraits()  # no hand-written passes
            self.norms.extend(nn.BatchNorm1d(size) for size in hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Map examples [B, *input_shape] to logits [B, classes]."""
        h = x.flatten(1)
        if not self.norms:
            return apply_layers(self.layers, h)
        *layers, last = self.layers
        for layer, norm in zip(layers, self.norms, strict=True):
            h = torch.relu(norm(layer(h)))
        logits: Tensor = last(h)
        return logits

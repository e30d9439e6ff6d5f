"""What the engine needs to know of a model besides its parameters.

A model is any ``nn.Module`` without buffers. One that the defaults of ``ModelTraits`` do not describe has an attribute
``traits``; a layer that cannot be vectorised over clients is a ``FusedLayer``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, runtime_checkable

from torch import Tensor, nn

from fedbench.core.errors import RequestError


@dataclass(frozen=True)
class ModelTraits:
    """Facts about a model; the defaults describe a plain classifier.

    Attributes:
        random: Whether a training step draws random numbers: ``forward`` then takes a second argument ``key``, for
            ``fedbench.core.randomness.dropout``.
        per_token: Whether the logits are those of every token of a sequence, or of the whole example; None is not
            checked against the labels.
        begin: Initial values of parameters by name; they replace those that ``fedbench.models.init`` would draw.
        initialisation: "torch" or "he", the rule for the initial values of convolutions.
        table: Vectors [tokens, D] that the engine looks tokens up in before they reach ``forward``, or None.
        work_values: Values that an example needs in a forward pass, if that is more than its features; 0 if not. It
            limits how many examples are evaluated at once.
        dense: Whether the model flattens an example and is a chain of linear layers with biases and ReLU between them;
            the engine then has its forward and backward pass written out.
    """

    random: bool = False
    per_token: bool | None = None
    begin: Mapping[str, Tensor] = field(default_factory=dict)
    initialisation: Literal["torch", "he"] = "torch"
    table: Tensor | None = None
    work_values: int = 0
    dense: bool = False


@runtime_checkable
class FusedLayer(Protocol):
    """A layer whose fused kernel cannot be vectorised over clients; with ``elementary`` it uses single operations."""

    elementary: bool


def traits_of(model: nn.Module) -> ModelTraits:
    """Return the traits of a model: its attribute ``traits``, or the defaults.

    Raises:
        RequestError: If ``traits`` is of another type, or if a trait is an attribute of the model itself.
    """
    traits = getattr(model, "traits", None)
    name = type(model).__name__
    if isinstance(traits, ModelTraits):
        inherited = "traits" not in vars(model) and "traits" not in vars(type(model))
        return replace(traits, dense=False) if inherited else traits  # a subclass may compute something else
    if traits is not None:
        raise RequestError(f"{name}.traits must be a fedbench.models.base.ModelTraits, got {type(traits).__name__}")
    for misplaced in ("random", "begin"):
        if hasattr(model, misplaced):
            raise RequestError(
                f"{name} has an attribute {misplaced}, which is not read; set traits = ModelTraits({misplaced}=...), "
                "from fedbench.models.base"
            )
    return ModelTraits()


def require_images(input_shape: Sequence[int], side: int = 1) -> None:
    """Check that examples are images of shape [channels, height, width] with at least ``side`` pixels a side.

    Raises:
        RequestError: If they are not.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < side:
        least = f" with at least {side} x {side} pixels" if side > 1 else ""
        raise RequestError(
            f"this model needs images of shape [channels, height, width]{least}, got examples of shape "
            f"{list(input_shape)}; use model=linear or model=mlp"
        )

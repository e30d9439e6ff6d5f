"""Traits of models, and the initial values of their parameters by kind of layer.

A model is any ``nn.Module`` without buffers but BatchNorm's. If the defaults of ``ModelTraits`` do
not describe it, the model has an attribute ``traits``. A layer that cannot be vectorised over
clients is a ``FusedLayer``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod, sqrt
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from fedbench.core.errors import RequestError
from fedbench.core.validation import choice


@dataclass(frozen=True)
class ModelTraits:
    """Facts about a model; the defaults describe a plain classifier.

    Attributes:
        random: Whether a training step draws random numbers. If so, ``forward`` takes a second
            argument ``key``, for ``fedbench.core.randomness.dropout``.
        per_token: Whether the model returns logits for every token rather than for the whole
            example. If None, this is not checked against the labels.
        begin: Initial values of parameters by name; they replace the values that ``initial`` draws.
        initialisation: "torch" or "he", the rule for the initial values of convolutions.
        table: Embedding vectors [tokens, D] with which the engine replaces tokens before it calls
            ``forward``, or None.
        work_values: Number of values that one example needs in a forward pass, or 0 if this does
            not exceed its number of features. It limits the number of examples evaluated at once.
        dense: Whether the model flattens an example and is a chain of linear layers with biases and
            ReLU between them. For such models the engine uses a hand-written forward and backward
            pass.
        head: Name of the last linear layer, whose inputs are the features and whose outputs are the
            logits; empty if it is the whole model. If None, the model does not declare it.
    """

    random: bool = False
    per_token: bool | None = None
    begin: Mapping[str, Tensor] = field(default_factory=dict)
    initialisation: Literal["torch", "he"] = "torch"
    table: Tensor | None = None
    work_values: int = 0
    dense: bool = False
    head: str | None = None


@runtime_checkable
class FusedLayer(Protocol):
    """A layer whose fused kernel cannot be vectorised over clients.

    If ``elementary`` is True, the layer uses elementary operations instead.
    """

    elementary: bool


def traits_of(model: nn.Module) -> ModelTraits:
    """Return the traits of a model: its attribute ``traits``, or the defaults.

    Raises:
        RequestError: If ``traits`` has another type.
    """
    traits = getattr(model, "traits", None)
    name = type(model).__name__
    if isinstance(traits, ModelTraits):
        inherited = "traits" not in vars(model) and "traits" not in vars(type(model))
        # a subclass may compute another function
        return replace(traits, dense=False) if inherited else traits
    if traits is not None:
        raise RequestError(
            f"{name}.traits must be a fedbench.models.base.ModelTraits, got {type(traits).__name__}"
        )
    return ModelTraits()


def require_images(input_shape: Sequence[int], side: int = 1) -> None:
    """Check that examples are images with at least ``side`` pixels per side.

    Images have shape [channels, height, width].

    Raises:
        RequestError: If the examples are not such images.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < side:
        least = f" with at least {side} x {side} pixels" if side > 1 else ""
        raise RequestError(
            f"this model needs images of shape [channels, height, width]{least}, "
            f"got examples of shape {list(input_shape)}; use model=linear or model=mlp"
        )


def initial(model: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """Return the initial value of every parameter, by name.

    Linear and convolutional layers: weights and biases uniform in ±1/√fan_in, as in torch. With the
    trait ``initialisation="he"``, convolutions are initialised as in torchvision's deep networks:
    weights N(0, 2/fan_out), biases 0 (He et al., ICCV 2015). LSTM and GRU: uniform in ±1/√hidden.
    Embedding: N(0, 1). GroupNorm, LayerNorm, BatchNorm: 1 and 0. Values in the trait ``begin``
    replace these.

    Args:
        model: The model, on any device; the values of its parameters are not used.
        generator: Generator of the random draws.

    Raises:
        RequestError: If a layer of an unsupported kind has parameters, or ``begin`` names none.
    """
    traits = traits_of(model)
    begin = traits.begin
    he = traits.initialisation == "he"
    values: dict[str, Tensor] = {}
    for name in begin:
        choice("traits.begin", name, dict(model.named_parameters()))
    for name, p in model.named_parameters():  # lists a tied parameter once, under its first name
        if name in begin:
            values[name] = begin[name].float()
        else:
            values[name] = _value(model, name, p.shape, he, generator)
    return values


def _value(
    model: nn.Module,
    full: str,
    shape: torch.Size,
    he: bool,
    generator: torch.Generator,
) -> Tensor:
    prefix, _, name = full.rpartition(".")
    match module := model.get_submodule(prefix):
        case _ConvNd() if he:
            if name == "bias":
                return torch.zeros(shape)
            outputs, _, *kernel = module.weight.shape
            fan_out = outputs * prod(kernel) / module.groups
            return torch.randn(shape, generator=generator) * sqrt(2 / fan_out)
        case nn.Linear() | _ConvNd():
            bound = 1 / sqrt(module.weight[0].numel())
        case nn.RNNBase():
            bound = 1 / sqrt(module.hidden_size)
        case nn.Embedding():
            return torch.randn(shape, generator=generator)
        case nn.GroupNorm() | nn.LayerNorm() | _BatchNorm():
            return torch.ones(shape) if name == "weight" else torch.zeros(shape)
        case _:
            raise RequestError(
                f"no initialisation is known for {type(module).__name__} ({full}); "
                "give it in the model's traits = ModelTraits(begin={name: tensor})"
            )
    return (2 * torch.rand(shape, generator=generator) - 1) * bound

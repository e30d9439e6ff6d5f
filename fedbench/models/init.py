"""The initial values of a model's parameters, by kind of layer."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from fedbench.core.errors import RequestError
from fedbench.models.base import traits_of


def initial(model: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """Return the initial value of every parameter, by name.

    Linear and convolutional layers: weights and biases uniform in ±1/√fan_in, as in torch. With the trait
    ``initialisation="he"``, convolutions as in torchvision's deep networks: weights N(0, 2/fan_out), biases 0 (He et
    al., ICCV 2015). LSTM and GRU: uniform in ±1/√hidden. Embedding: N(0, 1). GroupNorm, LayerNorm: 1 and 0. Values in
    the trait ``begin`` replace these.

    Args:
        model: The model, on any device; its own parameters are not read.
        generator: Generator of the draws.

    Raises:
        RequestError: If a layer of another kind has parameters.
    """
    traits = traits_of(model)
    begin, he = traits.begin, traits.initialisation == "he"
    values: dict[str, Tensor] = {}
    own = dict(model.named_parameters())  # a tied parameter once, under its first name
    for prefix, module in model.named_modules():
        for name, p in module.named_parameters(recurse=False):
            full = f"{prefix}.{name}" if prefix else name
            if full not in own:
                continue
            values[full] = begin[full].float() if full in begin else _value(module, name, p, he, generator, full)
    return values


def _value(module: nn.Module, name: str, p: Tensor, he: bool, generator: torch.Generator, full: str) -> Tensor:
    shape = p.shape
    match module:
        case _ConvNd() if he:
            if name == "bias":
                return torch.zeros(shape)
            fan_out = module.weight.shape[0] * module.weight[0, 0].numel() / module.groups
            return torch.randn(shape, generator=generator) * sqrt(2 / fan_out)
        case nn.Linear() | _ConvNd():
            bound = 1 / sqrt(module.weight[0].numel())
        case nn.RNNBase():
            bound = 1 / sqrt(module.hidden_size)
        case nn.Embedding():
            return torch.randn(shape, generator=generator)
        case nn.GroupNorm() | nn.LayerNorm():
            return torch.ones(shape) if name == "weight" else torch.zeros(shape)
        case _:
            raise RequestError(
                f"no initialisation is known for {type(module).__name__} ({full}); give it in the model's "
                "traits = ModelTraits(begin={name: tensor})"
            )
    return (2 * torch.rand(shape, generator=generator) - 1) * bound

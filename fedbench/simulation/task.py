"""A task: a model and its loss as functions of a flat parameter vector w [P] (ADR 0001)."""

import copy
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from fedbench.core.errors import RequestError
from fedbench.models.base import FusedLayer, initial, traits_of

# below this torch's softmax over rows leaves its vector code on a CPU: measured 1036 against 313 µs
# at [8264, 10] for the cross-entropy, 127 against 30 µs at [100, 10, 10] for the softmax
FEW_CLASSES = 16


_DROPPING = (nn.RNNBase, nn.modules.dropout._DropoutNd)


@dataclass(frozen=True)
class Layout:
    """The places of a model's parameters in the flat vector: one after another, in the model's order."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @cached_property
    def sizes(self) -> list[int]:
        """Number of values of each parameter tensor."""
        return [prod(s) for s in self.shapes]

    def views(self, w: Tensor) -> list[Tensor]:
        """Return the parameters in ``w [..., P]`` as views [..., *shape]."""
        lead = w.shape[:-1]
        parts = w.split_with_sizes(self.sizes, -1)
        return [v.view(lead + s) for v, s in zip(parts, self.shapes, strict=True)]

    def named(self, w: Tensor) -> dict[str, Tensor]:
        """Return the parameters in ``w [..., P]`` by name."""
        return dict(zip(self.names, self.views(w), strict=True))

    def flatten(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the flat vector [P] of parameters given by name.

        Raises:
            RequestError: If names or shapes differ from those of the model.
        """
        want = dict(zip(self.names, self.shapes, strict=True))
        got = {k: v.shape for k, v in parameters.items()}
        if got != want:
            show = [{k: list(s) for k, s in d.items()} for d in (got, want)]
            raise RequestError(
                f"the parameters do not match the model: got {show[0]}, expected {show[1]}"
            )
        return torch.cat([parameters[k].flatten() for k in self.names])


class Task:
    """Classification with cross-entropy by a model of flat parameters.

    Args:
        model: A module without buffers. Its own parameters are never read, so it may be on the meta
            device.
        device: Device of w.
        dtype: Type of w.
        bf16: Whether to run forward and backward passes under bfloat16 autocast.

    Raises:
        RequestError: If the model has buffers (such as the running statistics of BatchNorm), draws
            from a global generator, has no parameters or frozen ones, or has traits of another
            type.
    """

    def __init__(
        self, model: nn.Module, device: torch.device, dtype: torch.dtype, bf16: bool = False
    ) -> None:
        buffers = [k for k, _ in model.named_buffers()]
        if buffers:
            raise RequestError(
                f"{type(model).__name__} has buffers ({', '.join(buffers[:3])}), which are not parameters and would "
                "not be averaged; use GroupNorm instead of BatchNorm"
            )
        drawing = [
            name
            for name, m in model.named_modules()
            if isinstance(m, _DROPPING) and (m.dropout if isinstance(m, nn.RNNBase) else m.p) > 0
        ]
        if drawing:
            raise RequestError(
                f"{type(model).__name__}.{drawing[0]} draws from torch's global generator, even when the model is "
                "evaluated; use fedbench.core.randomness.dropout in a forward(x, key) and set traits = "
                "ModelTraits(random=True)"
            )
        named = list(model.named_parameters())
        if not named:
            raise RequestError(f"{type(model).__name__} has no parameters to train")
        if frozen := [k for k, p in named if not p.requires_grad]:
            raise RequestError(
                f"{type(model).__name__} has frozen parameters ({', '.join(frozen[:3])}), and no part of a model "
                "can be fixed here: every parameter is trained and sent; remove requires_grad_(False)"
            )
        self.model, self.device, self.dtype, self.bf16 = model, device, dtype, bf16
        self.traits = traits_of(model)
        self.layout = Layout(tuple(k for k, _ in named), tuple(p.shape for _, p in named))
        self.size = sum(self.layout.sizes)  # P
        self._copies = threading.local()

    def images(self, x: Tensor) -> Tensor:
        """Return images [B, channels, height, width] channels last on a CPU; other examples unchanged.

        A training step of the 3-block network took 0.55 of the time channels last, a forward pass
        0.25.
        """
        return channels_last(x) if x.dim() == 4 and not x.is_cuda else x

    def take_table(self) -> Tensor | None:
        """Return the table that tokens are looked up in, and let go of it: every worker thread copies the model."""
        table = self.traits.table
        if table is not None:
            self.traits = replace(self.traits, table=None)
            self.model.traits = self.traits  # type: ignore[assignment]  # a plain attribute of the module
        return table

    def init(self, generator: torch.Generator) -> Tensor:
        """Return an initial model w [P], drawn on the CPU in float32 whatever the device and precision.

        Raises:
            RequestError: If a layer of an unknown kind has parameters.
        """
        return self.layout.flatten(initial(self.model, generator)).to(self.device, self.dtype)

    def predict(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [B, classes] of the examples x [B, ...] under one model w [P]."""
        return self.apply(self.layout.views(w), self.images(x))

    def apply(self, parameters: Sequence[Tensor], x: Tensor, key: Tensor | None = None) -> Tensor:
        """Return the logits of x under parameters in the model's order; ``key`` seeds the draws of a training step."""
        # functional_call puts the parameters into the module while it runs: one module per thread
        if not hasattr(self._copies, "model"):
            self._copies.model = copy.deepcopy(self.model)
        return self._call(self._copies.model, parameters, x, key)

    def apply_each(
        self, parameters: Sequence[Tensor], x: Tensor, key: Tensor | None = None
    ) -> Tensor:
        """Return the logits [A, B, ...] of x [A, B, ...] under each of A clients' parameters [A, ...], vectorised.

        Args:
            parameters: The parameters of the clients, in the model's order.
            x: Their examples.
            key: Keys of the draws of a training step [A], or None.
        """
        if not hasattr(self._copies, "each"):
            self._copies.each = self._vectorised()
        call = torch.vmap(
            partial(self._call, self._copies.each), in_dims=(0, 0, None if key is None else 0)
        )
        logits: Tensor = call(parameters, x, key)
        return logits

    def _vectorised(self) -> nn.Module:
        """Return a copy of the model whose layers can be vectorised over clients."""
        model = copy.deepcopy(self.model)
        for module in model.modules():
            if isinstance(module, FusedLayer):
                module.elementary = True
        return model

    def _call(
        self, model: nn.Module, parameters: Sequence[Tensor], x: Tensor, key: Tensor | None
    ) -> Tensor:
        named = dict(zip(self.layout.names, parameters, strict=True))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            logits: Tensor = functional_call(model, named, (x,) if key is None else (x, key))
        return logits.to(self.dtype)


def channels_last(x: Tensor) -> Tensor:
    """Return images [B, channels, height, width] in channels-last memory format.

    With one channel both layouts are the same bytes, and only the strides show torch which one is
    meant.
    """
    if x.shape[1] > 1:
        return x.contiguous(memory_format=torch.channels_last)
    height, width = x.shape[2:]
    return x.contiguous().as_strided(x.shape, (height * width, 1, width, 1))


def example_losses(logits: Tensor, y: Tensor, lead: int) -> Tensor:
    """Return the cross-entropy of every example, in nats; for a sequence the mean over its tokens.

    Args:
        logits: Logits [..., K].
        y: Labels [...].
        lead: Number of leading dimensions of ``y`` that index examples; the others index tokens.
    """
    if logits.shape[-1] < FEW_CLASSES and not logits.is_cuda:
        losses = torch.logsumexp(logits, -1) - logits.gather(-1, y.unsqueeze(-1)).squeeze(-1)
    else:
        losses = F.cross_entropy(logits.flatten(0, -2), y.flatten(), reduction="none").view(y.shape)
    return over_tokens(losses, lead)


def over_tokens(values: Tensor, lead: int) -> Tensor:
    """Return the mean over the tokens of each example: values [..., L] -> [...] of ``lead`` dimensions."""
    return values if values.dim() == lead else values.flatten(lead).mean(-1)

"""A task: a model and its loss as functions of a flat parameter vector w [P] (ADR 0001)."""

import copy
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from fedbench.core.errors import RequestError
from fedbench.core.types import Outputs
from fedbench.models.base import FusedLayer, initial, traits_of
from fedbench.models.convolution import skip_hidden_taps
from fedbench.models.normalisation import COUNTER, batch_norms, statistics_of, with_padding
from fedbench.models.parts import head_of

# with fewer classes, torch's softmax over rows is not vectorised on a CPU: measured 1036 against
# 313 µs at [8264, 10] for the cross-entropy, 127 against 30 µs at [100, 10, 10] for the softmax
FEW_CLASSES = 16


_DROPPING = (nn.RNNBase, nn.modules.dropout._DropoutNd)


@dataclass(frozen=True)
class Layout:
    """Positions of a model's parameters in the flat vector, in the model's order."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @cached_property
    def sizes(self) -> list[int]:
        """Number of values of each parameter tensor."""
        return [prod(s) for s in self.shapes]

    @property
    def size(self) -> int:
        """Number of values of all parameters."""
        return sum(self.sizes)

    def of(self, names: Iterable[str]) -> "Layout":
        """Return the positions of some of the parameters in a vector of their own."""
        shapes = dict(zip(self.names, self.shapes, strict=True))
        chosen = tuple(names)
        return Layout(chosen, tuple(shapes[name] for name in chosen))

    def views(self, w: Tensor) -> list[Tensor]:
        """Return the parameters in ``w [..., P]`` as views [..., *shape]."""
        lead = w.shape[:-1]
        parts = w.split_with_sizes(self.sizes, -1)
        shapes = (lead + shape for shape in self.shapes)
        return list(map(Tensor.view, parts, shapes))

    def named(self, w: Tensor) -> dict[str, Tensor]:
        """Return the parameters in ``w [..., P]`` by name."""
        return dict(zip(self.names, self.views(w), strict=True))

    def flatten(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the flat vector [P] of parameters given by name.

        Raises:
            RequestError: If names or shapes differ from those of the model.
        """
        got = {name: list(v.shape) for name, v in parameters.items()}
        expected = dict(zip(self.names, map(list, self.shapes), strict=True))
        if got != expected:
            raise RequestError(
                f"the parameters do not match the model: got {got}, expected {expected}"
            )
        return torch.cat([parameters[name].flatten() for name in self.names])


class Inputs(NamedTuple):
    """Inputs of a forward pass."""

    parameters: Sequence[Tensor]  # the tensors of w, in the order of the layout
    x: Tensor  # examples [B, ...]
    key: Tensor | None = None  # key of the draws of a training step
    # weights of the examples [B] in a training step of a model with running statistics, which are
    # then moved in place; None in evaluation
    real: Tensor | None = None


class Task:
    """Classification with cross-entropy by a model with flat parameters.

    Args:
        model: A module without buffers but BatchNorm's. Its own parameters are never read, so it
            may be on the meta device.
        device: Device of w.
        dtype: Type of w.
        bf16: Whether to run forward and backward passes under bfloat16 autocast.
        frozen: Names of parameters that keep their initial values and are not part of w, besides
            those of the model that do not require a gradient.
        personal: Names of parameters and running statistics that clients keep.

    Attributes:
        layout: Positions in w of all parameters that are trained, and of running statistics: w is
            [shared | personal | local statistics | averaged statistics].
        shared: Positions of the parameters that are not personal, the first ones in w.
        personal: Positions of the personal parameters in a vector of their own.
        local: Positions of the statistics that clients keep in a vector of their own.
        averaged: Positions of the other statistics in a vector of their own.
        parameters: Number of trained tensors, the first ones in the layout.
        size: Number of values P of w.
        head: Name of the layer whose inputs are the features; None if it is not known.
        constants: Initial values of frozen parameters and of what clients keep, once there are
            some.

    Raises:
        RequestError: If the model has buffers other than the running statistics of BatchNorm or
            other tensors that are no parameters, draws from a global generator, has no parameters
            to train, or has traits of another type.
    """

    def __init__(
        self,
        model: nn.Module,
        device: torch.device,
        dtype: torch.dtype,
        bf16: bool = False,
        frozen: Collection[str] = (),
        personal: Collection[str] = (),
    ) -> None:
        _check_model(model)
        statistics = statistics_of(model)
        shapes = {name: p.shape for name, p in model.named_parameters()} | statistics
        trained = []
        for name, p in model.named_parameters():
            if p.requires_grad and name not in frozen:
                trained.append(name)
        if not trained:
            raise RequestError(f"{type(model).__name__} has no parameters to train")
        if both := sorted(set(personal) - set(trained) - set(statistics)):
            raise RequestError(f"{both[0]} is both personal and frozen")
        whole = Layout(tuple(shapes), tuple(shapes.values()))
        self.shared = whole.of(name for name in trained if name not in personal)
        self.personal = whole.of(name for name in trained if name in personal)
        self.local = whole.of(name for name in statistics if name in personal)
        self.averaged = whole.of(name for name in statistics if name not in personal)
        groups = (self.shared, self.personal, self.local, self.averaged)
        self.layout = whole.of(name for group in groups for name in group.names)
        self.model = model
        self.device = device
        self.dtype = dtype
        self.bf16 = bf16
        self.traits = traits_of(model)
        if self.layout.names != whole.names:
            # hand-written passes need all parameters in the model's order
            self.traits = replace(self.traits, dense=False)
        self.head = head_of(model)
        self.parameters = len(trained)
        self.size = self.layout.size  # P
        self.constants: dict[str, Tensor] = {}
        self._whole = whole
        self._server = whole.of([*self.shared.names, *self.averaged.names])
        self._on_features = False
        self._norms = batch_norms(model)
        self._copies = threading.local()

    @property
    def trains_head_alone(self) -> bool:
        """Whether the layout is that of the head, below which nothing is trained or moved."""
        parameters = tuple(f"{self.head}.{name}" for name in ("weight", "bias"))
        return bool(self.head) and self.shared.names == self.layout.names == parameters

    def on_features(self) -> "Task":
        """Return the task of the head alone; its examples are the inputs of the head."""
        task = copy.copy(self)
        task._on_features = True
        task.traits = replace(self.traits, dense=True, work_values=0)
        return task

    def images(self, x: Tensor) -> Tensor:
        """Return x; on a CPU, images [B, channels, height, width] become channels-last.

        With channels last, a training step of the 3-block network took 0.55 of the time, and a
        forward pass 0.25.
        """
        return channels_last(x) if x.dim() == 4 and not x.is_cuda else x

    def take_table(self) -> Tensor | None:
        """Return the table in which tokens are looked up, and remove it from the model.

        Every worker thread copies the model and would copy the table, too.
        """
        table = self.traits.table
        if table is not None:
            self.traits = replace(self.traits, table=None)
            # a plain attribute of the module
            self.model.traits = self.traits  # type: ignore[assignment]
        return table

    def init(self, generator: torch.Generator) -> Tensor:
        """Return an initial model w [P], and keep the frozen parameters.

        The model is drawn on the CPU in float32, regardless of device and precision.

        Raises:
            RequestError: If a layer of an unknown kind has parameters.
        """
        return self.begin(initial(self.model, generator))

    def begin(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the model w [P] with the given parameters, and keep the constants.

        Running statistics that are not given are 0 and 1.

        Raises:
            RequestError: If names or shapes differ from those of the model.
        """
        given: dict[str, Tensor] = {}
        for layout in (self.local, self.averaged):
            for name, shape in zip(layout.names, layout.shapes, strict=True):
                initial_value = torch.zeros if name.endswith("mean") else torch.ones
                given[name] = initial_value(shape)
        for name, value in parameters.items():
            if not name.endswith(COUNTER):
                given[name] = value
        whole = self._whole.flatten(given).to(self.device, self.dtype)
        values = self._whole.named(whole)
        self.constants = {}
        for name, value in values.items():
            if name not in self._server.names:
                self.constants[name] = value.clone()
        return self.layout.flatten({name: values[name] for name in self.layout.names})

    def named(self, w: Tensor) -> dict[str, Tensor]:
        """Return all tensors by name, in the model's order.

        Args:
            w: The shared parameters, followed by the averaged statistics.
        """
        values = self._server.named(w) | self.constants
        return {name: values[name] for name in self._whole.names}

    def predict(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [B, classes] of the examples x [B, ...] under one model w [P]."""
        return self.apply(Inputs(self.layout.views(w), self.images(x)))

    def apply(self, inputs: Inputs, each: bool = False) -> Tensor:
        """Return the logits.

        With ``each``, all tensors have a leading dimension for A clients, over which the forward
        pass is vectorised.
        """
        logits: Tensor = self._run(self._call, inputs, each)
        return logits

    def outputs(self, inputs: Inputs, each: bool = False) -> Outputs:
        """Return the logits and features, as ``apply`` does."""
        return Outputs(*self._run(self._call_with_features, inputs, each))

    def _run(
        self,
        call: Callable[[nn.Module, Inputs], Any],
        inputs: Inputs,
        each: bool,
    ) -> Any:
        """Return the results of a forward pass by this thread's copy of the model."""
        model = self._copy(each)
        if not each:
            return call(model, inputs)
        in_dims = tuple(None if v is None else 0 for v in inputs)
        return torch.vmap(lambda *values: call(model, Inputs(*values)), in_dims)(*inputs)

    def _copy(self, each: bool) -> nn.Module:
        """Return this thread's copy of the model, which holds the parameters while it runs.

        The layers are the engine's own. With ``each``, they can be vectorised over clients.
        """
        copies = vars(self._copies)  # of this thread
        name = "vectorised" if each else "single"
        if name not in copies:
            copies[name] = with_padding(skip_hidden_taps(copy.deepcopy(self.model)))
            for module in copies[name].modules():
                if each and isinstance(module, FusedLayer):
                    module.elementary = True
        model: nn.Module = copies[name]
        return model

    def _call_with_features(self, model: nn.Module, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Return logits [B, K] and features [B, D], which are the inputs of the head."""
        if self._on_features:
            return self._call(model, inputs), inputs.x
        assert self.head is not None  # checked when the run is built
        features: list[Tensor] = []

        def keep(head: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            features.append(arguments[0])

        hook = model.get_submodule(self.head).register_forward_pre_hook(keep)
        try:
            logits = self._call(model, inputs)
        finally:
            hook.remove()
        if not features:
            raise RequestError(f"{type(model).__name__} does not use its head, {self.head}")
        return logits, features[0].flatten(1).to(self.dtype)

    def _call(self, model: nn.Module, inputs: Inputs) -> Tensor:
        parameters, x, key, real = inputs
        named = self.constants | dict(zip(self.layout.names, parameters, strict=True))
        if real is not None:
            named |= {f"{place}.real": real for place in self._norms}
        args = (x,) if key is None else (x, key)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            if self._on_features:
                return F.linear(x, *parameters).to(self.dtype)
            logits: Tensor = functional_call(model, named, args)
        return logits.to(self.dtype)


def check_head(
    task: Task,
    w: Tensor,
    x: Tensor,
) -> None:
    """Check that the logits of the model w [P] on examples x are the outputs of its head.

    Raises:
        RequestError: If they are not.
    """
    values = task.layout.named(w) | task.constants
    prefix = f"{task.head}." if task.head else ""
    logits, features = task.outputs(Inputs(task.layout.views(w), task.images(x)))
    inputs = features.unflatten(1, (*logits.shape[1:-1], -1))
    bias = values.get(f"{prefix}bias")
    expected = F.linear(inputs, values[f"{prefix}weight"], bias)
    same = logits.shape == expected.shape
    if not same or not torch.allclose(logits, expected, rtol=1e-3, atol=1e-4):
        raise RequestError(
            f"{type(task.model).__name__}.traits has head={task.head!r}, and the logits are not "
            "the outputs of this layer; name the layer whose outputs are returned unchanged"
        )


def _check_model(model: nn.Module) -> None:
    """Refuse a model with unknown buffers or draws from a global generator."""
    name = type(model).__name__
    if unknown := batch_norms(model, supported=False):
        raise RequestError(
            f"{name}.{unknown[0]} normalises by batches in a way that is not supported; use "
            "nn.BatchNorm1d or nn.BatchNorm2d, affine and with running statistics and a momentum, "
            "or GroupNorm"
        )
    statistics = statistics_of(model)
    buffers = []
    for k, _ in model.named_buffers():
        if k not in statistics and not k.endswith(COUNTER):
            buffers.append(k)
    if buffers:
        raise RequestError(
            f"{name} has buffers ({', '.join(buffers[:3])}), which are not parameters and would "
            "not be averaged; only the running statistics of BatchNorm are"
        )

    for place, module in model.named_modules():
        for attribute, value in vars(module).items():
            if isinstance(value, Tensor) and value.is_meta:
                path = f"{place}.{attribute}".lstrip(".")
                raise RequestError(
                    f"{name} has a tensor that is not a parameter, {path}, and models are "
                    "constructed without values; keep it as a number, list or array, and write "
                    f"x.new_tensor(self.{attribute}) in forward"
                )
        if isinstance(module, _DROPPING) and _dropout_rate(module) > 0:
            raise RequestError(
                f"{name}.{place} draws from torch's global generator, even when the model is "
                "evaluated; use fedbench.core.randomness.dropout in a forward(x, key) and set "
                "traits = ModelTraits(random=True)"
            )


def _dropout_rate(
    module: nn.RNNBase | nn.modules.dropout._DropoutNd,
) -> float:
    return module.dropout if isinstance(module, nn.RNNBase) else module.p


def channels_last(x: Tensor) -> Tensor:
    """Return images [B, channels, height, width] in channels-last memory format.

    With one channel, both layouts contain the same bytes, and only the strides tell torch which
    layout is meant.
    """
    if x.shape[1] > 1:
        return x.contiguous(memory_format=torch.channels_last)
    height, width = x.shape[2:]
    return x.contiguous().as_strided(x.shape, (height * width, 1, width, 1))


def example_losses(logits: Tensor, y: Tensor, lead: int) -> Tensor:
    """Return the cross-entropy of every example, in nats; for a sequence, the mean over its tokens.

    Args:
        logits: Logits [..., K].
        y: Labels [...].
        lead: Number of leading dimensions of ``y`` that index examples; the others index tokens.
    """
    if logits.shape[-1] < FEW_CLASSES and not logits.is_cuda:
        of_label = logits.gather(-1, y.unsqueeze(-1)).squeeze(-1)
        losses = torch.logsumexp(logits, -1) - of_label
    else:
        rows = logits.flatten(0, -2)
        losses = F.cross_entropy(rows, y.flatten(), reduction="none").view(y.shape)
    return over_tokens(losses, lead)


def over_tokens(values: Tensor, lead: int) -> Tensor:
    """Return the mean over the tokens of each example.

    Values [..., L] become [...], with ``lead`` dimensions.
    """
    if values.dim() == lead:
        return values
    return values.flatten(lead).mean(-1)

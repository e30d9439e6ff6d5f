"""Dense models in compiled code: whole local phases, and losses and gradients on examples."""

import ctypes
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Descent, GradientShift, ProximalTerm
from fedbench.core.types import Batch, ClientInfo, Extra, Loss, Oracle, State, Step
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.oracles import DenseOracle
from fedbench.simulation.task import Task

S = TypeVar("S", bound=ctypes.Structure)

# examples times parameters: two or three milliseconds, too short to gain from a second thread
_LITTLE = 2**23
# size of the models that one call trains; a method creates further vectors of this size
SHARE_BYTES = 2**24


def _fields(
    pointers: str,
    integers: str,
    reals: str = "",
) -> list[tuple[str, Any]]:
    """Return the fields of a structure with these names, in this order."""
    fields: list[tuple[str, Any]] = []
    fields += [(name, ctypes.c_void_p) for name in pointers.split()]
    fields += [(name, ctypes.c_int64) for name in integers.split()]
    fields += [(name, ctypes.c_double) for name in reals.split()]
    return fields


class Examples(ctypes.Structure):
    """The examples that a kernel reads: ``Problem`` in dense.cpp."""

    _fields_ = _fields("sizes x scale shift y", "layers plane")


class _Phase(ctypes.Structure):
    """A local phase: ``Phase`` in dense.cpp."""

    _fields_ = _fields(
        "rows offset count steps lr anchor shift start w moments buffer",
        "clients key shuffled width nesterov start_stride moments_stride",
        "clip decay momentum pull",
    )


class _Measurement(ctypes.Structure):
    """A measurement: ``Measurement`` in dense.cpp."""

    _fields_ = _fields("rows offset count weight w gradient loss hits", "clients own")


class DenseKernel(DenseOracle):
    """The compiled kernels for one model, and an oracle for steps that they do not support.

    Args:
        kernels: The loaded library.
        task: A task that ``expressible`` accepts.

    Attributes:
        most_clients: Largest number of clients that one call should train.
    """

    def __init__(self, kernels: ctypes.CDLL, task: Task) -> None:
        super().__init__(task)
        kind = "float" if task.dtype == torch.float32 else "double"
        self._descend: Callable[..., int] = getattr(kernels, f"descend_{kind}")
        self._measure: Callable[..., int] = getattr(kernels, f"measure_{kind}")
        self._sum: Callable[..., None] = getattr(kernels, f"sum_{kind}")
        self._sum.argtypes = [ctypes.c_int64] * 2 + [ctypes.c_void_p] * 3
        self._dtype = task.dtype
        self.most_clients = max(1, SHARE_BYTES // (task.size * task.dtype.itemsize))
        weights = task.layout.shapes[::2]  # weights and biases alternate
        inputs = weights[0][1]
        outputs = [shape[0] for shape in weights]
        self._sizes = np.array([inputs, *outputs], dtype=np.int64)

    def threads(self, examples: int, workers: int) -> int:
        """Return how many of ``workers`` threads are worth starting for a number of examples."""
        return 1 if examples * self.task.size <= _LITTLE else workers

    def reads(self, data: FederatedDataset) -> bool:
        """Return whether the kernels can read a data set.

        The data must be of the model's type, or bytes, with one label per example.
        """
        one_label = data.tokens is None and data.y.dim() == 1
        if not one_label or not data.x.is_contiguous():
            return False
        pixels = data.x.dtype == torch.uint8 and data.mean is not None
        return pixels or data.x.dtype == self._dtype

    @staticmethod
    def supports(step: Step) -> bool:
        """Return whether the kernels support a local step."""
        if not isinstance(step, Descent) or step.gradient is not None or step.opt.rule is None:
            return False
        return step.extra is None or isinstance(step.extra, ProximalTerm | GradientShift)

    def descend(
        self,
        data: FederatedDataset,
        work: LocalWork,
        ids: np.ndarray,
        tau: np.ndarray,
        order: int,
        step: Step,
        msg: State,
        local: State,
        info: ClientInfo,
    ) -> State:
        """Return the local variables [C, ...] after all local steps of C clients.

        Args:
            data: A data set that ``reads`` accepts.
            work: The local work.
            ids: Ids of the clients [C].
            tau: Number of local steps of each client [C].
            order: Key that determines the order of the examples.
            step: A step that ``supports`` accepts.
            msg: The broadcast.
            local: The local variables before the first step.
            info: Facts of the clients, leaves [C, 1].
        """
        assert isinstance(step, Descent) and step.opt.rule is not None
        rule = step.opt.rule
        train = data.train
        counts = train.counts[ids]
        rate = info.lr.double().flatten()
        if step.lr is not None:
            rate = torch.full_like(rate, step.lr)
        if step.scale is not None:
            rate = rate * local[step.scale].double().flatten()

        start = self._rows(local["w"])
        last = {"w": torch.empty(start.shape, dtype=self._dtype)}
        momentum: dict[str, Any] = {}
        if rule.momentum:
            first = self._rows(local["momentum"])
            last["momentum"] = torch.empty_like(last["w"])
            momentum = {
                "moments": first,
                "moments_stride": first.stride(0),
                "buffer": last["momentum"],
            }

        phase = _passed(
            _Phase,
            clients=len(ids),
            rows=train.index,
            offset=train.starts[ids],
            count=counts,
            key=order,
            shuffled=work.batch_size is not None,
            steps=tau.astype(np.int64),
            lr=rate,
            width=int(work.widths(counts).max()),
            clip=math.inf if rule.clip_norm is None else rule.clip_norm,
            decay=rule.weight_decay,
            momentum=rule.momentum,
            nesterov=rule.nesterov,
            start=start,
            start_stride=start.stride(0),
            w=last["w"],
            **momentum,
            **self._extra(step.extra, msg, local),
        )
        _call(self._descend, self.examples(data.x, data.y, data), phase)
        return local | last

    def _extra(
        self,
        extra: Extra | None,
        msg: State,
        local: State,
    ) -> dict[str, Any]:
        """Return the arguments for a term that is added to the gradient."""
        arguments: dict[str, Any] = {}
        shift = None
        if isinstance(extra, GradientShift):
            shift = local[extra.name]
        elif isinstance(extra, ProximalTerm):
            arguments["pull"] = extra.strength
            arguments["anchor"] = msg["w"].to(self._dtype).contiguous()
            if extra.offset is not None:
                shift = extra.strength * local[extra.offset]
        if shift is not None:
            arguments["shift"] = shift.to(self._dtype).expand_as(local["w"]).contiguous()
        return arguments

    def weighted_sum(self, weights: Tensor, values: Tensor) -> Tensor:
        """Return Σ ω_k v_k [P] in float64, added in the order of the clients.

        The weights ω are [C]; the values v are [C, P], of the model's type.
        """
        weights = weights.double().contiguous()
        values = values.contiguous()
        total = torch.empty(values.shape[1], dtype=torch.float64)
        self._sum(
            *values.shape,
            weights.data_ptr(),
            values.data_ptr(),
            total.data_ptr(),
        )
        return total

    def measure(
        self,
        examples: Examples,
        index: Tensor,
        starts: np.ndarray,
        counts: np.ndarray,
        w: Tensor,
        *,
        weights: Tensor | None = None,
        hits: bool = False,
        gradients: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Return sums over C sets of examples, and gradients.

        Args:
            examples: Result of the method ``examples``.
            index: Rows of the examples.
            starts: Start of each set in ``index``, [C] int64.
            counts: Number of examples in each set, [C] int64.
            w: One model [P], or a model for each set [C, P].
            weights: Weights of the examples in the losses and gradients, in the order of ``index``.
                If None, losses are summed and gradients averaged.
            hits: Whether to count correct examples.
            gradients: Whether to compute gradients.

        Returns:
            The sums of the losses and, with ``hits``, of correct examples, [1, C] or [2, C]
            float64; and the gradients [C, P], or [0, P] without ``gradients``.
        """
        w = w.to(self._dtype).contiguous()
        sums = torch.zeros(1 + hits, len(counts), dtype=torch.float64)
        rows = w.new_empty(len(counts) if gradients else 0, w.shape[-1])
        measurement = _passed(
            _Measurement,
            clients=len(counts),
            rows=index,
            offset=starts,
            count=counts,
            weight=weights,
            w=w,
            own=w.dim() == 2,
            gradient=rows if gradients else None,
            loss=sums[0],
            hits=sums[1] if hits else None,
        )
        _call(self._measure, examples, measurement)
        return sums, rows

    grad = Oracle.grad  # through the compiled loss_and_grad, not by DenseOracle's operations

    def loss_and_grad(
        self,
        w: Tensor,
        batch: Batch,
        loss: Loss | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]; of another loss, if one is given."""
        if loss is not None:
            return super().loss_and_grad(w, batch, loss)
        clients, width = batch.y.shape
        x = batch.x.flatten(2).flatten(0, 1)
        x = x.to(self._dtype).contiguous()
        y = batch.y.flatten().contiguous()
        weights = batch.weight.to(self._dtype).flatten().contiguous()
        sums, gradients = self.measure(
            self.examples(x, y),
            torch.arange(len(x)),
            np.arange(clients) * width,
            np.full(clients, width),
            w,
            weights=weights,
            gradients=True,
        )
        return sums.T.to(w.dtype), gradients

    def examples(
        self,
        x: Tensor,
        y: Tensor,
        data: FederatedDataset | None = None,
    ) -> Examples:
        """Return the examples x [T, ...] with labels y [T], in the form that the kernels read.

        Bytes of ``data`` are accompanied by a factor and an offset per channel.
        """
        channels: dict[str, Any] = {}
        if x.dtype == torch.uint8 and data is not None:
            assert data.mean is not None and data.std is not None
            channels = {
                "scale": (1 / (255 * data.std)).to(data.dtype),
                "shift": (data.mean / data.std).to(data.dtype),
                "plane": x[0].numel() // len(data.mean),
            }
        return _passed(
            Examples,
            layers=len(self._sizes) - 1,
            sizes=self._sizes,
            x=x,
            y=y,
            **channels,
        )

    def _rows(self, tensor: Tensor) -> Tensor:
        """Return a tensor [C, P] of the model's type with contiguous rows, or one repeated row."""
        tensor = tensor.to(self._dtype)
        return tensor if tensor.stride(1) == 1 else tensor.contiguous()


def expressible(task: Task) -> bool:
    """Return whether the kernels support a task: a dense model in float32 or float64 on a CPU."""
    on_cpu = task.device.type == "cpu"
    known_type = task.dtype in (torch.float32, torch.float64) and not task.bf16
    return task.traits.dense and on_cpu and known_type


def _call(
    function: Callable[..., int],
    examples: Examples,
    request: ctypes.Structure,
) -> None:
    """Call a kernel; other Python threads can run meanwhile.

    Raises:
        MemoryError: If there is no memory for its working copies.
    """
    if function(ctypes.byref(examples), ctypes.byref(request)):
        raise MemoryError("no memory for the working copies of a client's model")


def _passed(kind: type[S], **values: Tensor | np.ndarray | float | None) -> S:
    """Return the arguments of a kernel; omitted numbers are 0, and omitted addresses null.

    Tensors and arrays are passed by address, and are kept alive as long as the arguments.
    """
    passed = kind()
    for name, value in values.items():
        if isinstance(value, Tensor):
            value = value.data_ptr()
        elif isinstance(value, np.ndarray):
            value = value.ctypes.data
        setattr(passed, name, value)
    passed.kept = values
    return passed

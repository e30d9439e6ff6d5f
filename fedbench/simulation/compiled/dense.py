"""Dense models in compiled code: whole local phases, and losses and gradients on the clients' own examples."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Descent, GradientShift, ProximalTerm
from fedbench.core.types import Batch, ClientInfo, Extra, State, Step
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.oracles import DenseOracle
from fedbench.simulation.task import Task

S = TypeVar("S", bound=ctypes.Structure)

_INT, _REAL, _POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
_LITTLE = 2**23  # examples times parameters: two or three milliseconds, of which a second thread would save little
SHARE_BYTES = 2**24  # models that one call trains; a method makes further vectors of this size of them


class Examples(ctypes.Structure):
    """The examples that a kernel reads."""

    _fields_ = [
        ("layers", _INT), ("sizes", _POINTER), ("x", _POINTER), ("scale", _POINTER), ("shift", _POINTER),
        ("plane", _INT), ("y", _POINTER),
    ]  # fmt: skip


class _Phase(ctypes.Structure):
    _fields_ = [
        ("clients", _INT), ("rows", _POINTER), ("offset", _POINTER), ("count", _POINTER), ("key", ctypes.c_uint64),
        ("shuffled", _INT), ("steps", _POINTER), ("lr", _POINTER), ("width", _INT), ("clip", _REAL), ("decay", _REAL),
        ("momentum", _REAL), ("nesterov", _INT), ("pull", _REAL), ("anchor", _POINTER), ("shift", _POINTER),
        ("start", _POINTER), ("start_stride", _INT), ("w", _POINTER), ("moments", _POINTER),
        ("moments_stride", _INT), ("buffer", _POINTER),
    ]  # fmt: skip


class _Measurement(ctypes.Structure):
    _fields_ = [
        ("clients", _INT), ("rows", _POINTER), ("offset", _POINTER), ("count", _POINTER), ("share", _POINTER),
        ("weight", _POINTER), ("w", _POINTER), ("own", _INT), ("gradient", _POINTER), ("place", _POINTER),
        ("loss", _POINTER), ("hits", _POINTER),
    ]  # fmt: skip


class DenseKernel(DenseOracle):
    """The compiled kernels for one model, and an oracle by them for local steps that they do not know.

    Args:
        kernels: The loaded library.
        task: A task that ``expressible`` accepts.

    Attributes:
        most_clients: Number of clients that one call should train at most.
    """

    def __init__(self, kernels: ctypes.CDLL, task: Task) -> None:
        super().__init__(task)
        kind = "float" if task.dtype == torch.float32 else "double"
        self._descend: Callable[..., int] = getattr(kernels, f"descend_{kind}")
        self._measure: Callable[..., int] = getattr(kernels, f"measure_{kind}")
        self._sum: Callable[..., None] = getattr(kernels, f"sum_{kind}")
        self._dtype = task.dtype
        self.most_clients = max(1, SHARE_BYTES // (task.size * task.dtype.itemsize))
        shapes = task.layout.shapes[::2]  # weights and biases alternate
        self._sizes = np.array([shapes[0][1], *(shape[0] for shape in shapes)], dtype=np.int64)

    def threads(self, examples: int, workers: int) -> int:
        """Return how many of ``workers`` threads are worth their start for passes over a number of examples."""
        return 1 if examples * self.task.size <= _LITTLE else workers

    def reads(self, data: FederatedDataset) -> bool:
        """Return whether the kernels can read a data set: numbers of the model's type or bytes, a label per example."""
        numbers = data.x.dtype == self._dtype or (data.x.dtype == torch.uint8 and data.mean is not None)
        return numbers and data.tokens is None and data.y.dim() == 1 and data.x.is_contiguous()

    @staticmethod
    def supports(step: Step) -> bool:
        """Return whether a local step is of the family that the kernels know."""
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
            ids: The clients [C].
            tau: Their numbers of local steps [C].
            order: Key of the order of the examples.
            step: A step that ``supports`` accepts.
            msg: The broadcast.
            local: The local variables before the first step.
            info: Facts of the clients, leaves [C, 1].
        """
        assert isinstance(step, Descent) and step.opt.rule is not None
        rule, extra, train, counts = step.opt.rule, step.extra, data.train, data.train.counts[ids]
        start, moments = self._rows(local["w"]), self._rows(local["momentum"]) if rule.momentum else None
        changed = {"w": torch.empty(local["w"].shape, dtype=self._dtype)}
        if rule.momentum:
            changed["momentum"] = torch.empty_like(changed["w"])
        w = changed["w"]
        rate = info.lr.double().flatten() if step.lr is None else torch.full((len(w),), step.lr, dtype=torch.float64)
        if step.scale is not None:
            rate = rate * local[step.scale].double().flatten()
        phase = _passed(
            _Phase,
            clients=len(w),
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
            pull=extra.strength if isinstance(extra, ProximalTerm) else 0.0,
            anchor=msg["w"].to(self._dtype).contiguous() if isinstance(extra, ProximalTerm) else None,
            shift=self._constant(extra, local),
            start=start,
            start_stride=start.stride(0),
            w=w,
            moments=moments,
            moments_stride=0 if moments is None else moments.stride(0),
            buffer=changed.get("momentum"),
        )
        _call(self._descend, self.examples(data.x, data.y, data), phase)
        return {**local, **changed}

    def _constant(self, extra: Extra | None, local: State) -> Tensor | None:
        """Return the part of an added term that stays the same during the phase, [C, P]; None if there is none."""
        if isinstance(extra, GradientShift):
            part = local[extra.name]
        elif isinstance(extra, ProximalTerm) and extra.offset is not None:
            part = extra.strength * local[extra.offset]
        else:
            return None
        return part.to(self._dtype).expand_as(local["w"]).contiguous()

    def weighted_sum(self, weights: Tensor, values: Tensor) -> Tensor:
        """Return Σ ω_k v_k, ω [C] and v [C, P] of the model's type -> [P] float64, added in this order."""
        weights, values = weights.double().contiguous(), values.contiguous()
        total = torch.empty(values.shape[1], dtype=torch.float64)
        count, columns = (ctypes.c_int64(n) for n in values.shape)
        self._sum(count, columns, *(_POINTER(v.data_ptr()) for v in (weights, values, total)))
        return total

    def measure(
        self,
        examples: Examples,
        index: Tensor,
        starts: np.ndarray,
        counts: np.ndarray,
        w: Tensor,
        weights: Tensor | None = None,
        gradients: tuple[Tensor, np.ndarray] | None = None,
        hits: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return sums over C sets of examples.

        Args:
            examples: What ``examples`` returned.
            index: Rows of the examples.
            starts: [C] int64, where each set begins in ``index``.
            counts: [C] int64, its number of examples.
            w: One model [P], or a model for each set [C, P].
            weights: Weights of the examples, as ``index``, in the losses and gradients; None sums the losses, and takes
                the mean of the gradients.
            gradients: A contiguous tensor [M, P] and its rows [C] int64 that the gradients are written to; None for no
                gradients.
            hits: Whether to count correct examples.

        Returns:
            The sum of the losses [C] float64; the number of correct examples [C] float64, or None.
        """
        w = w.to(self._dtype).contiguous()
        loss = torch.zeros(len(counts), dtype=torch.float64)
        correct = torch.zeros(len(counts), dtype=torch.float64) if hits else None
        gradient, place = gradients or (None, None)
        asked = _passed(
            _Measurement,
            clients=len(counts),
            rows=index,
            offset=starts,
            count=counts,
            share=1 / np.maximum(counts, 1),  # not read if there are weights
            weight=weights,
            w=w,
            own=w.dim() == 2,
            gradient=gradient,
            place=place,
            loss=loss,
            hits=correct,
        )
        _call(self._measure, examples, asked)
        return loss, correct

    def grad(self, w: Tensor, batch: Batch) -> Tensor:
        """Return the gradients [A, P], of A clients' models w [A, P] on a batch."""
        return self.loss_and_grad(w, batch)[1]

    def loss_and_grad(self, w: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]."""
        x, y = batch.x.flatten(2).flatten(0, 1).to(self._dtype).contiguous(), batch.y.flatten().contiguous()
        weight = batch.weight.to(self._dtype).flatten().contiguous()
        place, each = np.arange(len(w), dtype=np.int64), batch.y.shape[1]
        starts, counts, gradient = place * each, np.full_like(place, each), torch.empty(w.shape, dtype=self._dtype)
        rows = torch.arange(len(y))
        loss, _ = self.measure(self.examples(x, y), rows, starts, counts, w, weight, (gradient, place))
        return loss.to(w.dtype).unsqueeze(1), gradient

    def examples(self, x: Tensor, y: Tensor, data: FederatedDataset | None = None) -> Examples:
        """Return the examples x [T, ...] with labels y [T]; bytes of ``data`` with factor and offset per channel."""
        scale, shift, plane = None, None, 1
        if x.dtype == torch.uint8 and data is not None:
            assert data.mean is not None and data.std is not None
            scale, shift = (1 / (255 * data.std)).to(data.dtype), (data.mean / data.std).to(data.dtype)
            plane = x[0].numel() // len(scale)
        layers = len(self._sizes) - 1
        return _passed(Examples, layers=layers, sizes=self._sizes, x=x, scale=scale, shift=shift, plane=plane, y=y)

    def _rows(self, tensor: Tensor) -> Tensor:
        """Return a tensor [C, P] of the model's type whose rows are contiguous, or all the same one."""
        tensor = tensor.to(self._dtype)
        return tensor if tensor.stride(1) == 1 else tensor.contiguous()


def expressible(task: Task) -> bool:
    """Return whether the kernels can carry out a task: a dense model in float32 or float64 on a CPU."""
    on_cpu = task.device.type == "cpu" and not task.bf16
    return task.traits.dense and on_cpu and task.dtype in (torch.float32, torch.float64)


def _call(function: Callable[..., int], examples: Examples, request: ctypes.Structure) -> None:
    """Call a kernel, which lets other threads of Python run meanwhile.

    Raises:
        MemoryError: If there is no memory for its working copies.
    """
    if function(ctypes.byref(examples), ctypes.byref(request)):
        raise MemoryError("no memory for the working copies of a client's model")


def _passed(kind: type[S], **values: Tensor | np.ndarray | float | None) -> S:
    """Return arguments for a kernel; tensors and arrays are passed by address, and live as long as the arguments."""
    passed = kind()
    for name, value in values.items():
        if isinstance(value, Tensor):
            value = value.data_ptr()
        elif isinstance(value, np.ndarray):
            value = value.ctypes.data
        setattr(passed, name, value)
    passed.kept = values
    return passed

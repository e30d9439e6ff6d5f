"""Steps on a GPU as CUDA graphs: the same kernels on the same numbers, handed over at once instead of one by one.

A step of a small model is hundreds of kernels of a few microseconds, and the host takes longer to launch each of them;
docs/gpu.md has measurements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from fedbench.core.types import Batch, Descending, Oracle

_OFTEN = 2  # calls with the same shapes before they are captured
_MOST = 64  # graphs

Step: TypeAlias = Callable[..., Sequence[Tensor]]


class _Graph(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    outputs: list[Tensor]


class CapturedOracle:
    """An oracle that replays what it has done twice with tensors of the same shapes.

    All graphs read from and write to the same memory, so that they hold the tensors of the largest step once more. A
    step that cannot be captured, such as one of a model that looks at a number on the host, is carried out as before.

    Args:
        oracle: Computes losses and gradients on the GPU.
    """

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self._calls: Counter[Hashable] = Counter()
        self.forget()

    def forget(self) -> None:
        """Release the graphs and their memory."""
        self._graphs: dict[Hashable, _Graph | None] = {}
        self._memory: dict[Hashable, Tensor] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def grad(self, w: Tensor, batch: Batch) -> Tensor:
        """Return the gradients [A, P]."""
        return self._run("grad", lambda w, batch: [self.oracle.grad(w, batch)], w, batch)[0]

    def loss_and_grad(self, w: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]."""
        losses, grads = self._run("loss_and_grad", self.oracle.loss_and_grad, w, batch)
        return losses, grads

    def descend_(self, w: Tensor, batch: Batch, lr: Tensor) -> None:
        """Change w [A, P] into w - lr · ∇F_k(w; batch), in place; lr [A, 1]."""

        def step(w: Tensor, batch: Batch, lr: Tensor) -> Sequence[Tensor]:
            assert isinstance(self.oracle, Descending)
            self.oracle.descend_(w, batch, lr)
            return [w]

        (new,) = self._run("descend_", step, w, batch, lr)
        if new is not w:
            w.copy_(new)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes]; they are of large blocks."""
        return self.oracle.logits(w, x)

    def _run(self, name: str, step: Step, w: Tensor, batch: Batch, *more: Tensor) -> Sequence[Tensor]:
        """Return what a step returns, replayed if it has been captured."""
        given = [v for v in (w, *batch, *more) if v is not None]
        what = (name, *((v.shape, v.dtype) for v in given))
        known = self._graphs.get(what)
        if known is not None:
            torch._foreach_copy_(known.inputs, given)
            known.graph.replay()
            return [v.clone() for v in known.outputs]
        self._calls[what] += 1
        found = step(w, batch, *more)
        if self._calls[what] > _OFTEN and what not in self._graphs and len(self._graphs) < _MOST:
            inputs, outputs = self._places("in", given), self._places("out", found)  # may forget graphs of smaller ones
            self._graphs[what] = self._captured(step, inputs, outputs, batch.key is None)
        return found

    def _places(self, kind: str, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the memory for tensors that all graphs share."""
        places = []
        for k, v in enumerate(tensors):
            memory = self._memory.get((kind, k, v.dtype))
            if memory is None or len(memory) < v.numel():
                self._graphs.clear()
                memory = self._memory[kind, k, v.dtype] = v.new_empty(v.numel())
            places.append(memory[: v.numel()].view(v.shape))
        return places

    def _captured(self, step: Step, inputs: list[Tensor], outputs: list[Tensor], plain: bool) -> _Graph | None:
        """Return the graph of a step, or None if it cannot be captured."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        w, *rest = inputs
        batch, more = (rest[:3], rest[3:]) if plain else (rest[:4], rest[4:])
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                for place, v in zip(outputs, step(w, Batch(*batch), *more), strict=True):
                    place.copy_(v)
        except RuntimeError:  # the step waits for the GPU, or there is no memory
            torch.cuda.set_stream(stream)  # torch stays on the stream of the capture
            return None
        return _Graph(graph, inputs, outputs)

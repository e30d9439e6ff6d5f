"""Steps on a GPU, captured as CUDA graphs.

The same kernels work on the same numbers; they are launched together instead of one by one.

A step of a small model consists of hundreds of kernels of a few microseconds each, and the host
takes longer than that to launch one; docs/gpu.md contains measurements.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedbench.core.types import Batch, Loss, Oracle, OracleWrapper

_OFTEN = 2  # calls with the same shapes before a capture; they load libraries
_MOST = 64  # maximum number of graphs; a bound, not a measured optimum
_ROW = 64  # values in a multiple of 256 bytes, or of 512 in float64

Step = Callable[..., Sequence[Tensor]]


class Graph(NamedTuple):
    """A captured step: its inputs, its outputs, and a function that carries it out."""

    replay: Callable[[], None]
    inputs: list[Tensor]
    outputs: list[Tensor]


class CapturedOracle(OracleWrapper):
    """An oracle that captures repeated steps with the same shapes and replays them.

    Every call reads its tensors from the same memory, sized for the largest step, so that results
    are bit-identical whether the step is captured or not. After a step that cannot be captured, for
    example because the model reads a number on the host, no more steps are captured. Steps on
    another loss are not captured, because the loss may read tensors that are not their arguments.

    Args:
        oracle: Oracle that computes losses and gradients on the GPU.
        aligned: Whether the rows of matrices begin at multiples of 256 bytes, because libraries
            choose faster kernels for aligned memory.
    """

    def __init__(self, oracle: Oracle, aligned: bool = False) -> None:
        self.oracle = oracle
        self.most = _MOST
        self._row = _ROW if aligned else 1
        self._calls: Counter[Hashable] = Counter()
        self._pool: dict[str, Any] = {}
        self.forget()

    def forget(self) -> None:
        """Release the graphs and their memory."""
        self.graphs: dict[Hashable, Graph] = {}
        self._memory: dict[Hashable, Tensor] = {}

    def grad(self, w: Tensor, batch: Batch) -> Tensor:
        """Return the gradients [A, P]."""

        def step(w: Tensor, batch: Batch) -> Sequence[Tensor]:
            return [self.oracle.grad(w, batch)]

        return self._run("grad", step, w, batch)[0]

    def loss_and_grad(
        self,
        w: Tensor,
        batch: Batch,
        loss: Loss | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]; of another loss, if one is given."""
        if loss is not None:
            return self.oracle.loss_and_grad(w, batch, loss)
        losses, grads = self._run("loss_and_grad", self.oracle.loss_and_grad, w, batch)
        return losses, grads

    def descend_(
        self,
        w: Tensor,
        batch: Batch,
        lr: Tensor,
    ) -> None:
        """Replace w [A, P] with w - lr · ∇F_k(w; batch), in place; lr is [A, 1]."""

        def step(
            w: Tensor,
            batch: Batch,
            lr: Tensor,
        ) -> Sequence[Tensor]:
            self.oracle.descend_(w, batch, lr)
            return [w]

        results = self._run("descend_", step, w, batch, lr)
        w.copy_(results[0])

    def _run(
        self,
        name: str,
        step: Step,
        w: Tensor,
        batch: Batch,
        *more: Tensor,
    ) -> Sequence[Tensor]:
        """Return the results of a step, which is replayed if it has been captured.

        A result that is the step's first argument stays in the shared memory.
        """
        arguments = [w, *batch[:4], *more]  # all fields that are tensors
        tensors = [v for v in arguments if v is not None]
        shapes = [(v.shape, v.dtype) for v in tensors]
        signature = (name, *shapes, batch.training)
        graph = self.graphs.get(signature)
        if graph is not None:
            torch._foreach_copy_(graph.inputs, tensors)
            graph.replay()
            return [v if v is graph.inputs[0] else v.clone() for v in graph.outputs]

        inputs = [self._place(k, v) for k, v in enumerate(tensors)]
        torch._foreach_copy_(inputs, tensors)
        end = len(inputs) - len(more)
        placed = Batch._make((*inputs[1:end], *batch[end - 1 :]))

        def run() -> Sequence[Tensor]:
            return step(inputs[0], placed, *inputs[end:])

        results = run()
        self._calls[signature] += 1
        if len(self.graphs) < self.most and self._calls[signature] > _OFTEN:
            outputs = self._outputs(results, inputs[0])
            replay = self._captured(run, outputs)
            if replay is None:
                self.most = 0
                self.forget()
            else:
                self.graphs[signature] = Graph(replay, inputs, outputs)
        return results

    def _outputs(
        self,
        results: Sequence[Tensor],
        first: Tensor,
    ) -> list[Tensor]:
        """Return shared memory for results; a result that is the first argument stays in place."""
        outputs = []
        for k, v in enumerate(results):
            outputs.append(v if v is first else self._place(f"out {k}", v))
        return outputs

    def _place(self, name: int | str, v: Tensor) -> Tensor:
        """Return shared memory in the shape of a tensor; if it must grow, drop the graphs."""
        place = name, v.dtype
        width = v.shape[-1]
        if v.dim() == 2:
            width = -(-width // self._row) * self._row
        size = v.numel() // v.shape[-1] * width
        memory = self._memory.get(place)
        if memory is None or len(memory) < size:
            if memory is not None:
                self.graphs.clear()
            memory = v.new_empty(size)
            self._memory[place] = memory
        rows = memory[:size].view(*v.shape[:-1], width)
        return rows[..., : v.shape[-1]]

    def _captured(
        self,
        run: Callable[[], Sequence[Tensor]],
        outputs: list[Tensor],
    ) -> Callable[[], None] | None:
        """Return a function that repeats ``run`` and writes ``outputs``.

        Return None if ``run`` waits for the GPU or runs out of memory.
        """
        # a separate pool and stream, because libraries allocate memory per stream
        if not self.graphs:
            self._pool = {
                "pool": torch.cuda.graph_pool_handle(),
                "stream": torch.cuda.Stream(),
            }

        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream()
        try:
            with torch.cuda.graph(graph, **self._pool):
                write(run(), outputs)
        except RuntimeError:
            torch.cuda.set_stream(stream)  # torch would stay on the stream of the capture
            return None
        return graph.replay


def write(tensors: Sequence[Tensor], places: list[Tensor]) -> None:
    """Copy tensors to their places, unless they are already there."""
    for place, v in zip(places, tensors, strict=True):
        if place is not v:
            place.copy_(v)

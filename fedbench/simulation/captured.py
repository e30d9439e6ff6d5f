"""Steps on a GPU as CUDA graphs.

The same kernels work on the same numbers; they are launched together instead of one by one.

A step of a small model is hundreds of kernels of a few microseconds, and the host takes longer to
launch each of them; docs/gpu.md has measurements.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedbench.core.types import Batch, Oracle

_OFTEN = 2  # calls with the same shapes before they are captured, in which libraries are loaded
_MOST = 64  # graphs; a bound, not a measurement

Step = Callable[..., Sequence[Tensor]]


class Graph(NamedTuple):
    """A captured step: what it reads, what it writes, and a function that carries it out."""

    replay: Callable[[], None]
    inputs: list[Tensor]
    outputs: list[Tensor]


class CapturedOracle(Oracle):
    """An oracle that replays what it has done twice with tensors of the same shapes.

    Every call reads its tensors from the same memory, which is that of the largest step, so that no
    bit depends on whether it is captured. After a step that cannot be captured, such as one of a
    model that looks at a number on the host, none is any more.

    Args:
        oracle: Computes losses and gradients on the GPU.
    """

    def __init__(self, oracle: Oracle) -> None:
        self.oracle, self.most = oracle, _MOST
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
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]."""
        losses, grads = self._run("loss_and_grad", self.oracle.loss_and_grad, w, batch)
        return losses, grads

    def descend_(
        self,
        w: Tensor,
        batch: Batch,
        lr: Tensor,
    ) -> None:
        """Change w [A, P] into w - lr · ∇F_k(w; batch), in place; lr [A, 1]."""

        def step(
            w: Tensor,
            batch: Batch,
            lr: Tensor,
        ) -> Sequence[Tensor]:
            self.oracle.descend_(w, batch, lr)
            return [w]

        results = self._run("descend_", step, w, batch, lr)
        w.copy_(results[0])

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes]; they are of large blocks."""
        return self.oracle.logits(w, x)

    def _run(
        self,
        name: str,
        step: Step,
        w: Tensor,
        batch: Batch,
        *more: Tensor,
    ) -> Sequence[Tensor]:
        """Return the results of a step, replayed if it is captured.

        A result that is the step's first argument stays in the shared memory.
        """
        arguments = [w, *batch[:-1], *more]  # all but the number of the step
        tensors = [v for v in arguments if v is not None]
        signature = (name, *((v.shape, v.dtype) for v in tensors))
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
        """Return shared memory for results; a result that is the first argument has its place."""
        outputs = []
        for k, v in enumerate(results):
            outputs.append(v if v is first else self._place(f"out {k}", v))
        return outputs

    def _place(self, name: int | str, v: Tensor) -> Tensor:
        """Return shared memory in the shape of a tensor; where it grows, graphs that use it go."""
        place = name, v.dtype
        size = v.numel()
        memory = self._memory.get(place)
        if memory is None or len(memory) < size:
            if memory is not None:
                self.graphs.clear()
            memory = v.new_empty(size)
            self._memory[place] = memory
        return memory[:size].view(v.shape)

    def _captured(
        self,
        run: Callable[[], Sequence[Tensor]],
        outputs: list[Tensor],
    ) -> Callable[[], None] | None:
        """Return a function that runs again and writes ``outputs``.

        It is None if a run waits for the GPU or lacks memory.
        """
        # a pool and a stream of their own, since libraries have memory for each stream
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
            torch.cuda.set_stream(stream)  # torch stays on the stream of the capture
            return None
        return graph.replay


def write(tensors: Sequence[Tensor], places: list[Tensor]) -> None:
    """Copy tensors to their places, unless they are there."""
    for place, v in zip(places, tensors, strict=True):
        if place is not v:
            place.copy_(v)

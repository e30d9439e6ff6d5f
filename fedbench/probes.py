"""Measurements of one shared model over clients' own examples: never padded to the largest client."""

from __future__ import annotations

from math import prod

import numpy as np
import torch
from torch import Tensor

from fedbench.data.federated import FederatedDataset, Rows
from fedbench.engine import Engine, chunks
from fedbench.task import Task, example_losses
from fedbench.types import Batch

_BLOCK_VALUES = 2**19  # values of the features in one block: what follows from them should stay in the cache
_MOST_ROWS = 2048  # examples of a client in one gradient; more are summed block by block


@torch.no_grad()
def client_sums(
    task: Task, data: FederatedDataset, rows: Rows, ids: np.ndarray, w: Tensor, engine: Engine, hits: bool = False
) -> list[Tensor]:
    """Return per client the sum of its example losses, and with ``hits`` also its right answers, [C] float64 each.

    One flat pass of w [P] over the clients' examples, whatever their sizes; the sums are in float64.
    """
    index = rows.of_clients(ids)
    size = max(64, _BLOCK_VALUES // max(1, prod(data.shape)))

    @torch.no_grad()
    def block(part: Tensor) -> list[Tensor]:
        logits, y = task.predict(w, data.features(part)), data.labels(part)
        return [example_losses(logits, y), *([logits.max(-1).indices == y] if hits else [])]

    lengths = torch.from_numpy(rows.counts[ids]).to(index.device)
    blocks = engine.map(block, index.split(size))  # an empty index has one empty block
    return [
        torch.segment_reduce(torch.cat(values).double(), "sum", lengths=lengths, initial=0, unsafe=True)
        for values in zip(*blocks, strict=True)
    ]


def mean_losses(task: Task, data: FederatedDataset, ids: np.ndarray, w: Tensor, engine: Engine) -> Tensor:
    """Return F_k(w) over all training examples of each client, [C] float64."""
    (total,) = client_sums(task, data, data.train, ids, w, engine)
    return total / torch.from_numpy(data.train.counts[ids]).to(total)


class GradientPlan:
    """Which examples make up ∇F_k(w) of each client of a cohort: computed once, measured in every round.

    Every client's training examples are cut into blocks of at most ``_MOST_ROWS``; blocks of similar size go through
    the oracle together.

    Args:
        data: the data set.
        ids: [C] the clients.
        engine: how it is carried out.
    """

    def __init__(self, data: FederatedDataset, ids: np.ndarray, engine: Engine) -> None:
        self.data, self.engine, self.count = data, engine, len(ids)
        self._groups: list[tuple[Tensor, Tensor, Tensor]] = []  # (positions in ids, rows, weights)
        n, first = data.train.counts[ids], data.train.offsets[ids]
        block = _BLOCK_VALUES // max(1, prod(data.shape))  # examples
        rows = min(_MOST_ROWS, max(64, block))
        for start in range(0, int(n.max()), rows):  # the next block of every client that has one
            have = np.flatnonzero(n > start)
            length = np.minimum(n[have] - start, rows)
            most = max(1, min(engine.cohort_size, 8 * block // int(length.max())))
            for group in chunks(have, np.ones_like(length), length, most):
                who, size = have[group], length[group][:, None]
                column = np.arange(size.max())
                place = (first[who] + start)[:, None] + np.minimum(column, size - 1)
                weight = (column < size) / n[who][:, None]
                device = data.x.device
                self._groups.append(
                    (
                        torch.from_numpy(who).to(device),
                        data.train.index[torch.from_numpy(place).to(device)],
                        torch.from_numpy(weight).to(device, data.dtype),
                    )
                )

    @torch.no_grad()
    def measure(self, w: Tensor) -> Tensor:
        """Return ∇F_k(w) over all training examples of each client, [C, P]."""

        @torch.no_grad()
        def part(group: tuple[Tensor, Tensor, Tensor]) -> Tensor:
            who, rows, weight = group
            batch = Batch(self.data.features(rows), self.data.labels(rows), weight)
            return self.engine.oracle.grad(w.expand(len(who), -1), batch)

        total = w.new_zeros(self.count, len(w))
        for (who, _, _), g in zip(self._groups, self.engine.map(part, self._groups), strict=True):
            total[who] += g  # no client is in a group twice
        return total

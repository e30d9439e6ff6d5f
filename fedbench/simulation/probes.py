"""Measurements over clients' own examples, of one shared model or of each client's own: never padded to the largest."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.core.types import Batch, Examined
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.simulation.engine import Engine, chunks
from fedbench.simulation.task import Task, example_losses, over_tokens

_BLOCK_VALUES = 2**19  # values of the features in one block: what follows from them should stay in the cache
_FEW_ROWS, _MOST_VALUES = 64, 2**25  # a block has this many examples even so, unless they take more values than that
_MOST_ROWS = 2048  # examples of a client in one gradient; more are summed block by block


@torch.no_grad()
def client_sums(
    task: Task, data: FederatedDataset, rows: Rows, ids: np.ndarray, w: Tensor, engine: Engine, hits: bool = False
) -> list[Tensor]:
    """Return per client the sum of its example losses, and with ``hits`` also its right answers, [C] float64 each.

    One flat pass of w [P] over the clients' examples, whatever their sizes; the sums are in float64.
    """
    index = rows.of_clients(ids)

    @torch.no_grad()
    def block(part: Tensor) -> list[Tensor]:
        return _per_example(task.predict(w, data.features(part)), data.labels(part), hits, 1)

    lengths = torch.from_numpy(rows.counts[ids]).to(index.device)
    blocks = engine.map(block, index.split(_block(data)))  # an empty index has one empty block
    return [
        torch.segment_reduce(torch.cat(values).double(), "sum", lengths=lengths, initial=0, unsafe=True)
        for values in zip(*blocks, strict=True)
    ]


def mean_losses(task: Task, data: FederatedDataset, ids: np.ndarray, w: Tensor, engine: Engine) -> Tensor:
    """Return F_k(w) over all training examples of each client, [C] float64."""
    (total,) = client_sums(task, data, data.train, ids, w, engine)
    return total / torch.from_numpy(data.train.counts[ids]).to(total)


class Inspection:
    """A ``Lab``: the outputs of a model on clients' training examples.

    Args:
        task: the model.
        data: the data set.
        engine: how it is carried out.
    """

    def __init__(self, task: Task, data: FederatedDataset, engine: Engine) -> None:
        self.task, self.data, self.engine = task, data, engine

    @torch.no_grad()
    def examine(self, w: Tensor, ids: np.ndarray, y: Tensor) -> Examined:
        """Return the logits of the model w [P] on the clients' training examples."""

        @torch.no_grad()
        def block(part: Tensor) -> Tensor:
            return self.task.predict(w, self.data.features(part))

        rows = self.data.train.of_clients(ids)
        logits = torch.cat(self.engine.map(block, rows.split(_block(self.data))))
        return Examined(rows, self.data.train.counts[ids], logits, y.index_select(0, rows))


class _Group(NamedTuple):
    """Blocks of similar size of A clients."""

    who: Tensor  # [A] positions in the list of clients
    rows: Tensor  # [A, n] rows of the data set
    weight: Tensor  # [A, n] 1 / (all examples of the client) on real examples, 0 on padding


def _block(data: FederatedDataset) -> int:
    """Return how many examples make a block."""
    values = max(1, prod(data.shape), data.work_values)
    return max(1, _BLOCK_VALUES // values, min(_FEW_ROWS, _MOST_VALUES // values))


def _groups(data: FederatedDataset, rows: Rows, ids: np.ndarray, most_clients: int) -> list[_Group]:
    """Cut every client's examples into blocks of at most ``_MOST_ROWS`` and put blocks of similar size together."""
    groups: list[_Group] = []
    n, first = rows.counts[ids], rows.starts[ids]
    block, device = _block(data), data.x.device
    size = min(_MOST_ROWS, block)
    for start in range(0, int(n.max(initial=0)), size):  # the next block of every client that has one
        have = np.flatnonzero(n > start)
        length = np.minimum(n[have] - start, size)
        most = max(1, min(most_clients, 8 * block // int(length.max())))
        for group in chunks(have, np.ones_like(length), length, most):
            who, count = have[group], length[group][:, None]
            column = np.arange(count.max())
            place = (first[who] + start)[:, None] + np.minimum(column, count - 1)
            weight = (column < count) / n[who][:, None]
            groups.append(
                _Group(
                    torch.from_numpy(who).to(device),
                    rows.index[torch.from_numpy(place).to(device)],
                    torch.from_numpy(weight).to(device, data.dtype),
                )
            )
    return groups


class GradientPlan:
    """Which examples make up ∇F_k(w) of each client of a cohort: computed once, measured in every round.

    Args:
        data: the data set.
        ids: [C] the clients.
        engine: how it is carried out.
    """

    def __init__(self, data: FederatedDataset, ids: np.ndarray, engine: Engine) -> None:
        self.data, self.engine, self.count = data, engine, len(ids)
        self._groups = _groups(data, data.train, ids, engine.cohort_size)

    @torch.no_grad()
    def measure(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return F_k(w) [C] float64 and ∇F_k(w) [C, P] over all training examples of each client."""

        @torch.no_grad()
        def part(group: _Group) -> tuple[Tensor, Tensor]:
            batch = Batch(self.data.features(group.rows), self.data.labels(group.rows), group.weight)
            return self.engine.oracle.loss_and_grad(w.expand(len(group.who), -1), batch)

        loss = torch.zeros(self.count, dtype=torch.float64, device=w.device)
        grad = w.new_zeros(self.count, len(w))
        for group, (f, g) in zip(self._groups, self.engine.map(part, self._groups), strict=True):
            loss[group.who] += f.squeeze(1).double()  # no client is in a group twice
            grad[group.who] += g
        return loss, grad


class ModelPlan:
    """Which examples each of C clients' own models is measured on: computed once, measured any number of times.

    Args:
        data: the data set.
        rows: its training or test rows.
        ids: [C] the clients.
        engine: how it is carried out.
    """

    def __init__(self, data: FederatedDataset, rows: Rows, ids: np.ndarray, engine: Engine) -> None:
        self.data, self.engine, self.count = data, engine, len(ids)
        self._groups = _groups(data, rows, ids, engine.cohort_size)

    @torch.no_grad()
    def sums(self, w: Tensor, hits: bool = False, threads: bool = True) -> list[Tensor]:
        """Return per client the sum of its example losses, and with ``hits`` its right answers, [C] float64 each.

        Args:
            w: the clients' models [C, P], on any device.
            hits: count right answers too.
            threads: spread over the engine's worker threads.
        """
        device = self.data.x.device

        @torch.no_grad()
        def part(group: _Group) -> list[Tensor]:
            mine = w.index_select(0, group.who.to(w.device)).to(device)
            logits = self.engine.oracle.logits(mine, self.data.features(group.rows))
            values = _per_example(logits, self.data.labels(group.rows), hits, 2)
            return [(v.double() * (group.weight > 0)).sum(1) for v in values]

        done: Sequence[list[Tensor]] = (
            self.engine.map(part, self._groups) if threads else [part(group) for group in self._groups]
        )
        totals = [torch.zeros(self.count, dtype=torch.float64, device=device) for _ in range(1 + hits)]
        for group, values in zip(self._groups, done, strict=True):
            for total, v in zip(totals, values, strict=True):
                total[group.who] += v  # no client is in a group twice
        return totals


def _per_example(logits: Tensor, y: Tensor, hits: bool, lead: int) -> list[Tensor]:
    right = [logits.max(-1).indices == y] if hits else []
    return [example_losses(logits, y, lead), *(r if r.dim() == lead else over_tokens(r.double(), lead) for r in right)]

"""Measurements of one shared model over clients' own examples: never padded to the largest client."""

from __future__ import annotations

from math import prod

import numpy as np
import torch
from torch import Tensor

from fedbench.algorithm import Algorithm
from fedbench.cohort import Engine, chunks
from fedbench.data.federated import FederatedDataset, Rows
from fedbench.task import Task, example_losses
from fedbench.types import Batch, State

_PASS_VALUES = 2**22  # values of the features in one block of a flat pass
_MOST_ROWS = 2048  # examples of a client in one gradient; more are summed block by block


@torch.no_grad()
def losses_and_hits(
    task: Task, data: FederatedDataset, rows: Rows, ids: np.ndarray, w: Tensor, engine: Engine
) -> tuple[Tensor, Tensor]:
    """Return per client the sum of example losses and the number of right answers of w [P], both [C] float64.

    One flat pass over the clients' examples; the sums over each client's own are in float64.
    """
    index = rows.of_clients(ids)
    size = max(64, _PASS_VALUES // max(1, prod(data.shape)))

    @torch.no_grad()
    def block(part: Tensor) -> tuple[Tensor, Tensor]:
        logits, y = task.predict(w, data.features(part)), data.labels(part)
        return example_losses(logits, y).double(), (logits.argmax(-1) == y).double()

    done = engine.map(block, index.split(size)) if len(index) else []
    lengths = torch.from_numpy(rows.counts[ids]).to(index.device)
    empty = w.new_zeros(0, dtype=torch.float64)
    sums = [
        torch.segment_reduce(torch.cat([empty, *values]), "sum", lengths=lengths, initial=0, unsafe=True)
        for values in (list(zip(*done, strict=True)) or [(), ()])
    ]
    return sums[0], sums[1]


def mean_losses(task: Task, data: FederatedDataset, ids: np.ndarray, w: Tensor, engine: Engine) -> Tensor:
    """Return F_k(w) over all training examples of each client, [C] float64."""
    total, _ = losses_and_hits(task, data, data.train, ids, w, engine)
    return total / torch.from_numpy(data.train.counts[ids]).to(total)


@torch.no_grad()
def mean_gradients(data: FederatedDataset, ids: np.ndarray, w: Tensor, engine: Engine) -> Tensor:
    """Return ∇F_k(w) over all training examples of each client, [C, P].

    Every client's examples are cut into blocks; blocks of similar size go through the oracle together.
    """
    n = data.train.counts[ids]
    first = data.train.offsets[ids]
    total = w.new_zeros(len(ids), len(w))
    for number in range(-(-int(n.max()) // _MOST_ROWS)):  # the number-th block of every client that has one
        start = number * _MOST_ROWS
        have = np.flatnonzero(n > start)
        length = np.minimum(n[have] - start, _MOST_ROWS)

        @torch.no_grad()
        def part(group: np.ndarray, start: int = start, have: np.ndarray = have, length: np.ndarray = length) -> Tensor:
            size, who = length[group], have[group]
            column = np.arange(size.max())
            place = (first[who] + start)[:, None] + np.minimum(column, size[:, None] - 1)
            rows = data.train.index[torch.from_numpy(place).to(w.device)]
            weight = (column < size[:, None]) / n[who][:, None]
            batch = Batch(data.features(rows), data.labels(rows), torch.from_numpy(weight).to(w))
            return engine.oracle.grad(w.expand(len(group), -1), batch)

        groups = chunks(have, np.ones_like(length), length, _group_size(data, engine, int(length.max())))
        for group, g in zip(groups, engine.map(part, groups), strict=True):
            total[torch.from_numpy(have[group]).to(w.device)] += g
    return total


def _group_size(data: FederatedDataset, engine: Engine, rows: int) -> int:
    return max(1, min(engine.cohort_size, _PASS_VALUES // (rows * max(1, prod(data.shape)))))


def probe(
    algo: Algorithm,
    task: Task,
    data: FederatedDataset,
    ids: np.ndarray,
    w: Tensor,
    engine: Engine,
    initial_losses: Tensor | None,
) -> State:
    """Return what ``algo.needs`` at the broadcast model w, leaves [C] (a gradient [C, P])."""
    found: State = {}
    if "loss" in algo.needs:
        found["loss"] = mean_losses(task, data, ids, w, engine)
    if "grad" in algo.needs:
        found["grad"] = mean_gradients(data, ids, w, engine)
    if "loss_init" in algo.needs and initial_losses is not None:
        found["loss_init"] = initial_losses[torch.from_numpy(ids).to(w.device)]
    return found

"""The local work of a whole chunk of clients at once: the examples of each client at each step, and the steps.

The order of a client's examples in an epoch is the order of hashes of (seed, round, epoch, row): a pure function, the
same for every algorithm, engine mode, cohort size and device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Descent
from fedbench.core.options import CONSTANT, Schedule
from fedbench.core.randomness import Purpose, fold_in, integers, key
from fedbench.core.types import Batch, ClientInfo, Descending, Oracle, State, upload
from fedbench.data.augmentation import Augmentation
from fedbench.data.dataset import FederatedDataset

_SIMILAR, _SLACK = 1.25, 8  # a chunk's batches differ in size by at most this factor, plus this many examples
_BLOCK_BYTES = 32 * 2**20  # features gathered at once; more takes memory and is not faster


@dataclass(frozen=True)
class LocalWork:
    """The local work of a client in a round.

    Attributes:
        lr: η_l, the learning rate of the local solver, in the first round.
        batch_size: Number of examples of a batch; None is one batch of all examples of a client, in stored order.
        epochs: Range (lo, hi) from which the number of epochs is drawn per client and round; lo = hi is a fixed number.
        steps: Fixed number of steps instead of epochs, or None.
        random: Whether training steps draw random numbers (dropout).
        augment: Augmentation of training images, or None.
        schedule: How the learning rate changes from round to round.
    """

    lr: float
    batch_size: int | None
    epochs: tuple[int, int] = (1, 1)
    steps: int | None = None
    random: bool = False
    augment: Augmentation | None = None
    schedule: Schedule = CONSTANT

    def rate(self, round: int) -> float:
        """Return the learning rate of the local solver in the round after ``round`` rounds."""
        return self.lr * self.schedule.factor(round)

    def widths(self, n: np.ndarray) -> np.ndarray:
        """Return the size of each client's largest batch."""
        return n if self.batch_size is None else np.minimum(n, self.batch_size)

    def tau(self, ids: np.ndarray, n: np.ndarray, seed: int, round: int, epochs: int | None = None) -> np.ndarray:
        """Return τ_k, the number of local steps of each client in this round; a short last batch of an epoch counts.

        Args:
            ids: The clients [C].
            n: Their numbers of training examples [C].
            seed: Random seed of the run.
            round: Rounds done before this one.
            epochs: Number of epochs that replaces ``self.epochs`` and ``self.steps``, or None.
        """
        if epochs is not None:
            return epochs * self.per_epoch(n)
        if self.steps is not None:
            return np.full(len(ids), self.steps, dtype=np.int64)
        low, high = self.epochs
        drawn = low if low == high else integers(key(seed, Purpose.EPOCHS, round), ids, low, high)
        steps: np.ndarray = drawn * self.per_epoch(n)
        return steps

    def per_epoch(self, n: np.ndarray) -> np.ndarray:
        """Return the number of batches in an epoch of each client."""
        batches: np.ndarray = -(-n // np.maximum(self.widths(n), 1))
        return batches


def chunks(ids: np.ndarray, tau: np.ndarray, widths: np.ndarray, size: int) -> list[np.ndarray]:
    """Cut a cohort into chunks of at most ``size`` clients that have similar work.

    Clients are ordered by falling steps, then by falling batch width, so that those that finish leave the batch of
    their chunk; a chunk ends early where padding to its widest batch would waste more than a quarter.

    Args:
        ids: The clients [C].
        tau: Their numbers of local steps [C].
        widths: Sizes of their largest batches [C].
        size: Maximum number of clients of a chunk.

    Returns:
        Positions in ``ids``, each exactly once.
    """
    order = np.lexsort((ids, -widths, -tau))
    sorted_widths = widths[order]
    runs = np.flatnonzero(np.diff(sorted_widths, prepend=-1))  # a loop over widths, not over clients
    cuts: list[int] = []
    low = high = 0
    for start, width in zip(runs.tolist(), sorted_widths[runs].tolist(), strict=True):
        low, high = min(low, width), max(high, width)
        if not cuts or high > _SIMILAR * low + _SLACK:
            cuts.append(start)
            low = high = width
    groups = np.split(order, cuts[1:])
    return [part for g in groups if len(g) for part in np.array_split(g, -(-len(g) // size))]


def balanced(cost: np.ndarray, parts: int, most: int | None = None) -> list[np.ndarray]:
    """Divide items among at most ``parts`` threads so that the sums of their costs are similar.

    The items in order of falling cost are cut where the sum of the costs passes the next equal share.

    Args:
        cost: Costs [C], whole numbers of 0 or more.
        parts: Number of parts.
        most: Largest number of items of a part, of which there are then more; None is no limit.

    Returns:
        The items of each part that has any, ascending; each item exactly once.
    """
    order = np.argsort(-cost, kind="stable")
    middle = np.cumsum(cost[order]) - cost[order] / 2
    part = (middle * parts / max(1, cost.sum())).astype(np.int64)
    part = part.clip(max=parts - 1)  # the last items may cost nothing
    members = (np.sort(order[part == k]) for k in range(parts))
    return [piece for m in members if len(m) for piece in np.array_split(m, -(-len(m) // (most or len(m))))]


class Plan:
    """The places of the examples of a chunk in its batches, which do not depend on the examples' order.

    A plan is computed once for each set of clients. Batches are packed step by step; the clients are ordered by falling
    τ, so that those still at work at step t are the first active[t].

    Args:
        ids: The clients [c], ordered by falling ``tau``.
        tau: Their numbers of local steps [c].
        data: The data set, whose training rows are used.
        work: The local work.
    """

    def __init__(self, ids: np.ndarray, tau: np.ndarray, data: FederatedDataset, work: LocalWork) -> None:
        n = data.train.counts[ids]
        width = int(work.widths(n).max())
        per_epoch = -(-n // width)
        epochs = -(-tau // per_epoch)  # begun
        client = np.repeat(np.arange(len(ids)), epochs)  # a segment is an epoch of a client
        epoch = np.arange(len(client)) - np.repeat(np.cumsum(epochs) - epochs, epochs)
        length = n[client]
        segment = np.repeat(np.arange(len(client)), length)
        within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)

        self.active = (len(ids) - np.searchsorted(tau[::-1], np.arange(tau.max()), side="right")).tolist()
        starts = np.concatenate([[0], np.cumsum(self.active)])
        owner = client[segment]
        number = within // width  # of the batch in its epoch
        step = epoch[segment] * per_epoch[owner] + number
        slot = (starts[np.minimum(step, len(self.active))] + owner) * width + within % width
        slot[step >= tau[owner]] = starts[-1] * width  # a spare place takes the examples cut off by a limit on steps

        device = data.x.device
        self.ids, self.data, self.shuffled = ids, data, work.batch_size is not None
        self.augment = work.augment
        self.shape = (int(starts[-1]), width)
        self.bits = 62 - len(client).bit_length()  # bits of a hash that fit into int64 with a segment's number
        # examples in the batch of a client that is alone, by step: its short batches are not padded
        self.lone = np.minimum(width, n[0] - np.arange(len(self.active)) % per_epoch[0] * width).tolist()
        first = np.cumsum(n) - n
        self.rows = data.train.of_clients(ids).index_select(0, upload(first[owner] + within, device))
        self.epoch, self.segment, self.slot = (upload(v, device) for v in (epoch[segment], segment, slot))
        self.weight = self._place(upload(1.0 / np.minimum(width, n[owner] - number * width), device, data.dtype))
        self.drawing: tuple[Tensor, Tensor] | None = None  # client and step of every batch, in the batches' order
        if work.random:
            client = np.concatenate([ids[:k] for k in self.active])
            step = np.repeat(np.arange(len(self.active)), self.active)
            self.drawing = upload(client, device), upload(step, device)

    def batches(self, seed: int, round: int, purpose: Purpose = Purpose.BATCHES) -> Iterator[tuple[Batch, int]]:
        """Yield (batch, number of clients still at work) for every step of the round."""
        order = self.rows if not self.shuffled else self._shuffle(key(seed, purpose, round))
        rows, views = self._place(order), None
        if self.augment is not None:
            views = self._place(fold_in(key(seed, Purpose.AUGMENT, purpose, round), self.epoch, order))
        keys = None if self.drawing is None else fold_in(key(seed, Purpose.MODEL, purpose, round), *self.drawing)
        example = prod(self.data.shape) * self.data.dtype.itemsize * self.shape[1]
        step = start = 0
        while step < len(self.active):  # gather the features of several steps at once
            stop, size = step, 0
            while stop < len(self.active) and (size == 0 or (size + self.active[stop]) * example <= _BLOCK_BYTES):
                size += self.active[stop]
                stop += 1
            block = rows[start : start + size]
            change = None
            if self.augment is not None and views is not None:
                change = partial(self.augment, key=views[start : start + size])
            x, y, weight = self.data.features(block, change), self.data.labels(block), self.weight[start : start + size]
            at = 0
            for t in range(step, stop):
                k = self.active[t]
                width = self.lone[t] if k == 1 else self.shape[1]
                drawn = None if keys is None else keys[start + at : start + at + k]
                part = slice(at, at + k)
                yield Batch(x[part, :width], y[part, :width], weight[part, :width], drawn, t), k
                at += k
            step, start = stop, start + size

    def _shuffle(self, base: int) -> Tensor:
        hashes = fold_in(base, self.epoch, self.rows)
        order = torch.argsort((self.segment << self.bits) | (hashes >> (63 - self.bits)), stable=True)
        return self.rows.index_select(0, order)

    def _place(self, values: Tensor) -> Tensor:
        packed = values.new_zeros(self.shape[0] * self.shape[1] + 1)
        return packed.scatter_(0, self.slot, values)[:-1].view(self.shape)


def train_chunk(
    algo: Algorithm,
    oracle: Oracle,
    msg: State,
    clients: State,
    info: ClientInfo,
    batches: Iterable[tuple[Batch, int]],
) -> tuple[State, State, State]:
    """Carry out the local phase of one chunk.

    Args:
        algo: The method.
        oracle: Computes losses and gradients.
        msg: The broadcast.
        clients: States of the chunk's clients, [C, ...].
        info: Facts of the chunk's clients, ordered by falling number of steps; leaves [C].
        batches: (batch, A) per step; the first A clients are still at work.

    Returns:
        The uploads, the new client states and the last local variables, [C, ...].
    """
    count, info = len(info.id), info.columns()
    local = started(algo, msg, clients, info)
    if isinstance(algo.step, Descent) and algo.step.plain and isinstance(oracle, Descending):
        last = _descend(algo.step, oracle, msg, local, info, batches)
        return *algo.finish(msg, clients, last, info), last
    finished: State = {}
    active, at_work = count, info
    for batch, k in batches:
        if k < active:
            _store_finished(finished, local, k, active, count)
            local = {name: v[:k] for name, v in local.items()}
            active, at_work = k, info.take(slice(k))
        local = algo.step(oracle, msg, local, batch, at_work)
    _store_finished(finished, local, 0, active, count)
    return *algo.finish(msg, clients, finished, info), finished


def started(algo: Algorithm, msg: State, clients: State, info: ClientInfo) -> State:
    """Return the local variables before the first step, [C, ...]."""
    started = algo.start(msg, clients, info)
    return {k: v.expand(len(info.id), *v.shape[-1:]) for k, v in started.items()}


def _descend(
    step: Descent,
    oracle: Descending,
    msg: State,
    local: State,
    info: ClientInfo,
    batches: Iterable[tuple[Batch, int]],
) -> State:
    """Take all plain steps of a chunk in place on a copy; equal to calling ``step``, up to rounding."""
    last = {**local, "w": local["w"].clone()}
    at_work, facts, addend = last, info, step.extra
    for batch, k in batches:
        if k < len(facts.id):
            at_work, facts = {name: v[:k] for name, v in last.items()}, info.take(slice(k))
        added = None if addend is None else addend(msg, at_work, facts)  # at the model before the step
        oracle.descend_(at_work["w"], batch, facts.lr)
        if added is not None:
            at_work["w"].addcmul_(facts.lr, added, value=-1)
    return last


def _store_finished(finished: State, local: State, start: int, stop: int, count: int) -> None:
    """Copy the clients start..stop out of ``local``; a view of it would keep the whole chunk's memory alive."""
    for name, v in local.items():
        if name not in finished:
            finished[name] = v.new_empty(count, *v.shape[1:])
        finished[name][start:stop] = v[start:]

"""Local work of a chunk of clients at once: the examples of each client at each step.

A client's examples in an epoch are ordered by hashes of (seed, round, epoch, row): a pure function,
the same for every algorithm, engine mode, cohort size and device.
"""

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
from fedbench.core.types import Batch, ClientInfo, Extra, Oracle, State, to_device
from fedbench.data.augmentation import Augmentation
from fedbench.data.dataset import FederatedDataset

# a chunk's batches differ in size by at most this factor, plus this many examples
_SIMILAR, _SLACK = 1.25, 8
_BLOCK_BYTES = 32 * 2**20  # features gathered at once; larger blocks only take more memory


@dataclass(frozen=True)
class LocalWork:
    """The local work of a client in a round.

    Attributes:
        lr: η_l, the learning rate of the local solver, in the first round.
        batch_size: Number of examples in a batch. If None, one batch of all examples of a client,
            in stored order.
        epochs: Range (lo, hi) from which the number of epochs is drawn per client and round; fixed
            if lo = hi.
        steps: Fixed number of steps instead of epochs, or None.
        random: Whether training steps draw random numbers (dropout).
        augment: Augmentation of training images, or None.
        schedule: Schedule of the learning rate over the rounds.
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

    def tau(
        self,
        ids: np.ndarray,
        n: np.ndarray,
        seed: int,
        round: int,
        epochs: int | None = None,
    ) -> np.ndarray:
        """Return τ_k, the number of local steps of each client in this round.

        A shorter last batch of an epoch counts as a step.

        Args:
            ids: Ids of the clients [C].
            n: Number of training examples of each client [C].
            seed: Random seed of the run.
            round: Rounds done before this one.
            epochs: Number of epochs that replaces ``self.epochs`` and ``self.steps``, or None.
        """
        if epochs is not None:
            return epochs * self.per_epoch(n)
        if self.steps is not None:
            return np.full(len(ids), self.steps, dtype=np.int64)
        low, high = self.epochs
        if low == high:
            return low * self.per_epoch(n)
        draw = key(seed, Purpose.EPOCHS, round)
        drawn: np.ndarray = integers(draw, ids, low, high) * self.per_epoch(n)
        return drawn

    def per_epoch(self, n: np.ndarray) -> np.ndarray:
        """Return the number of batches in an epoch of each client."""
        batches: np.ndarray = -(-n // np.maximum(self.widths(n), 1))
        return batches


def chunks(
    ids: np.ndarray,
    tau: np.ndarray,
    widths: np.ndarray,
    size: int,
) -> list[np.ndarray]:
    """Divide a cohort into chunks of at most ``size`` clients with similar work.

    Clients are in descending order of steps, then of batch width, so that clients that finish can
    leave the batch of their chunk. A chunk ends early if padding to its widest batch would waste
    more than a quarter.

    Args:
        ids: Ids of the clients [C].
        tau: Number of local steps of each client [C].
        widths: Size of each client's largest batch [C].
        size: Maximum number of clients in a chunk.

    Returns:
        Positions in ``ids`` for each chunk; every position occurs exactly once.
    """
    order = np.lexsort((ids, -widths, -tau))
    ordered_widths = widths[order]

    # a loop over widths, not over clients
    changes = np.flatnonzero(np.diff(ordered_widths, prepend=-1))
    cuts: list[int] = []
    low = high = 0
    for start in changes.tolist():
        width = int(ordered_widths[start])
        low = min(low, width)
        high = max(high, width)
        if not cuts or high > _SIMILAR * low + _SLACK:
            cuts.append(start)
            low = high = width
    return _at_most(size, np.split(order, cuts[1:]))


def balanced(
    cost: np.ndarray,
    parts: int,
    most: int | None = None,
) -> list[np.ndarray]:
    """Divide items among at most ``parts`` threads so that the sums of their costs are similar.

    The items are sorted by descending cost and cut wherever the cumulative cost passes the next
    equal share.

    Args:
        cost: Costs [C], non-negative integers.
        parts: Number of parts.
        most: Largest number of items in a part; such a limit may increase the number of parts. If
            None, there is no limit.

    Returns:
        The items of each non-empty part, ascending; every item occurs exactly once.
    """
    order = np.argsort(-cost, kind="stable")
    ordered_cost = cost[order]
    middle = np.cumsum(ordered_cost) - ordered_cost / 2
    part = (middle * parts / max(1, cost.sum())).astype(np.int64)
    part = part.clip(max=parts - 1)  # the last items may cost nothing
    groups = [np.sort(order[part == k]) for k in range(parts)]
    return _at_most(most or len(cost), groups)


def _at_most(size: int, groups: list[np.ndarray]) -> list[np.ndarray]:
    """Return the non-empty groups, cut into equal parts of at most ``size`` items."""
    parts: list[np.ndarray] = []
    for group in groups:
        if len(group):
            parts += np.array_split(group, -(-len(group) // size))
    return parts


def ragged_arange(counts: np.ndarray) -> np.ndarray:
    """Return 0, ..., n - 1 for each n of ``counts``, one after another."""
    starts = np.cumsum(counts) - counts
    numbers: np.ndarray = np.arange(counts.sum()) - np.repeat(starts, counts)
    return numbers


class BatchLayout:
    """The places of a chunk's examples in its batches.

    The layout does not depend on the order of the examples, so it is computed only once for each
    set of clients. Batches are packed step by step. The clients are in descending order of τ, so
    that the first active[t] clients are still at work at step t.

    Args:
        ids: Ids of the clients [c], in descending order of ``tau``.
        tau: Number of local steps of each client [c].
        data: The data set, of which the training rows are used.
        work: The local work.
    """

    def __init__(
        self,
        ids: np.ndarray,
        tau: np.ndarray,
        data: FederatedDataset,
        work: LocalWork,
    ) -> None:
        n = data.train.counts[ids]
        width = int(work.widths(n).max())
        per_epoch = -(-n // width)
        epochs = -(-tau // per_epoch)  # number of epochs begun

        steps = np.arange(tau.max(initial=0))
        finished = np.searchsorted(tau[::-1], steps, side="right")
        self.active: list[int] = (len(ids) - finished).tolist()
        # index of the first packed batch of each step
        starts = np.concatenate([[0], np.cumsum(self.active)])
        self.shape = (int(starts[-1]), width)

        # a segment is an epoch of a client; the arrays below have an entry for each example in it
        client = np.repeat(np.arange(len(ids)), epochs)
        segment = np.repeat(np.arange(len(client)), n[client])
        owner = client[segment]
        epoch = ragged_arange(epochs)[segment]
        place = ragged_arange(n[client])  # in the client's shuffled examples

        batch, column = np.divmod(place, width)
        step = epoch * per_epoch[owner] + batch
        row = starts[np.minimum(step, len(steps))] + owner
        slot = row * width + column
        # a spare place takes the examples cut off by a limit on steps
        cut_off = step >= tau[owner]
        slot[cut_off] = starts[-1] * width
        in_batch = np.minimum(width, n[owner] - batch * width)

        device = data.x.device
        self.ids = ids
        self.data = data
        self.augment = work.augment
        self.shuffled = work.batch_size is not None
        self.epoch = to_device(epoch, device)
        self.segment = to_device(segment, device)
        self.slot = to_device(slot, device)

        first = np.cumsum(n) - n
        order = to_device(first[owner] + place, device)
        self.rows = data.train.of_clients(ids).index_select(0, order)
        weight = to_device(1.0 / in_batch, device, data.dtype)
        self.weight = self._pack(weight)

        # bits of a hash that fit into int64 together with a segment's number
        self.bits = 62 - len(client).bit_length()

        # batch size, by step, of a client alone at work: its short batches are not padded
        batch_of_step = steps % per_epoch[0]
        left = n[0] - batch_of_step * width
        self.lone = np.minimum(width, left).tolist()

        # client and step of every batch
        self.drawing: tuple[Tensor, Tensor] | None = None
        if work.random:
            clients = np.concatenate([ids[:k] for k in self.active])
            step_of_batch = np.repeat(steps, self.active)
            self.drawing = (
                to_device(clients, device),
                to_device(step_of_batch, device),
            )

    def batches(
        self,
        seed: int,
        round: int,
        purpose: Purpose = Purpose.BATCHES,
    ) -> Iterator[tuple[Batch, int]]:
        """Yield (batch, number of clients still at work) for every step of the round."""
        order = self.rows
        if self.shuffled:
            order = self._shuffle(key(seed, purpose, round))
        rows = self._pack(order)

        views = None  # keys of the examples' augmentation
        if self.augment is not None:
            base = key(seed, Purpose.AUGMENT, purpose, round)
            views = self._pack(fold_in(base, self.epoch, order))
        keys = None  # keys of the model's random draws, by batch
        if self.drawing is not None:
            base = key(seed, Purpose.MODEL, purpose, round)
            keys = fold_in(base, *self.drawing)

        start = 0
        step = 0
        while step < len(self.active):
            active = self._active_at_once(step)
            block = slice(start, start + sum(active))
            change = None
            normalised = False
            if self.augment is not None and views is not None:
                change = partial(self.augment, key=views[block])
                normalised = self.augment.normalised
            features = self.data.features(rows[block], change, normalised).split(active)
            labels = self.data.labels(rows[block]).split(active)
            weights = self.weight[block].split(active)
            draws: Iterable[Tensor | None] = [None] * len(active)
            if keys is not None:
                draws = keys[block].split(active)

            steps = zip(active, features, labels, weights, draws, strict=True)
            for k, x, y, weight, drawn in steps:
                if k == 1:
                    real = slice(self.lone[step])
                    x = x[:, real]
                    y = y[:, real]
                    weight = weight[:, real]
                yield Batch(x, y, weight, drawn, step), k
                step += 1
            start = block.stop

    def _active_at_once(self, step: int) -> list[int]:
        """Return the numbers of clients at work in the steps, from ``step`` on, that share a block.

        The features of a block are gathered at once.
        """
        _, width = self.shape
        example_bytes = prod(self.data.shape) * self.data.dtype.itemsize
        step_bytes = example_bytes * width * self.active[step]
        most = max(1, _BLOCK_BYTES // step_bytes)
        return self.active[step : step + most]

    def _shuffle(self, base: int) -> Tensor:
        """Return the rows of each segment in the order of their hashes."""
        hashes = fold_in(base, self.epoch, self.rows)
        keys = (self.segment << self.bits) | (hashes >> (63 - self.bits))
        order = torch.argsort(keys, stable=True)
        return self.rows.index_select(0, order)

    def _pack(self, values: Tensor) -> Tensor:
        """Return the examples' values in their places in the batches, with 0 elsewhere."""
        packed = values.new_zeros(prod(self.shape) + 1)
        packed.scatter_(0, self.slot, values)
        return packed[:-1].view(self.shape)


def train_chunk(
    algo: Algorithm,
    oracle: Oracle,
    msg: State,
    local: State,
    info: ClientInfo,
    batches: Iterable[tuple[Batch, int]],
) -> State:
    """Take all local steps of one chunk and return the final local variables, [C, ...].

    Args:
        algo: The method.
        oracle: Oracle that computes losses and gradients.
        msg: The broadcast.
        local: The local variables before the first step, [C, ...].
        info: Facts of the chunk's clients, in descending order of steps, with leaves [C, 1].
        batches: (batch, A) per step; the first A clients are still at work.
    """
    step = algo.step
    if isinstance(step, Descent) and step.plain:
        step = partial(_descend, step.extra)
        local = local | {"w": local["w"].clone()}

    finished: State = {}
    count = active = len(info.id)
    for batch, k in batches:
        if k < active:
            _store_finished(finished, local, k, active, count)
            local = {name: v[:k] for name, v in local.items()}
            info = info.take(slice(k))
            active = k
        local = step(oracle, msg, local, batch, info)
    if active == count:
        return local
    _store_finished(finished, local, 0, active, count)
    return finished


def _descend(
    extra: Extra | None,
    oracle: Oracle,
    msg: State,
    local: State,
    batch: Batch,
    info: ClientInfo,
) -> State:
    """Take a plain step in place; equal to calling the ``Descent``, up to rounding."""
    added = None
    if extra is not None:
        added = extra(msg, local, info)  # at the model before the step
    oracle.descend_(local["w"], batch, info.lr)
    if added is not None:
        local["w"].addcmul_(info.lr, added, value=-1)
    return local


def start_local(
    algo: Algorithm,
    msg: State,
    clients: State,
    info: ClientInfo,
) -> State:
    """Return the local variables before the first step, [C, ...]; leaves of ``info`` are [C, 1]."""
    count = len(info.id)
    variables = algo.start(msg, clients, info)
    local = {}
    for name, v in variables.items():
        local[name] = v.expand(count, *v.shape[-1:])
    return local


def _store_finished(
    finished: State,
    local: State,
    start: int,
    stop: int,
    count: int,
) -> None:
    """Copy the clients start..stop out of ``local``.

    A view of ``local`` would keep the memory of the whole chunk alive.
    """
    for name, v in local.items():
        if name not in finished:
            finished[name] = v.new_empty(count, *v.shape[1:])
        finished[name][start:stop] = v[start:]

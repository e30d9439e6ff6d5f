"""Measurements on clients' own examples, of one shared model or of each client's own, with little padding."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cached_property
from math import prod
from typing import NamedTuple
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from fedbench.core.types import Batch, Examined, State
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.simulation.compiled.dense import DenseKernel
from fedbench.simulation.engine import Engine, balanced, chunks
from fedbench.simulation.task import Task, example_losses, over_tokens

_BLOCK_VALUES = 2**19  # values of the features in one block: what is computed from them should stay in the cache
_FEW_ROWS, _MOST_VALUES = 64, 2**25  # a block has at least this many examples, unless they take more values than that
_PIECE = 4096  # examples of a client that one call of compiled code measures
_LITTLE = 2**21  # products in a pass of compiled code that takes less time than a second thread needs to begin
_MOST_ROWS = 2048  # examples of a client in one gradient; more are summed block by block
_KEPT = 4  # plans that are kept, and sums: test and training examples, those of a cohort before and after a round


class Probes:
    """Measurements of one model w [P] on clients' own examples, for the method, the evaluation and the diagnostics.

    What one of them has measured at a model is given to the others that ask for the same. Answers do not depend on who
    asks first: only the very sums that would be computed again are shared. A model is compared by identity.

    Args:
        task: The model and its loss.
        engine: How the measurement is carried out.
    """

    def __init__(self, task: Task, engine: Engine) -> None:
        self.task, self.engine = task, engine
        self._plans: list[ExamplePlan] = []
        self._sums: list[tuple[ExamplePlan, ref[Tensor], list[Tensor]]] = []
        self._ahead: tuple[ExamplePlan, ref[Tensor], tuple[Tensor, Tensor]] | None = None

    def plan(self, data: FederatedDataset, rows: Rows, ids: np.ndarray) -> ExamplePlan:
        """Return the plan of the clients ``ids`` [C], the same object as long as it is in use."""
        found = next((p for p in self._plans if p.covers(data, rows, ids)), None)
        plan = found or ExamplePlan(data, rows, ids, self.engine)
        self._plans = [plan, *(p for p in self._plans if p is not plan)][:_KEPT]
        return plan

    def sums(
        self, data: FederatedDataset, rows: Rows, ids: np.ndarray, w: Tensor, hits: bool = False
    ) -> list[Tensor]:
        """Return the sum of the example losses per client, and with ``hits`` the number of correct examples, [C] float64.

        This is one flat pass over the examples of all clients, whatever their numbers.
        """
        plan = self.plan(data, rows, ids)
        for known, model, sums in self._sums:
            if known is plan and model() is w and len(sums) > hits:
                return sums
        sums = plan.flat_sums(self.task, w, hits)
        self._sums = [(plan, ref(w), sums), *self._sums][:_KEPT]
        return sums

    def mean_losses(self, data: FederatedDataset, ids: np.ndarray, w: Tensor) -> Tensor:
        """Return F_k(w), the mean loss over all training examples, of each client, [C] float64."""
        total = self.sums(data, data.train, ids, w)[0]
        return total / torch.from_numpy(data.train.counts[ids]).to(total)

    def gradients(
        self, data: FederatedDataset, ids: np.ndarray, w: Tensor, ahead: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return F_k(w) [C] float64 and ∇F_k(w) [C, P] over all training examples of each client.

        Args:
            data: The data set.
            ids: The clients [C].
            w: The model.
            ahead: Whether the next call will ask for the same, which is then kept until that call.
        """
        plan, kept = self.plan(data, data.train, ids), self._ahead
        self._ahead = None  # gradients are large
        found = kept[2] if kept and kept[0] is plan and kept[1]() is w else plan.gradients(w)
        if ahead:
            self._ahead = (plan, ref(w), found)
        return found

    def at_broadcast(self, data: FederatedDataset, ids: np.ndarray, w: Tensor, needs: Set[str]) -> State:
        """Return the "loss", "accuracy" and "grad" that are in ``needs``, leaves [C] (a gradient [C, P])."""
        found: State = {}
        if "grad" in needs:
            found["loss"], found["grad"] = self.gradients(data, ids, w)  # the gradient's forward pass gives the loss
        if "accuracy" in needs or ("loss" in needs and not found):
            sums = self.sums(data, data.train, ids, w, hits="accuracy" in needs)
            n = torch.from_numpy(data.train.counts[ids]).to(sums[0])
            found |= dict(zip(("loss", "accuracy"), (v / n for v in sums), strict=False))
        return {k: v for k, v in found.items() if k in needs}


def _kernel(data: FederatedDataset, engine: Engine) -> DenseKernel | None:
    return engine.kernel if engine.kernel is not None and engine.kernel.reads(data) else None


class Inspection:
    """A ``Lab``: the outputs of a model on clients' training examples.

    Args:
        task: The model and its loss.
        data: The data set.
        engine: How the measurement is carried out.
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

    clients: Tensor  # [A] positions in the list of clients
    rows: Tensor  # [A, n] rows of the data set
    weight: Tensor  # [A, n] 1 / (all examples of the client) on real examples, 0 on padding


def _block(data: FederatedDataset) -> int:
    """Return the number of examples of a block."""
    values = max(1, prod(data.shape), data.work_values)
    return max(1, _BLOCK_VALUES // values, min(_FEW_ROWS, _MOST_VALUES // values))


def _groups(data: FederatedDataset, rows: Rows, ids: np.ndarray, most_clients: int) -> list[_Group]:
    """Cut the examples of every client into blocks of at most ``_MOST_ROWS``, and group blocks of similar size."""
    groups: list[_Group] = []
    n, first = rows.counts[ids], rows.starts[ids]
    block, device = _block(data), data.x.device
    size = min(_MOST_ROWS, block)
    for start in range(0, int(n.max(initial=0)), size):  # the next block of every client that has one
        have = np.flatnonzero(n > start)
        length = np.minimum(n[have] - start, size)
        most = max(1, min(most_clients, 8 * block // int(length.max())))
        for group in chunks(have, np.ones_like(length), length, most):
            members, count = have[group], length[group][:, None]
            column = np.arange(count.max())
            place = (first[members] + start)[:, None] + np.minimum(column, count - 1)
            weight = (column < count) / n[members][:, None]
            groups.append(
                _Group(
                    torch.from_numpy(members).to(device),
                    rows.index[torch.from_numpy(place).to(device)],
                    torch.from_numpy(weight).to(device, data.dtype),
                )
            )
    return groups


class _Pieces(NamedTuple):
    """Pieces of the clients' examples, of which one call of compiled code measures some."""

    owner: np.ndarray  # positions in the list of clients
    starts: np.ndarray
    counts: np.ndarray


class ExamplePlan:
    """The examples of each of C clients, in blocks: computed once, used any number of times.

    Args:
        data: The data set.
        rows: Its training or test rows.
        ids: The clients [C].
        engine: How the measurement is carried out.
    """

    def __init__(self, data: FederatedDataset, rows: Rows, ids: np.ndarray, engine: Engine) -> None:
        self.data, self.rows, self.ids, self.engine, self.count = data, rows, ids, engine, len(ids)
        self._kernel = _kernel(data, engine)

    def covers(self, data: FederatedDataset, rows: Rows, ids: np.ndarray) -> bool:
        """Return whether this is the plan of these examples."""
        return data is self.data and rows is self.rows and np.array_equal(ids, self.ids)

    @cached_property
    def _groups(self) -> list[_Group]:
        return _groups(self.data, self.rows, self.ids, self.engine.cohort_size)

    @cached_property
    def _blocks(self) -> tuple[Sequence[Tensor], Tensor]:
        """The rows of all clients in blocks, and the number of examples of each client [C]."""
        index = self.rows.of_clients(self.ids)
        return index.split(_block(self.data)), torch.from_numpy(self.rows.counts[self.ids]).to(index.device)

    @cached_property
    def _pieces(self) -> _Pieces:
        counts = self.rows.counts[self.ids]
        pieces = -(-counts // _PIECE)  # a client with very many examples is shared among threads
        owner = np.repeat(np.arange(self.count), pieces)
        first = (np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * _PIECE
        return _Pieces(owner, self.rows.starts[self.ids][owner] + first, np.minimum(counts[owner] - first, _PIECE))

    @cached_property
    def _shares(self) -> list[np.ndarray]:
        """The pieces that each thread measures."""
        return balanced(self._pieces.counts, self.engine.workers)

    @torch.no_grad()
    def gradients(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return F_k(w) [C] float64 and ∇F_k(w) [C, P] of one model w [P] over all examples of each client."""
        if self._kernel is not None:
            return self._compiled_gradients(self._kernel, w)

        @torch.no_grad()
        def part(group: _Group) -> tuple[Tensor, Tensor]:
            batch = Batch(self.data.features(group.rows), self.data.labels(group.rows), group.weight)
            return self.engine.oracle.loss_and_grad(w.expand(len(group.clients), -1), batch)

        loss = torch.zeros(self.count, dtype=torch.float64, device=w.device)
        grad = w.new_zeros(self.count, len(w))
        for group, (f, g) in zip(self._groups, self.engine.map(part, self._groups), strict=True):
            loss[group.clients] += f.squeeze(1).double()  # no client is in a group twice
            grad[group.clients] += g
        return loss, grad

    def _compiled_gradients(self, kernel: DenseKernel, w: Tensor) -> tuple[Tensor, Tensor]:
        data, rows, counts = self.data, self.rows, self.rows.counts[self.ids]
        starts = rows.starts[self.ids]
        loss, grad = torch.empty(self.count, dtype=torch.float64), w.new_empty(self.count, len(w))

        @torch.no_grad()
        def part(share: np.ndarray) -> None:
            f, g, _ = kernel.measure(data, rows.index, starts[share], counts[share], w, gradients=True)
            assert g is not None
            where = torch.from_numpy(share)
            loss[where], grad[where] = f, g  # no client is in two shares

        self.engine.map(part, balanced(counts, self.engine.workers))
        return loss / torch.from_numpy(counts), grad

    @torch.no_grad()
    def flat_sums(self, task: Task, w: Tensor, hits: bool = False) -> list[Tensor]:
        """Return what ``sums`` does of one model w [P], in one pass that has no padding.

        Args:
            task: The model and its loss.
            w: The model.
            hits: Whether to count correct examples too.
        """
        if self._kernel is not None:
            return self._compiled_sums(self._kernel, w, hits)

        @torch.no_grad()
        def block(part: Tensor) -> list[Tensor]:
            return _per_example(task.predict(w, self.data.features(part)), self.data.labels(part), hits, 1)

        blocks, lengths = self._blocks
        done = self.engine.map(block, blocks)  # an empty index has one empty block
        return [
            torch.segment_reduce(torch.cat(values).double(), "sum", lengths=lengths, initial=0, unsafe=True)
            for values in zip(*done, strict=True)
        ]

    def _compiled_sums(self, kernel: DenseKernel, w: Tensor, hits: bool, threads: bool = True) -> list[Tensor]:
        """Return the sums [C] of one model w [P], or of each client's own [C, P]."""
        owner, starts, counts = self._pieces
        found = np.zeros((1 + hits, len(owner)))
        alone = not threads or counts.sum() * w.shape[-1] < _LITTLE

        @torch.no_grad()
        def part(share: np.ndarray | slice) -> None:
            models = w if w.dim() == 1 else w[torch.from_numpy(owner[share])]
            loss, _, correct = kernel.measure(
                self.data, self.rows.index, starts[share], counts[share], models, hits=hits
            )
            found[0, share] = loss.numpy()  # no piece is in two shares
            if correct is not None:
                found[1, share] = correct.numpy()

        if alone:
            part(slice(None))
        else:
            self.engine.map(part, self._shares)
        return [torch.from_numpy(np.bincount(owner, values, self.count)) for values in found]

    @torch.no_grad()
    def sums(self, w: Tensor, hits: bool = False, threads: bool = True) -> list[Tensor]:
        """Return the sum of the example losses of each client's own model, and with ``hits`` the correct examples.

        Args:
            w: The clients' models [C, P], on any device.
            hits: Whether to count correct examples too.
            threads: Whether to use the engine's worker threads.

        Returns:
            One or two tensors [C] in float64.
        """
        if self._kernel is not None:
            return self._compiled_sums(self._kernel, w, hits, threads)
        device = self.data.x.device

        @torch.no_grad()
        def part(group: _Group) -> list[Tensor]:
            models = w.index_select(0, group.clients.to(w.device)).to(device)
            logits = self.engine.oracle.logits(models, self.data.features(group.rows))
            values = _per_example(logits, self.data.labels(group.rows), hits, 2)
            return [(v.double() * (group.weight > 0)).sum(1) for v in values]

        done: Sequence[list[Tensor]] = (
            self.engine.map(part, self._groups) if threads else [part(group) for group in self._groups]
        )
        totals = [torch.zeros(self.count, dtype=torch.float64, device=device) for _ in range(1 + hits)]
        for group, values in zip(self._groups, done, strict=True):
            for total, v in zip(totals, values, strict=True):
                total[group.clients] += v  # no client is in a group twice
        return totals


def _per_example(logits: Tensor, y: Tensor, hits: bool, lead: int) -> list[Tensor]:
    right = [logits.max(-1).indices == y] if hits else []
    return [example_losses(logits, y, lead), *(r if r.dim() == lead else over_tokens(r.double(), lead) for r in right)]

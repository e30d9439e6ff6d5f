"""Measurements on clients' own examples, of one shared model or of each client's own: each is carried out once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, TypeAlias, TypeVar
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from fedbench.core.types import Batch, Predictions, State, upload
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.simulation.engine import Engine, Limits
from fedbench.simulation.local_work import balanced, chunks
from fedbench.simulation.task import Task, example_losses, over_tokens

T = TypeVar("T")
Each: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]  # ``map``, on threads or not

_BLOCK_VALUES = 2**19  # values of the features in one block: what is computed from them should stay in the cache
_FEW_ROWS, _MOST_VALUES = 64, 2**25  # a block has at least this many examples, unless they take more values than that
_GROUP = 8  # blocks' worth of examples of several clients, each with a model of its own
_MOST_ROWS = 2048  # examples of a client in one gradient; more are summed block by block
_PIECE = 4096  # examples of a client that one call of compiled code measures
_PLANS = 4  # that are kept: training, test and validation examples of all clients, and those of a cohort
_MODELS = 2  # whose sums a plan keeps: those before and after a round


class Measurements:
    """Losses, accuracies and gradients on clients' own examples, each computed once however many ask for it.

    Args:
        task: The model and its loss.
        engine: How the measurement is carried out.
    """

    def __init__(self, task: Task, engine: Engine) -> None:
        self.task, self.engine = task, engine
        self._plans: list[ExamplePlan] = []

    def plan(self, data: FederatedDataset, rows: Rows, ids: np.ndarray) -> ExamplePlan:
        """The plan of the training, test or validation examples of the clients ``ids`` [C]."""
        same = (p for p in self._plans if p.data is data and p.rows is rows and np.array_equal(p.ids, ids))
        plan = next(same, None) or ExamplePlan(self.task, data, rows, ids, self.engine)
        self._plans = [plan, *(other for other in self._plans if other is not plan)][:_PLANS]
        return plan

    def at_broadcast(self, data: FederatedDataset, ids: np.ndarray, w: Tensor, needs: Set[str]) -> State:
        """Those of "loss", "accuracy" and "grad" that are in ``needs``, leaves [C] (a gradient [C, P])."""
        found: State = {}
        if "grad" in needs:
            found["loss"], found["grad"] = self.plan(data, data.train, ids).gradients(w)
        if "accuracy" in needs or ("loss" in needs and not found):
            means = self.plan(data, data.train, ids).means(w, hits="accuracy" in needs)
            found |= dict(zip(("loss", "accuracy"), means, strict=False))
        return {k: v for k, v in found.items() if k in needs}

    def mean_losses(self, data: FederatedDataset, ids: np.ndarray, w: Tensor) -> Tensor:
        """F_k(w), the mean loss over all training examples, of each client, [C] float64."""
        return self.plan(data, data.train, ids).means(w)[0]

    def losses_of_several(self, data: FederatedDataset, ids: np.ndarray, models: Tensor) -> Tensor:
        """F_k of several models [J, P] that are not shared with other measurements, [C, J] float64."""
        plan = ExamplePlan(self.task, data, data.train, ids, self.engine)
        return torch.stack([plan.means(w)[0] for w in models], 1)

    @torch.no_grad()
    def predictions(self, data: FederatedDataset, w: Tensor, ids: np.ndarray, y: Tensor) -> Predictions:
        """The logits of a model w [P] on the training examples of the clients ``ids``; y [T] are the labels."""
        plan = ExamplePlan(self.task, data, data.train, ids, self.engine)
        return Predictions(plan.index, plan.logits(w), y.index_select(0, plan.index))


class _Group(NamedTuple):
    """Blocks of similar size of A clients."""

    clients: Tensor  # [A] positions in the list of clients
    rows: Tensor  # [A, n] rows of the data set
    weight: Tensor  # [A, n] 1 / (all examples of the client) on real examples, 0 on padding


class ExamplePlan:
    """The examples of each of C clients, on which models are measured any number of times.

    Compiled code measures what it can read. One model takes a flat pass over the examples of all clients; models of
    their own are measured in groups of clients with blocks of similar size.

    Args:
        task: The model and its loss.
        data: The data set.
        rows: Its training, test or validation rows.
        ids: The clients [C].
        engine: How the measurement is carried out.
    """

    def __init__(self, task: Task, data: FederatedDataset, rows: Rows, ids: np.ndarray, engine: Engine) -> None:
        self.task, self.data, self.rows, self.ids, self.engine = task, data, rows, ids, engine
        self.count, kernel = len(ids), engine.kernel
        self._kernel = kernel if kernel is not None and kernel.reads(data) else None
        self._cut: tuple[Limits, list[_Group]] | None = None
        self._known: list[tuple[ref[Tensor], list[Tensor]]] = []  # models are not kept alive for this

    @cached_property
    def index(self) -> Tensor:
        """Rows of all examples, client by client, [M]."""
        return self.rows.of_clients(self.ids)

    def means(self, w: Tensor, hits: bool = False) -> list[Tensor]:
        """F_k(w), the mean loss, and with ``hits`` or if known the accuracy, of one model w [P], [C] float64 each."""
        sums = self.sums(w, hits)
        n = upload(self.rows.counts[self.ids], sums[0].device, sums[0].dtype)
        return [v / n for v in sums]

    @torch.no_grad()
    def sums(self, w: Tensor, hits: bool = False, threads: bool = True) -> list[Tensor]:
        """The sums of the losses and, with ``hits`` or if known, the correct examples of each client, [C] float64 each.

        The sums of one model are computed once. It is recognised as an object, which must not be changed in place, as
        the clients' own models are by the loop.

        Args:
            w: One model [P], or a model of each client's own [C, P], on any device.
            hits: Whether to count correct examples too.
            threads: Whether to use the engine's worker threads; without them allocation errors are the caller's.

        Raises:
            OutOfMemory: If a single example does not fit.
        """
        for model, known in self._known:
            if model() is w and len(known) > hits:
                return known
        if self._kernel is not None:
            measure = self._compiled_sums
        else:
            measure = self._flat_sums if w.dim() == 1 else self._grouped_sums
        if not threads:
            return measure(w, hits, map)
        sums = self._within_memory(lambda: measure(w, hits, self.engine.map), 1 if w.dim() == 1 else _GROUP)
        if w.dim() == 1:
            self._known = [(ref(w), sums), *self._known][:_MODELS]
        return sums

    @torch.no_grad()
    def gradients(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """F_k(w) [C] float64 and ∇F_k(w) [C, P] of one model w [P] over all examples of each client.

        Raises:
            OutOfMemory: If a single example does not fit.
        """
        measure = self._grouped_gradients if self._kernel is None else self._compiled_gradients
        return self._within_memory(lambda: measure(w), _GROUP)

    def logits(self, w: Tensor) -> Tensor:
        """The outputs of one model w [P], [M, classes]."""

        def block(part: Tensor) -> Tensor:
            return self.task.predict(w, self.data.features(part))

        return self._within_memory(
            lambda: torch.cat(self.engine.map(block, self.index.split(self._examples_at_once(1)))), 1
        )

    def _flat_sums(self, w: Tensor, hits: bool, each: Each) -> list[Tensor]:
        lengths = upload(self.rows.counts[self.ids], self.index.device)

        def block(part: Tensor) -> list[Tensor]:
            return _per_example(self.task.predict(w, self.data.features(part)), self.data.labels(part), hits, 1)

        cut = self.index.tensor_split(_number_of_blocks(len(self.index), self._examples_at_once(1)))
        return [
            torch.segment_reduce(torch.cat(values).double(), "sum", lengths=lengths, initial=0, unsafe=True)
            for values in zip(*each(block, cut), strict=True)
        ]

    def _grouped_sums(self, w: Tensor, hits: bool, each: Each) -> list[Tensor]:
        device, groups = self.data.x.device, self._groups()

        def part(group: _Group) -> list[Tensor]:
            models = w.index_select(0, group.clients.to(w.device)).to(device)
            logits = self.engine.oracle.logits(models, self.data.features(group.rows))
            values = _per_example(logits, self.data.labels(group.rows), hits, 2)
            return [(v.double() * (group.weight > 0)).sum(1) for v in values]

        totals = [torch.zeros(self.count, dtype=torch.float64, device=device) for _ in range(1 + hits)]
        for group, values in zip(groups, each(part, groups), strict=True):
            for total, v in zip(totals, values, strict=True):
                total[group.clients] += v  # no client is in a group twice
        return totals

    def _grouped_gradients(self, w: Tensor) -> tuple[Tensor, Tensor]:
        groups = self._groups()

        def part(group: _Group) -> tuple[Tensor, Tensor]:
            batch = Batch(self.data.features(group.rows), self.data.labels(group.rows), group.weight)
            return self.engine.oracle.loss_and_grad(w.expand(len(group.clients), -1), batch)

        loss = torch.zeros(self.count, dtype=torch.float64, device=w.device)
        grad = w.new_zeros(self.count, len(w))
        for group, (f, g) in zip(groups, self.engine.map(part, groups), strict=True):
            loss[group.clients] += f.squeeze(1).double()  # no client is in a group twice
            grad[group.clients] += g
        return loss, grad

    def _compiled_sums(self, w: Tensor, hits: bool, each: Each) -> list[Tensor]:
        kernel = self._kernel
        assert kernel is not None
        examples, (owner, starts, counts) = kernel.examples(self.data.x, self.data.y, self.data), self._pieces
        found = np.zeros((1 + hits, len(owner)))

        def part(share: np.ndarray) -> tuple[Tensor, Tensor | None]:
            models = w if w.dim() == 1 else w[torch.from_numpy(owner[share])]
            return kernel.measure(examples, self.rows.index, starts[share], counts[share], models, hits=hits)

        most = self._clients_at_once() if w.dim() == 2 else None  # the models of a share are copied
        workers = self.engine.workers * self.engine.ranks.world_size
        shares = balanced(counts, 1 if each is map else kernel.threads(int(counts.sum()), workers), most)
        for share, sums in zip(shares, each(part, shares), strict=True):
            for total, some in zip(found, sums, strict=False):
                total[share] = some  # no set of examples is in two shares
        return [torch.from_numpy(np.bincount(owner, values, self.count)) for values in found]

    def _compiled_gradients(self, w: Tensor) -> tuple[Tensor, Tensor]:
        kernel = self._kernel
        assert kernel is not None
        examples = kernel.examples(self.data.x, self.data.y, self.data)
        starts, counts = self.rows.starts[self.ids], self.rows.counts[self.ids]
        loss, grad = torch.empty(self.count, dtype=torch.float64), w.new_empty(self.count, len(w))

        alone = self.engine.ranks.world_size == 1

        def part(share: np.ndarray) -> tuple[Tensor, Tensor]:
            f, _ = kernel.measure(examples, self.rows.index, starts[share], counts[share], w, gradients=(grad, share))
            return f, grad[:0] if alone else grad[share]  # where they belong already

        workers = kernel.threads(int(counts.sum()), self.engine.workers * self.engine.ranks.world_size)
        shares = balanced(counts, workers, self._clients_at_once())
        for share, (f, g) in zip(shares, self.engine.map(part, shares), strict=True):
            loss[share] = f  # no client is in two shares
            if len(g):
                grad[share] = g
        return loss / torch.from_numpy(np.maximum(counts, 1)), grad

    def _within_memory(self, work: Callable[[], T], blocks: int) -> T:
        """The result of ``work``, which measures clients, or blocks of examples, fewer at once if memory runs out."""
        if self._kernel is not None:
            return self.engine.within_memory(work, "clients", self._clients_at_once, "one model does not fit")
        return self.engine.within_memory(
            work, "examples", lambda: self._examples_at_once(blocks), "measuring one example does not fit into memory"
        )

    def _clients_at_once(self) -> int:
        """Largest number of clients, each with a model of its own, that one call of compiled code measures."""
        assert self._kernel is not None
        return min(self._kernel.most_clients, self.engine.limits.clients)

    def _examples_at_once(self, blocks: int) -> int:
        """Number of examples of some blocks."""
        values = max(1, prod(self.data.shape), self.task.traits.work_values)
        block = max(1, _BLOCK_VALUES // values, min(_FEW_ROWS, _MOST_VALUES // values))
        return min(blocks * block, self.engine.limits.examples)

    @cached_property
    def _pieces(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The examples of clients, cut where they are very many, so that threads can share them.

        The client of each piece as a position in ``ids``, where its rows begin, and its number of examples; clients
        without examples have no piece.
        """
        starts, counts = self.rows.starts[self.ids], self.rows.counts[self.ids]
        pieces = -(-counts // _PIECE)
        owner = np.repeat(np.arange(self.count), pieces)
        first = (np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * _PIECE
        return owner, starts[owner] + first, np.minimum(counts[owner] - first, _PIECE)

    def _groups(self) -> list[_Group]:
        """Blocks of at most ``_MOST_ROWS`` examples of every client, those of similar size in one group.

        They are cut again if the engine has less memory than before.
        """
        if self._cut is not None and self._cut[0] == self.engine.limits:
            return self._cut[1]
        groups: list[_Group] = []
        n, first = self.rows.counts[self.ids], self.rows.starts[self.ids]
        size, device = min(_MOST_ROWS, self._examples_at_once(1)), self.data.x.device
        for start in range(0, int(n.max(initial=0)), size):  # the next block of every client that has one
            have = np.flatnonzero(n > start)
            length = np.minimum(n[have] - start, size)
            most = max(1, min(self.engine.cohort_size, self._examples_at_once(_GROUP) // int(length.max())))
            for group in chunks(have, np.ones_like(length), length, most):
                members, count = have[group], length[group][:, None]
                column = np.arange(count.max())
                place = (first[members] + start)[:, None] + np.minimum(column, count - 1)
                weight = (column < count) / n[members][:, None]
                index = self.rows.index[upload(place, device)]
                groups.append(_Group(upload(members, device), index, upload(weight, device, self.data.dtype)))
        self._cut = self.engine.limits, groups
        return groups


def _number_of_blocks(examples: int, most: int) -> int:
    """Number of equal blocks of at most ``most`` examples that threads can share evenly.

    It does not depend on the number of threads, since results depend on it by rounding.
    """
    least = max(1, -(-examples // most))
    numbers = (-(-least // threads) * threads for threads in (8, 4, 2))
    return next((n for n in numbers if examples >= n * _FEW_ROWS // 2), least)


def _per_example(logits: Tensor, y: Tensor, hits: bool, lead: int) -> list[Tensor]:
    """The loss of each example and, with ``hits``, whether it is correct (of a sequence the share of its tokens)."""
    right = [logits.max(-1).indices == y] if hits else []
    return [example_losses(logits, y, lead), *(r if r.dim() == lead else over_tokens(r.double(), lead) for r in right)]

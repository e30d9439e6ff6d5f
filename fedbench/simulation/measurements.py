"""Measurements on clients' own examples, of one shared model or of each client's own: each is carried out once."""

from __future__ import annotations

from collections.abc import Callable, Set
from math import prod
from typing import NamedTuple, TypeVar
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from fedbench.core.types import Batch, Examined, State, upload
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.simulation.compiled.dense import DenseKernel
from fedbench.simulation.compiled.sums import gradients, most_clients, sums_of_clients
from fedbench.simulation.engine import Engine, Limits, chunks
from fedbench.simulation.task import Task, example_losses, over_tokens

T = TypeVar("T")

_BLOCK_VALUES = 2**19  # values of the features in one block: what is computed from them should stay in the cache
_FEW_ROWS, _MOST_VALUES = 64, 2**25  # a block has at least this many examples, unless they take more values than that
_GROUP = 8  # blocks' worth of examples of several clients, each with a model of its own
_MOST_ROWS = 2048  # examples of a client in one gradient; more are summed block by block
_KEPT = 4  # plans, and sums: those of all clients, and of a cohort before and after its round


class _Examples(NamedTuple):
    """The training, test or validation examples of some clients."""

    data: FederatedDataset
    rows: Rows
    ids: np.ndarray

    def same(self, other: _Examples) -> bool:
        """Whether these are the same examples."""
        return self.data is other.data and self.rows is other.rows and np.array_equal(self.ids, other.ids)


class Measurements:
    """Losses, accuracies and gradients on clients' own examples, each computed once however many ask for it.

    Only what would be computed in the very same way is shared, so that the numbers do not depend on who asks first. A
    model is recognised as an object, which must not be changed in place.

    Args:
        task: The model and its loss.
        engine: How the measurement is carried out.
    """

    def __init__(self, task: Task, engine: Engine) -> None:
        self.task, self.engine = task, engine
        self._plans: list[tuple[_Examples, ExamplePlan]] = []
        self._sums: list[tuple[_Examples, ref[Tensor], list[Tensor]]] = []  # models are not kept alive for this

    def plan(self, data: FederatedDataset, rows: Rows, ids: np.ndarray) -> ExamplePlan:
        """The plan of the examples of the clients ``ids`` [C]."""
        asked = _Examples(data, rows, ids)
        known = next((entry for entry in self._plans if entry[0].same(asked)), None)
        entry = known or (asked, ExamplePlan(data, rows, ids, self.engine))
        self._plans = [entry, *(other for other in self._plans if other is not entry)][:_KEPT]
        return entry[1]

    def sums(self, data: FederatedDataset, rows: Rows, ids: np.ndarray, w: Tensor, hits: bool = False) -> list[Tensor]:
        """The sums of the losses and, with ``hits`` or if known, the correct examples of each client, [C] float64 each.

        Args:
            data: The data set.
            rows: Its training, test or validation rows.
            ids: The clients [C].
            w: The model [P].
            hits: Whether to count correct examples too.

        Raises:
            OutOfMemory: If a single example does not fit.
        """
        asked = _Examples(data, rows, ids)
        for examples, model, sums in self._sums:
            if model() is w and len(sums) > hits and examples.same(asked):
                return sums
        sums = client_sums(self.task, data, rows, ids, w, self.engine, hits)
        self._sums = [(asked, ref(w), sums), *self._sums][:_KEPT]
        return sums

    def mean_losses(self, data: FederatedDataset, ids: np.ndarray, w: Tensor) -> Tensor:
        """F_k(w), the mean loss over all training examples, of each client, [C] float64."""
        total = self.sums(data, data.train, ids, w)[0]
        return total / upload(data.train.counts[ids], total.device, total.dtype)

    def losses_of_several(self, data: FederatedDataset, ids: np.ndarray, models: Tensor) -> Tensor:
        """F_k of several models [J, P] that are not shared with other measurements, [C, J] float64."""
        sums = [client_sums(self.task, data, data.train, ids, w, self.engine)[0] for w in models]
        n = upload(data.train.counts[ids], sums[0].device, sums[0].dtype)
        return torch.stack([total / n for total in sums], 1)

    def at_broadcast(self, data: FederatedDataset, ids: np.ndarray, w: Tensor, needs: Set[str]) -> State:
        """Those of "loss", "accuracy" and "grad" that are in ``needs``, leaves [C] (a gradient [C, P])."""
        found: State = {}
        if "grad" in needs:
            found["loss"], found["grad"] = self.plan(data, data.train, ids).gradients(w)
        if "accuracy" in needs or ("loss" in needs and not found):
            sums = self.sums(data, data.train, ids, w, hits="accuracy" in needs)
            n = upload(data.train.counts[ids], sums[0].device, sums[0].dtype)
            found |= dict(zip(("loss", "accuracy"), (v / n for v in sums), strict=False))
        return {k: v for k, v in found.items() if k in needs}

    def lab(self, data: FederatedDataset) -> Inspection:
        """Access to the training examples for a method between rounds."""
        return Inspection(self.task, data, self.engine)


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
        """The logits of the model w [P] on the clients' training examples; y [T] are the labels."""

        def block(part: Tensor) -> Tensor:
            return self.task.predict(w, self.data.features(part))

        def all_blocks() -> Tensor:
            return torch.cat(self.engine.map(block, rows.split(_block(self.data, self.engine))))

        rows = self.data.train.of_clients(ids)
        logits = _in_blocks(self.data, self.engine, all_blocks)
        return Examined(rows, self.data.train.counts[ids], logits, y.index_select(0, rows))


@torch.no_grad()
def client_sums(
    task: Task, data: FederatedDataset, rows: Rows, ids: np.ndarray, w: Tensor, engine: Engine, hits: bool = False
) -> list[Tensor]:
    """The sums of the losses and, with ``hits``, the correct examples of each client, [C] float64 each.

    This is one flat pass of w [P] over the examples of all clients, whatever their numbers.

    Raises:
        OutOfMemory: If a single example does not fit.
    """
    kernel = _kernel(data, engine)
    if kernel is not None:
        return _in_shares(kernel, engine, lambda: sums_of_clients(kernel, data, rows, ids, w, engine, hits))
    index = rows.of_clients(ids)
    lengths = upload(rows.counts[ids], index.device)

    def block(part: Tensor) -> list[Tensor]:
        return _per_example(task.predict(w, data.features(part)), data.labels(part), hits, 1)

    def flat() -> list[Tensor]:
        blocks = engine.map(block, index.tensor_split(_number_of_blocks(len(index), _block(data, engine))))
        return [
            torch.segment_reduce(torch.cat(values).double(), "sum", lengths=lengths, initial=0, unsafe=True)
            for values in zip(*blocks, strict=True)
        ]

    return _in_blocks(data, engine, flat)


class _Group(NamedTuple):
    """Blocks of similar size of A clients."""

    clients: Tensor  # [A] positions in the list of clients
    rows: Tensor  # [A, n] rows of the data set
    weight: Tensor  # [A, n] 1 / (all examples of the client) on real examples, 0 on padding


class ExamplePlan:
    """The examples of each of C clients, cut into blocks once and measured any number of times.

    Args:
        data: The data set.
        rows: Its training, test or validation rows.
        ids: The clients [C].
        engine: How the measurement is carried out.
    """

    def __init__(self, data: FederatedDataset, rows: Rows, ids: np.ndarray, engine: Engine) -> None:
        self.data, self.rows, self.ids, self.engine, self.count = data, rows, ids, engine, len(ids)
        self._kernel = _kernel(data, engine)
        self._cut: tuple[Limits, list[_Group]] | None = None

    def _groups(self) -> list[_Group]:
        """The blocks, cut again if the engine has less memory than before."""
        if self._cut is None or self._cut[0] != self.engine.limits:
            self._cut = self.engine.limits, _groups(self.data, self.rows, self.ids, self.engine)
        return self._cut[1]

    @torch.no_grad()
    def gradients(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """F_k(w) [C] float64 and ∇F_k(w) [C, P] of one model w [P] over all examples of each client.

        Raises:
            OutOfMemory: If a single example does not fit.
        """
        kernel = self._kernel
        if kernel is not None:
            return _in_shares(
                kernel, self.engine, lambda: gradients(kernel, self.data, self.rows, self.ids, w, self.engine)
            )
        return _in_blocks(self.data, self.engine, lambda: self._gradients(w), _GROUP)

    def _gradients(self, w: Tensor) -> tuple[Tensor, Tensor]:
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

    @torch.no_grad()
    def sums(self, w: Tensor, hits: bool = False, threads: bool = True) -> list[Tensor]:
        """The sum of the example losses of each client's own model, and with ``hits`` the correct examples.

        Args:
            w: The clients' models [C, P], on any device.
            hits: Whether to count correct examples too.
            threads: Whether to use the engine's worker threads; without them allocation errors are the caller's.

        Returns:
            One or two tensors [C] in float64.

        Raises:
            OutOfMemory: If a single example does not fit.
        """
        kernel = self._kernel

        def work() -> list[Tensor]:
            if kernel is None:
                return self._sums(w, hits, threads)
            return sums_of_clients(kernel, self.data, self.rows, self.ids, w, self.engine, hits, threads)

        if not threads:
            return work()
        if kernel is None:
            return _in_blocks(self.data, self.engine, work, _GROUP)
        return _in_shares(kernel, self.engine, work)

    def _sums(self, w: Tensor, hits: bool, threads: bool) -> list[Tensor]:
        device, groups = self.data.x.device, self._groups()

        def part(group: _Group) -> list[Tensor]:
            models = w.index_select(0, group.clients.to(w.device)).to(device)
            logits = self.engine.oracle.logits(models, self.data.features(group.rows))
            values = _per_example(logits, self.data.labels(group.rows), hits, 2)
            return [(v.double() * (group.weight > 0)).sum(1) for v in values]

        done = self.engine.map(part, groups) if threads else [part(group) for group in groups]
        totals = [torch.zeros(self.count, dtype=torch.float64, device=device) for _ in range(1 + hits)]
        for group, values in zip(groups, done, strict=True):
            for total, v in zip(totals, values, strict=True):
                total[group.clients] += v  # no client is in a group twice
        return totals


def _groups(data: FederatedDataset, rows: Rows, ids: np.ndarray, engine: Engine) -> list[_Group]:
    """Blocks of at most ``_MOST_ROWS`` examples of every client, those of similar size in one group."""
    groups: list[_Group] = []
    n, first = rows.counts[ids], rows.starts[ids]
    size, device = min(_MOST_ROWS, _block(data, engine)), data.x.device
    for start in range(0, int(n.max(initial=0)), size):  # the next block of every client that has one
        have = np.flatnonzero(n > start)
        length = np.minimum(n[have] - start, size)
        most = max(1, min(engine.cohort_size, _block(data, engine, _GROUP) // int(length.max())))
        for group in chunks(have, np.ones_like(length), length, most):
            members, count = have[group], length[group][:, None]
            column = np.arange(count.max())
            place = (first[members] + start)[:, None] + np.minimum(column, count - 1)
            weight = (column < count) / n[members][:, None]
            index = rows.index[upload(place, device)]
            groups.append(_Group(upload(members, device), index, upload(weight, device, data.dtype)))
    return groups


def _kernel(data: FederatedDataset, engine: Engine) -> DenseKernel | None:
    return engine.kernel if engine.kernel is not None and engine.kernel.reads(data) else None


def _in_blocks(data: FederatedDataset, engine: Engine, work: Callable[[], T], many: int = 1) -> T:
    """The result of ``work``, which measures ``many`` blocks of examples at once, fewer examples if memory runs out."""
    return engine.within_memory(
        work, "examples", lambda: _block(data, engine, many), "measuring one example does not fit into memory"
    )


def _in_shares(kernel: DenseKernel, engine: Engine, work: Callable[[], T]) -> T:
    """The result of ``work``, in which compiled code measures clients, fewer at once if memory runs out."""
    return engine.within_memory(work, "clients", lambda: most_clients(kernel, engine), "one model does not fit")


def _block(data: FederatedDataset, engine: Engine, many: int = 1) -> int:
    """Number of examples of ``many`` blocks."""
    values = max(1, prod(data.shape), data.work_values)
    return engine.at_once("examples", many * max(1, _BLOCK_VALUES // values, min(_FEW_ROWS, _MOST_VALUES // values)))


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

"""Measurements on clients' own examples, of one shared model or of each client's own, with little padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedbench.core.transfers import upload
from fedbench.core.types import Batch, Examined
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.simulation.compiled.dense import DenseKernel
from fedbench.simulation.engine import Engine, Limits, balanced, chunks
from fedbench.simulation.task import Task, example_losses, over_tokens

T = TypeVar("T")

_BLOCK_VALUES = 2**19  # values of the features in one block: what is computed from them should stay in the cache
_FEW_ROWS, _MOST_VALUES = 64, 2**25  # a block has at least this many examples, unless they take more values than that
_GROUP = 8  # blocks' worth of examples of several clients, each with a model of its own
_PIECE = 4096  # examples of a client that one call of compiled code measures
_MOST_ROWS = 2048  # examples of a client in one gradient; more are summed block by block


@torch.no_grad()
def client_sums(
    task: Task, data: FederatedDataset, rows: Rows, ids: np.ndarray, w: Tensor, engine: Engine, hits: bool = False
) -> list[Tensor]:
    """Return the sum of the example losses per client, and with ``hits`` the number of correct examples, [C] float64.

    This is one flat pass of w [P] over the examples of all clients, whatever their numbers.

    Raises:
        OutOfMemory: If a single example does not fit.
    """
    kernel = _kernel(data, engine)
    if kernel is not None:
        return _in_shares(kernel, engine, lambda: _compiled_sums(kernel, data, rows, ids, w, engine, hits))
    return _in_blocks(data, engine, lambda: _flat_sums(task, data, rows, ids, w, engine, hits))


def _in_blocks(data: FederatedDataset, engine: Engine, work: Callable[[], T], many: int = 1) -> T:
    """Return ``work()``, which measures ``many`` blocks of examples at once, fewer examples if memory runs out."""
    return engine.within_memory(
        work, "examples", lambda: _block(data, engine, many), "measuring one example does not fit into memory"
    )


def _in_shares(kernel: DenseKernel, engine: Engine, work: Callable[[], T]) -> T:
    """Return ``work()``, in which compiled code measures clients, fewer at once if memory runs out."""
    return engine.within_memory(work, "clients", lambda: _most_clients(kernel, engine), "one model does not fit")


def _most_clients(kernel: DenseKernel, engine: Engine) -> int:
    return engine.at_once("clients", kernel.most_clients)


def _flat_sums(
    task: Task, data: FederatedDataset, rows: Rows, ids: np.ndarray, w: Tensor, engine: Engine, hits: bool
) -> list[Tensor]:
    index = rows.of_clients(ids)

    def block(part: Tensor) -> list[Tensor]:
        return _per_example(task.predict(w, data.features(part)), data.labels(part), hits, 1)

    lengths = upload(rows.counts[ids], index.device)
    index_blocks = index.tensor_split(_number_of_blocks(len(index), _block(data, engine)))
    blocks = engine.map(block, index_blocks)
    return [
        torch.segment_reduce(torch.cat(values).double(), "sum", lengths=lengths, initial=0, unsafe=True)
        for values in zip(*blocks, strict=True)
    ]


def _kernel(data: FederatedDataset, engine: Engine) -> DenseKernel | None:
    return engine.kernel if engine.kernel is not None and engine.kernel.reads(data) else None


def _compiled_sums(
    kernel: DenseKernel,
    data: FederatedDataset,
    rows: Rows,
    ids: np.ndarray,
    w: Tensor,
    engine: Engine,
    hits: bool,
    threads: bool = True,
) -> list[Tensor]:
    """Return what ``client_sums`` does, from compiled code; w is [P], or [C, P]: a model for each client."""
    owner, starts, counts = _pieces(rows, ids)
    found = np.zeros((1 + hits, len(owner)))

    def part(share: np.ndarray) -> None:
        models = w if w.dim() == 1 else w[torch.from_numpy(owner[share])]
        sums = kernel.measure(data, rows.index, starts[share], counts[share], models, hits=hits)
        for total, some in zip(found, sums, strict=False):
            assert some is not None
            total[share] = some.numpy()  # no set of examples is in two shares

    most = _most_clients(kernel, engine) if w.dim() == 2 else None  # the models of a share are copied
    shares = balanced(counts, kernel.threads(int(counts.sum()), engine.workers) if threads else 1, most)
    if threads:
        engine.map(part, shares)
    else:
        for share in shares:
            part(share)
    return [torch.from_numpy(np.bincount(owner, values, len(ids))) for values in found]


def _pieces(rows: Rows, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut the examples of clients with very many, so that threads can share them.

    Returns:
        The client of each piece as a position in ``ids``, where its rows begin, and its number of examples; clients
        without examples have no piece.
    """
    starts, counts = rows.starts[ids], rows.counts[ids]
    if counts.max(initial=0) <= _PIECE:
        owner = np.flatnonzero(counts)
        return owner, starts[owner], counts[owner]
    pieces = -(-counts // _PIECE)
    owner = np.repeat(np.arange(len(ids)), pieces)
    first = (np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * _PIECE
    return owner, starts[owner] + first, np.minimum(counts[owner] - first, _PIECE)


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

        def block(part: Tensor) -> Tensor:
            return self.task.predict(w, self.data.features(part))

        def all_blocks() -> Tensor:
            return torch.cat(self.engine.map(block, rows.split(_block(self.data, self.engine))))

        rows = self.data.train.of_clients(ids)
        logits = _in_blocks(self.data, self.engine, all_blocks)
        return Examined(rows, self.data.train.counts[ids], logits, y.index_select(0, rows))


class _Group(NamedTuple):
    """Blocks of similar size of A clients."""

    clients: Tensor  # [A] positions in the list of clients
    rows: Tensor  # [A, n] rows of the data set
    weight: Tensor  # [A, n] 1 / (all examples of the client) on real examples, 0 on padding


def _block(data: FederatedDataset, engine: Engine, many: int = 1) -> int:
    """Return the number of examples of ``many`` blocks."""
    values = max(1, prod(data.shape), data.work_values)
    return engine.at_once("examples", many * max(1, _BLOCK_VALUES // values, min(_FEW_ROWS, _MOST_VALUES // values)))


def _number_of_blocks(examples: int, most: int) -> int:
    """Return the number of equal blocks of at most ``most`` examples: one that threads can share evenly.

    It does not depend on the number of threads, since results depend on it by rounding.
    """
    least = max(1, -(-examples // most))
    numbers = (-(-least // threads) * threads for threads in (8, 4, 2))
    return next((n for n in numbers if examples >= n * _FEW_ROWS // 2), least)


def _groups(data: FederatedDataset, rows: Rows, ids: np.ndarray, engine: Engine) -> list[_Group]:
    """Cut the examples of every client into blocks of at most ``_MOST_ROWS``, and group blocks of similar size."""
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
            groups.append(
                _Group(
                    upload(members, device),
                    rows.index[upload(place, device)],
                    upload(weight, device, data.dtype),
                )
            )
    return groups


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
        self._cut: tuple[Limits, list[_Group]] | None = None
        self._groups()  # before the first round, and not in the worker threads

    def _groups(self) -> list[_Group]:
        """Return the blocks, cut again if the engine has less memory than before."""
        if self._cut is None or self._cut[0] != self.engine.limits:
            groups = [] if self._kernel else _groups(self.data, self.rows, self.ids, self.engine)
            self._cut = self.engine.limits, groups
        return self._cut[1]

    @torch.no_grad()
    def gradients(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return F_k(w) [C] float64 and ∇F_k(w) [C, P] of one model w [P] over all examples of each client.

        Raises:
            OutOfMemory: If a single example does not fit.
        """
        kernel = self._kernel
        if kernel is not None:
            return _in_shares(kernel, self.engine, lambda: self._compiled_gradients(kernel, w))
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

    def _compiled_gradients(self, kernel: DenseKernel, w: Tensor) -> tuple[Tensor, Tensor]:
        data, rows, counts = self.data, self.rows, self.rows.counts[self.ids]
        starts = rows.starts[self.ids]
        loss, grad = torch.empty(self.count, dtype=torch.float64), w.new_empty(self.count, len(w))

        def part(share: np.ndarray) -> None:
            f, _ = kernel.measure(data, rows.index, starts[share], counts[share], w, gradients=(grad, share))
            loss[torch.from_numpy(share)] = f  # no client is in two shares

        threads = kernel.threads(int(counts.sum()), self.engine.workers)
        self.engine.map(part, balanced(counts, threads, _most_clients(kernel, self.engine)))
        return loss / torch.from_numpy(np.maximum(counts, 1)), grad

    @torch.no_grad()
    def sums(self, w: Tensor, hits: bool = False, threads: bool = True) -> list[Tensor]:
        """Return the sum of the example losses of each client's own model, and with ``hits`` the correct examples.

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
            return _compiled_sums(kernel, self.data, self.rows, self.ids, w, self.engine, hits, threads)

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

        done: Sequence[list[Tensor]] = self.engine.map(part, groups) if threads else [part(group) for group in groups]
        totals = [torch.zeros(self.count, dtype=torch.float64, device=device) for _ in range(1 + hits)]
        for group, values in zip(groups, done, strict=True):
            for total, v in zip(totals, values, strict=True):
                total[group.clients] += v  # no client is in a group twice
        return totals


def _per_example(logits: Tensor, y: Tensor, hits: bool, lead: int) -> list[Tensor]:
    right = [logits.max(-1).indices == y] if hits else []
    return [example_losses(logits, y, lead), *(r if r.dim() == lead else over_tokens(r.double(), lead) for r in right)]

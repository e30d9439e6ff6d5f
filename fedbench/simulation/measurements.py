"""Measurements, on clients' own examples, of one shared model or of one model per client.

The sums of a shared model are computed only once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from typing import NamedTuple, TypeVar
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from fedbench.core.types import Batch, Predictions, State, to_device
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.simulation.compiled.dense import DenseKernel
from fedbench.simulation.engine import Engine, Limits
from fedbench.simulation.local_work import balanced, chunks, ragged_arange
from fedbench.simulation.task import Task, example_losses, over_tokens

T = TypeVar("T")

# feature values in one block: the results computed from them should stay in the cache
_BLOCK_VALUES = 2**19
# a block has at least _FEW_ROWS examples, unless these take more than _MOST_VALUES values
_FEW_ROWS = 64
_MOST_VALUES = 2**25
_GROUP = 8  # blocks' worth of examples of several clients, each with its own model
_MOST_ROWS = 2048  # examples of a client in one gradient; more are summed block by block
_PIECE = 4096  # examples of a client that one call of compiled code measures
# plans that are kept: training, test and validation examples of all clients, and of a cohort
_PLANS = 4
_MODELS = 2  # models whose sums a plan keeps: those before and after a round


@dataclass(eq=False)
class Measurements:
    """Losses, accuracies and gradients on clients' own examples.

    Attributes:
        task: The model and its loss.
        engine: Engine that carries out the measurements.
    """

    task: Task
    engine: Engine
    _plans: list[ExamplePlan] = field(default_factory=list)

    def plan(
        self,
        data: FederatedDataset,
        rows: Rows,
        ids: np.ndarray,
    ) -> ExamplePlan:
        """Return the plan of the training, test or validation examples of clients [C]."""
        for plan in self._plans:
            if plan.data is data and plan.rows is rows and np.array_equal(plan.ids, ids):
                self._plans.remove(plan)
                break
        else:
            plan = ExamplePlan(self.task, data, rows, ids, self.engine)

        self._plans.insert(0, plan)
        del self._plans[_PLANS:]
        return plan

    def new_plan(
        self,
        data: FederatedDataset,
        ids: np.ndarray,
        threads: bool = True,
    ) -> ExamplePlan:
        """Return a plan of the training examples of clients [C] that no other code shares."""
        return ExamplePlan(self.task, data, data.train, ids, self.engine, threads)

    def at_broadcast(
        self,
        data: FederatedDataset,
        ids: np.ndarray,
        w: Tensor,
        needs: Set[str],
    ) -> State:
        """Return the values of "loss", "accuracy" and "grad" that are in ``needs``.

        Losses and accuracies are [C], gradients [C, P].
        """
        plan = self.plan(data, data.train, ids)
        probe: State = {}
        if "grad" in needs:
            probe["loss"], probe["grad"] = plan.gradients(w)
        if "accuracy" in needs or ("loss" in needs and not probe):
            probe |= plan.means(w, hits="accuracy" in needs)
        return {k: v for k, v in probe.items() if k in needs}

    def mean_losses(
        self,
        data: FederatedDataset,
        ids: np.ndarray,
        w: Tensor,
    ) -> Tensor:
        """Return F_k(w), each client's mean loss over its training examples, [C] float64."""
        return self.plan(data, data.train, ids).means(w)["loss"]

    def losses_of_several(
        self,
        data: FederatedDataset,
        ids: np.ndarray,
        models: Tensor,
    ) -> Tensor:
        """Return the losses F_k of several models [J, P], as [C, J] float64.

        The losses are not kept for other measurements.
        """
        plan = self.new_plan(data, ids)
        losses = [plan.means(w)["loss"] for w in models]
        return torch.stack(losses, 1)

    @torch.no_grad()
    def predictions(
        self,
        data: FederatedDataset,
        w: Tensor,
        ids: np.ndarray,
        y: Tensor,
    ) -> Predictions:
        """Return the logits of a model w [P] on the training examples of the clients ``ids``.

        ``y`` [T] contains the labels.
        """
        plan = self.new_plan(data, ids)
        labels = y.index_select(0, plan.index)
        return Predictions(plan.index, plan.logits(w), labels)


class _Group(NamedTuple):
    """Blocks of similar size from A clients."""

    clients: Tensor  # [A] positions in the list of clients
    rows: Tensor  # [A, n] rows of the data set
    weight: Tensor  # [A, n] 1 / (all examples of the client) on real examples, 0 on padding


class _Pieces(NamedTuple):
    """Pieces of the clients' examples."""

    owner: np.ndarray  # the client of each piece, as a position in the list of clients
    starts: np.ndarray  # the first row of each piece
    counts: np.ndarray  # the number of examples of each piece


@dataclass(eq=False)
class ExamplePlan:
    """The examples of each of C clients, on which models are measured any number of times.

    Compiled code is used for data that it can read. Otherwise, one model is measured in a flat pass
    over the examples of all clients, and the clients' own models are measured in groups of clients
    with blocks of similar size.

    Attributes:
        task: The model and its loss.
        data: The data set.
        rows: Training, test or validation rows of the data set.
        ids: Ids of the clients [C].
        engine: Engine that carries out the measurements.
        threads: Whether to use the engine's worker threads. If not, the caller must handle
            allocation errors.
    """

    task: Task
    data: FederatedDataset
    rows: Rows
    ids: np.ndarray
    engine: Engine
    threads: bool = True
    _cut: tuple[Limits, list[_Group]] | None = None
    # weak references, which do not keep models alive
    _known: list[tuple[ref[Tensor], list[Tensor]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = self.rows.counts[self.ids]
        self._starts = self.rows.starts[self.ids]
        kernel = self.engine.kernel
        self._kernel = kernel if kernel is not None and kernel.reads(self.data) else None

    @cached_property
    def index(self) -> Tensor:
        """Rows of all examples, client by client, [M]."""
        return self.rows.of_clients(self.ids)

    def means(self, w: Tensor, hits: bool = False) -> State:
        """Return the mean "loss" of a model and, with ``hits`` or if known, the "accuracy".

        Both are [C] float64. The arguments are those of ``sums``.
        """
        sums = self.sums(w, hits)
        n = to_device(self.counts, sums[0].device, sums[0].dtype)
        names = ("loss", "accuracy")
        return {name: v / n for name, v in zip(names, sums, strict=False)}

    @torch.no_grad()
    def sums(
        self,
        w: Tensor,
        hits: bool = False,
        measured: Callable[[int], None] = lambda examples: None,
    ) -> list[Tensor]:
        """Return each client's sum of losses and, with ``hits`` or if known, its correct examples.

        Both are [C] float64. The sums of a shared model are computed once: the model is recognised
        as an object, so it must not be changed in place. Sums of the clients' own models are not
        kept, because the loop changes these models in place.

        Args:
            w: One model [P], or one model per client [C, P], on any device.
            hits: Whether to count correct examples too.
            measured: Function called with the number of examples of every block that is done, on
                any thread. Compiled code is fast and does not call it.

        Raises:
            OutOfMemory: If a single example does not fit.
        """
        for model, known in self._known:
            has_hits = len(known) > 1
            if model() is w and (has_hits or not hits):
                return known

        kernel = self._kernel
        shared = w.dim() == 1

        def measure() -> list[Tensor]:
            if kernel is not None:
                return self._measure_compiled(kernel, w, hits)[0]
            if shared:
                return self._flat_sums(w, hits, measured)
            return self._grouped_sums(w, hits, measured)

        sums = self._within_memory(measure, 1 if shared else _GROUP)
        if shared:
            self._known = [(ref(w), sums), *self._known][:_MODELS]
        return sums

    @torch.no_grad()
    def gradients(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return F_k(w) [C] float64 and ∇F_k(w) [C, P] of one model w [P], or one each [C, P].

        Both are means over all examples of each client.

        Raises:
            OutOfMemory: If a single example does not fit.
        """
        kernel = self._kernel

        def measure() -> tuple[Tensor, Tensor]:
            if kernel is None:
                return self._grouped_gradients(w)
            (losses,), gradients = self._measure_compiled(kernel, w, gradients=True)
            n = np.maximum(self.counts, 1)
            return losses / torch.from_numpy(n), gradients

        return self._within_memory(measure, _GROUP)

    @torch.no_grad()
    def class_counts(self, w: Tensor) -> Tensor:
        """Return each client's examples per class: correct, labelled, predicted, [C, 3, classes].

        The counts are float64. Every example must have one label.

        Args:
            w: One model [P], or one model per client [C, P], on any device.

        Raises:
            OutOfMemory: If a single example does not fit.
        """
        clients = len(self.ids)
        classes = self.data.classes

        def predict(group: _Group) -> Tensor:
            logits, y, real = self._evaluated(w, group)
            owner = group.clients.unsqueeze(1).expand_as(real)
            return torch.stack([owner, y, logits.max(-1).indices])[:, real]

        def predict_all() -> Tensor:
            predicted = self.engine.map(predict, self._groups(), threads=self.threads)
            # the first entry counts if no client has examples
            return torch.cat([self.index.new_empty(3, 0), *predicted], 1)

        if w.dim() == 1:
            owner = to_device(np.repeat(np.arange(clients), self.counts), self.index.device)
            y = self.data.labels(self.index)
            predicted = self.logits(w).max(-1).indices
        else:
            owner, y, predicted = self._within_memory(predict_all, _GROUP)
        start = owner * classes
        correct = (start + y)[predicted == y]
        counts = []
        for cells in (correct, start + y, start + predicted):
            counts.append(torch.bincount(cells, minlength=clients * classes))
        return torch.stack(counts).double().view(3, clients, classes).transpose(0, 1)

    def logits(self, w: Tensor) -> Tensor:
        """Return the outputs of one model w [P], [M, classes]."""

        def predict_all() -> Tensor:
            blocks = self.index.split(self._examples_at_once(1))
            logits = self.engine.map(partial(self._predict, w), blocks, threads=self.threads)
            return torch.cat(logits)

        return self._within_memory(predict_all, 1)

    def _predict(self, w: Tensor, rows: Tensor) -> Tensor:
        return self.task.predict(w, self.data.features(rows))

    def _flat_sums(
        self,
        w: Tensor,
        hits: bool,
        measured: Callable[[int], None],
    ) -> list[Tensor]:
        def measure(rows: Tensor) -> list[Tensor]:
            logits = self._predict(w, rows)
            values = _per_example(logits, self.data.labels(rows), hits, 1)
            measured(len(rows))
            return values

        number = _number_of_blocks(len(self.index), self._examples_at_once(1))
        blocks = self.index.tensor_split(number)
        by_block = self.engine.map(measure, blocks, threads=self.threads)
        lengths = to_device(self.counts, self.index.device)
        sums = []
        for values in zip(*by_block, strict=True):
            of_clients = torch.segment_reduce(
                torch.cat(values).double(),
                "sum",
                lengths=lengths,
                initial=0,
                unsafe=True,
            )
            sums.append(of_clients)
        return sums

    def _grouped_sums(
        self,
        w: Tensor,
        hits: bool,
        measured: Callable[[int], None],
    ) -> list[Tensor]:
        def measure(group: _Group) -> list[Tensor]:
            logits, y, real = self._evaluated(w, group)
            values = _per_example(logits, y, hits, 2)
            measured(group.rows.numel())
            return [(v.double() * real).sum(1) for v in values]

        shape = (1 + hits, len(self.ids))
        totals = torch.zeros(shape, dtype=torch.float64, device=self.data.x.device)
        return self._add_up(list(totals), measure)

    def _evaluated(
        self,
        w: Tensor,
        group: _Group,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the logits [A, n, classes] and labels of a group, and which examples are real."""
        models = w.index_select(0, group.clients.to(w.device)).to(self.data.x.device)
        logits = self.engine.oracle.logits(models, self.data.features(group.rows))
        return logits, self.data.labels(group.rows), group.weight > 0

    def _grouped_gradients(self, w: Tensor) -> tuple[Tensor, Tensor]:
        losses = w.new_zeros(len(self.ids), 1, dtype=torch.float64)
        gradients = w.new_zeros(len(self.ids), w.shape[-1])
        every = w.expand(len(self.ids), -1)

        def measure(group: _Group) -> tuple[Tensor, Tensor]:
            features = self.data.features(group.rows)
            labels = self.data.labels(group.rows)
            batch = Batch(features, labels, group.weight)
            models = every.index_select(0, group.clients)
            return self.engine.oracle.loss_and_grad(models, batch)

        self._add_up([losses, gradients], measure)
        return losses.squeeze(1), gradients

    def _add_up(
        self,
        totals: list[Tensor],
        measure: Callable[[_Group], Sequence[Tensor]],
    ) -> list[Tensor]:
        """Add the measurements of every group to ``totals``, each [C, ...], and return them."""
        groups = self._groups()
        measured = self.engine.map(measure, groups, threads=self.threads)
        for group, values in zip(groups, measured, strict=True):
            for total, v in zip(totals, values, strict=True):
                total[group.clients] += v  # no client is in a group twice
        return totals

    def _measure_compiled(
        self,
        kernel: DenseKernel,
        w: Tensor,
        hits: bool = False,
        gradients: bool = False,
    ) -> tuple[list[Tensor], Tensor]:
        """Return sums like ``sums`` and, with ``gradients``, the mean losses' gradients [C, P]."""
        pieces = self._pieces
        if gradients:  # gradients are not combined from pieces
            pieces = _Pieces(np.arange(len(self.ids)), self._starts, self.counts)
        owner, starts, counts = pieces
        examples = kernel.examples(self.data.x, self.data.y, self.data)

        def measure(share: np.ndarray) -> tuple[Tensor, Tensor]:
            models = w if w.dim() == 1 else w[torch.from_numpy(owner[share])]
            return kernel.measure(
                examples,
                self.rows.index,
                starts[share],
                counts[share],
                models,
                hits=hits,
                gradients=gradients,
            )

        one_model = w.dim() == 1 and not gradients
        # all vectors of a share are in memory
        most = None if one_model else self._clients_at_once(kernel)
        workers = self.engine.all_workers if self.threads else 1
        threads = kernel.threads(int(counts.sum()), workers)
        shares = balanced(counts, threads, most)
        if len(shares) == 1:
            sums, rows = measure(shares[0])
        else:
            sums = torch.zeros(1 + hits, len(owner), dtype=torch.float64)
            rows = w.new_empty(len(owner) if gradients else 0, w.shape[-1])

            # no piece is in two shares
            def store(share: np.ndarray, measured: tuple[Tensor, Tensor]) -> None:
                sums[:, share] = measured[0]
                if gradients:
                    rows[share] = measured[1]

            self.engine.map(measure, shares, store, self.threads)
        by_client = []
        for values in sums:
            totals = np.bincount(owner, values, len(self.ids))
            by_client.append(torch.from_numpy(totals))
        return by_client, rows

    @cached_property
    def _pieces(self) -> _Pieces:
        """The clients' examples, cut into pieces so that threads can share large clients.

        Clients without examples have no piece.
        """
        pieces = -(-self.counts // _PIECE)
        owner = np.repeat(np.arange(len(pieces)), pieces)
        first = ragged_arange(pieces) * _PIECE
        counts = np.minimum(self.counts[owner] - first, _PIECE)
        return _Pieces(owner, self._starts[owner] + first, counts)

    def _within_memory(
        self,
        work: Callable[[], T],
        blocks: int,
    ) -> T:
        """Return ``work()``; if memory runs out, measure fewer clients or examples at once."""
        kernel = self._kernel
        if not self.threads:
            return work()
        if kernel is not None:
            return self.engine.within_memory(
                work,
                "clients",
                lambda: self._clients_at_once(kernel),
                "one model does not fit",
            )
        return self.engine.within_memory(
            work,
            "examples",
            lambda: self._examples_at_once(blocks),
            "measuring one example does not fit into memory",
        )

    def _clients_at_once(self, kernel: DenseKernel) -> int:
        """Return the number of clients, each with its own model, per call of compiled code."""
        return min(kernel.most_clients, self.engine.limits.clients)

    def _examples_at_once(self, blocks: int) -> int:
        """Return the number of examples in ``blocks`` blocks."""
        values = max(1, prod(self.data.shape), self.task.traits.work_values)
        few = min(_FEW_ROWS, _MOST_VALUES // values)
        block = max(1, few, _BLOCK_VALUES // values)
        return min(blocks * block, self.engine.limits.examples)

    def _groups(self) -> list[_Group]:
        """Return blocks of at most ``_MOST_ROWS`` examples of every client.

        Blocks of similar size form a group. The groups are formed again if the limits of the engine
        have changed.
        """
        if self._cut is not None and self._cut[0] == self.engine.limits:
            return self._cut[1]
        groups: list[_Group] = []
        device = self.data.x.device
        size = min(_MOST_ROWS, self._examples_at_once(1))
        # the next block of every client that has one
        for start in range(0, int(self.counts.max(initial=0)), size):
            clients = np.flatnonzero(self.counts > start)
            length = np.minimum(self.counts[clients] - start, size)
            fitting = self._examples_at_once(_GROUP) // int(length.max())
            most = max(1, min(self.engine.cohort_size, fitting))

            for chunk in chunks(clients, np.ones_like(length), length, most):
                members = clients[chunk]
                count = length[chunk][:, None]
                column = np.arange(count.max())
                first = (self._starts[members] + start)[:, None]
                place = first + np.minimum(column, count - 1)
                weight = (column < count) / self.counts[members][:, None]
                group = _Group(
                    clients=to_device(members, device),
                    rows=self.rows.index[to_device(place, device)],
                    weight=to_device(weight, device, self.data.dtype),
                )
                groups.append(group)
        self._cut = self.engine.limits, groups
        return groups


def _number_of_blocks(examples: int, most: int) -> int:
    """Return the number of equal blocks of at most ``most`` examples that threads can share evenly.

    The number does not depend on the number of threads, because it affects results by rounding.
    """
    least = max(1, -(-examples // most))
    for threads in (8, 4, 2):
        number = -(-least // threads) * threads
        if examples >= number * _FEW_ROWS // 2:
            return number
    return least


def _per_example(
    logits: Tensor,
    y: Tensor,
    hits: bool,
    lead: int,
) -> list[Tensor]:
    """Return the loss of each example and, with ``hits``, whether it is correct.

    For a sequence, correctness is the share of correct tokens.
    """
    losses = example_losses(logits, y, lead)
    if not hits:
        return [losses]
    correct = logits.max(-1).indices == y
    if correct.dim() > lead:
        correct = over_tokens(correct.double(), lead)
    return [losses, correct]

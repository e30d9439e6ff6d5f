"""One round of local work.

A cohort is divided into parts, the parts are trained, and their results are combined.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Set
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm
from fedbench.core.randomness import Purpose, fold_in, key
from fedbench.core.types import ClientInfo, State, nbytes, to_device, weighted_sum
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.compiled.dense import SHARE_BYTES, DenseKernel
from fedbench.simulation.engine import Limits
from fedbench.simulation.local_work import (
    BatchLayout,
    LocalWork,
    balanced,
    chunks,
    start_local,
    train_chunk,
)
from fedbench.simulation.measurements import ExamplePlan, Measurements
from fedbench.simulation.statistics import trained_models

# uploads of a cohort up to this size are held at once; larger ones are added up part by part
_HELD_BYTES = 2**28
_LEAST_SHARES = 8  # minimum number of shares of a cohort that is too large for one share


class PartResult(NamedTuple):
    """Result of the local phase of one part with c clients."""

    uploads: State  # [c, ...]; uploads that are held
    after: State  # [c], measured at the local models
    states: State  # [c, ...]; new client states
    sums: State  # [P] float64; sums of the uploads that are added up
    types: dict[str, torch.dtype]  # types of the uploads that are added up
    size: int  # size of all uploads in bytes


class CohortResult:
    """Result of the local phase of a cohort, combined from its parts.

    Several threads may call the methods. Sums are formed in the order of the parts, regardless of
    which part finishes first.

    Args:
        ids: The clients of the cohort [C].
        home: States of all clients [N, ...], in which new states replace the old ones. If None, new
            states are kept separately.

    Attributes:
        in_place: Whether the new states replace the old ones.
        uploads: The uploads, [C, ...]; at the end, also the sums of uploads, [P].
        sums: Sums of the uploads that are added up, [P] float64.
        types: Types of the uploads that are added up.
        client_states: New client states, [C, ...]; empty if they have replaced the old ones.
        after: Measurements at the local models, [C].
        bytes_up: Size of all uploads in bytes.
    """

    def __init__(self, ids: Tensor, home: State | None) -> None:
        self._ids = ids
        self._home = home
        self.in_place = home is not None
        self.uploads: State = {}
        self.sums: State = {}
        self.types: dict[str, torch.dtype] = {}
        self.client_states: State = {}
        self.after: State = {}
        self.bytes_up = 0
        self._missing = np.ones(len(ids), dtype=bool)
        self._waiting: dict[int, State] = {}
        self._next = 0
        self._lock = threading.Lock()

    def store(
        self,
        total: State,
        rows: Tensor | slice,
        some: State,
    ) -> None:
        """Copy the entries of the clients at ``rows`` to their places in ``total``."""
        for name, v in some.items():
            if name not in total:
                place = v.new_empty(len(self._ids), *v.shape[1:])
                total.setdefault(name, place)  # if two threads allocate, one tensor is kept
            total[name][rows] = v

    def add(
        self,
        item: tuple[int, Part],
        result: PartResult,
    ) -> None:
        """Store the result of a numbered part, and add its sums to those of earlier parts."""
        number, part = item
        self.store(self.after, part.rows, result.after)
        self.store(self.uploads, part.rows, result.uploads)
        if self._home is None:
            self.store(self.client_states, part.rows, result.states)
        else:
            write_rows(self._home, self._ids[part.rows], result.states)
        with self._lock:
            self._missing[part.positions] = False
            self.bytes_up += result.size
            self.types |= result.types
            self._waiting[number] = result.sums
            while self._next in self._waiting:
                self._add_sums(self._waiting.pop(self._next))
                self._next += 1

    def missing(self) -> np.ndarray:
        """Return the positions of the clients that have not finished.

        The numbering of parts starts at 0 again.
        """
        for number in sorted(self._waiting):  # an allocation error has left a gap before these
            self._add_sums(self._waiting.pop(number))
        self._next = 0
        return np.flatnonzero(self._missing)

    def _add_sums(self, sums: State) -> None:
        for name, v in sums.items():
            if name in self.sums:
                self.sums[name].add_(v)
            else:
                self.sums[name] = v


@dataclass(eq=False)
class Cohort:
    """The clients of one round, and the plan of their work.

    A cohort is reused as long as the same clients do the same work.

    Attributes:
        ids: Ids of the clients [C], ascending.
        tau: Number of local steps of each client [C].
        data: The data set.
        work: The local work.
        measurements: Measurements of the local models, whose engine also carries out the local
            work.
        seed: Random seed of the run.
        purpose: Random stream from which the order of the examples is drawn.
    """

    ids: np.ndarray
    tau: np.ndarray
    data: FederatedDataset
    work: LocalWork
    measurements: Measurements
    seed: int
    purpose: Purpose
    _parts: tuple[bool, Limits, list[Part]] | None = None

    def __post_init__(self) -> None:
        self.engine = self.measurements.engine

    def info(
        self,
        weights: str,
        round: int,
        probe: State | None = None,
    ) -> ClientInfo:
        """Return the facts of the cohort, with leaves [C].

        ``weights``, "size" or "uniform", determines the aggregation weights p.
        """
        device = self.data.x.device
        dtype = self.data.dtype
        counts = self.data.train.counts[self.ids]
        n = to_device(counts, device, dtype)
        p = torch.full_like(n, 1 / len(n))
        if weights == "size":
            p = n / n.sum()
        draws = key(self.seed, Purpose.LOCAL, round)
        return ClientInfo(
            id=to_device(self.ids, device),
            n=n,
            p=p,
            steps=to_device(self.tau, device, dtype),
            lr=torch.full_like(n, self.work.rate(round)),
            per_epoch=to_device(self.work.per_epoch(counts), device, dtype),
            key=to_device(fold_in(draws, self.ids), device),
            probe=probe or {},
        )

    @torch.no_grad()
    def train(
        self,
        algo: Algorithm,
        msg: State,
        clients: State,
        info: ClientInfo,
        round: int,
        weights: State | None = None,
        size: Callable[[State], int] = nbytes,
    ) -> CohortResult:
        """Carry out the local phase of the whole cohort; results are in the order of ``ids``.

        Args:
            algo: The method.
            msg: The broadcast.
            clients: States of all clients, [N, ...].
            info: Facts of the cohort; leaves [C].
            round: Rounds done before this one.
            weights: Weights [C], by name, of the uploads that may be added up as clients finish;
                they are added up if holding them all would take a lot of memory. If given, new
                client states replace the old ones in ``clients``, unless the method has a second
                local phase. If None, uploads and states are kept separately.
            size: Function that returns the size in bytes of uploads as sent.

        Raises:
            OutOfMemory: If the local phase of one client does not fit.
        """
        compiled = self._is_compiled(algo)
        uploads_bytes = len(self.ids) * msg["w"].nbytes
        most_bytes = SHARE_BYTES if compiled else _HELD_BYTES
        summed: State = {}
        if weights is not None and uploads_bytes > most_bytes:
            summed = weights
        in_place = weights is not None and algo.personal is None
        result = CohortResult(info.id, clients if in_place else None)

        def train_part(item: tuple[int, Part]) -> PartResult:
            part = item[1]
            part_info = info.take(part.rows)
            states = read_rows(clients, part_info.id)
            uploads, states, local = part.local_phase(algo, msg, states, part_info, round)
            size_up = size(uploads)
            after = part.measured(local, algo.needs)

            held = dict(uploads)
            sums = {}
            types = {}
            for name, weight in summed.items():
                values = held.pop(name)
                sums[name] = self._sum(weight[part.rows], values)
                types[name] = values.dtype
            return PartResult(held, after, states, sums, types, size_up)

        def missing_parts() -> list[Part]:
            return self._cut(compiled, result.missing())

        def train_missing() -> None:
            self.engine.map(train_part, enumerate(missing_parts()), result.add)

        self.engine.within_memory(
            train_missing,
            unit="clients",
            used=lambda: max(len(part.positions) for part in missing_parts()),
            smallest="the local phase of one client does not fit into memory next to the uploads "
            "of the others; use a smaller local.batch_size, model or participation",
        )
        for name, total in result.sums.items():
            result.uploads[name] = total.to(result.types[name])
        return result

    def _is_compiled(self, algo: Algorithm) -> bool:
        """Return whether the engine's compiled code carries out the local phase of a method."""
        kernel = self.engine.kernel
        if kernel is None or self.work.random or self.work.augment is not None:
            return False
        return kernel.supports(algo.step) and kernel.reads(self.data)

    def _sum(self, weights: Tensor, values: Tensor) -> Tensor:
        """Return Σ ω_k v_k in float64, for ω [C] and v [C, P]."""
        kernel = self.engine.kernel
        if kernel is not None and values.dtype == self.data.dtype:
            return kernel.weighted_sum(weights, values)
        return weighted_sum(weights, values)

    def _cut(
        self,
        compiled: bool,
        positions: np.ndarray,
    ) -> list[Part]:
        """Divide the clients at ``positions`` into parts; the parts of the whole cohort are kept.

        The cohort is divided again after an allocation error has lowered the limits.
        """
        limits = self.engine.limits
        whole = len(positions) == len(self.ids)
        if whole and self._parts is not None:
            *conditions, parts = self._parts
            if conditions == [compiled, limits]:
                return parts

        ids = self.ids[positions]
        tau = self.tau[positions]
        widths = self.work.widths(self.data.train.counts[ids])
        kernel = self.engine.kernel
        if kernel is None or not compiled:
            cut = chunks(ids, tau, widths, self.engine.cohort_size)
        else:
            cut = self._shares(kernel, cost=tau * widths)

        parts = [Part(self, positions[p], compiled) for p in cut]
        if whole:
            self._parts = compiled, limits, parts
        return parts

    def _shares(
        self,
        kernel: DenseKernel,
        cost: np.ndarray,
    ) -> list[np.ndarray]:
        """Return the clients for each call of compiled code, given the costs of all clients [C]."""
        most = min(kernel.most_clients, self.engine.limits.clients)
        clients = len(cost)
        if clients <= most:
            threads = kernel.threads(int(cost.sum()), self.engine.all_workers)
            return balanced(cost, threads)

        # sums over a large cohort depend on its shares, which must be the same for any number of
        # workers
        count = max(-(-clients // most), _LEAST_SHARES)
        shares = np.array_split(np.arange(clients), min(clients, count))
        # longest first, so that the other threads do not wait for the longest one at the end
        return sorted(shares, key=lambda p: -cost[p].sum())


@dataclass(eq=False)
class Part:
    """Clients of a cohort that are trained together.

    They are trained in steps through an oracle, or in one call of compiled code.

    Attributes:
        cohort: The cohort.
        positions: Positions of the clients in the cohort [c], in descending order of steps unless
            ``compiled``.
        compiled: Whether the engine's compiled code trains the part.
        rows: The positions, on the device of the data; a slice if they are consecutive.
    """

    cohort: Cohort
    positions: np.ndarray
    compiled: bool

    def __post_init__(self) -> None:
        cohort = self.cohort
        positions = self.positions
        self.ids = cohort.ids[positions]
        self.tau = cohort.tau[positions]
        self.kernel = cohort.engine.kernel if self.compiled else None
        self.rows: Tensor | slice = to_device(positions, cohort.data.x.device)
        if (np.diff(positions) == 1).all():
            first = int(positions[0])
            self.rows = slice(first, first + len(positions))

    @cached_property
    def _layout(self) -> BatchLayout:
        cohort = self.cohort
        return BatchLayout(self.ids, self.tau, cohort.data, cohort.work)

    @cached_property
    def _examples(self) -> ExamplePlan:
        """The clients' training examples, on which their own models are measured."""
        cohort = self.cohort
        return cohort.measurements.new_plan(cohort.data, self.ids, threads=False)

    def local_phase(
        self,
        algo: Algorithm,
        msg: State,
        clients: State,
        info: ClientInfo,
        round: int,
    ) -> tuple[State, State, State]:
        """Return the uploads, the new client states and the final local variables, [c, ...].

        Args:
            algo: The method.
            msg: The broadcast.
            clients: States of these clients, [c, ...].
            info: Facts of these clients, leaves [c].
            round: Rounds done before this one.
        """
        cohort = self.cohort
        info = info.columns()
        local = start_local(algo, msg, clients, info)
        if self.kernel is None:
            batches = self._layout.batches(cohort.seed, round, cohort.purpose)
            local = train_chunk(algo, cohort.engine.oracle, msg, local, info, batches)
        else:
            order = key(cohort.seed, cohort.purpose, round)
            local = self.kernel.descend(
                cohort.data,
                cohort.work,
                self.ids,
                self.tau,
                order,
                algo.step,
                msg,
                local,
                info,
            )
        uploads, states = algo.finish(msg, clients, local, info)
        return uploads, states, local

    def measured(self, local: State, needs: Set[str]) -> State:
        """Return the measurements [c] that a method needs of the local models.

        The models are measured on the clients' training examples.
        """
        if not needs & {"loss_after", "accuracy_after"}:
            return {}
        means = self._examples.means(trained_models(local), hits="accuracy_after" in needs)
        after = {f"{name}_after": v for name, v in means.items()}
        return {name: v for name, v in after.items() if name in needs}


def read_rows(states: State, ids: Tensor) -> State:
    """Return the states of the clients ``ids`` [c] on the device of ``ids``.

    The states of all clients [N, ...] may be on another device.
    """
    rows = {}
    for name, v in states.items():
        selected = v.index_select(0, ids.to(v.device))
        rows[name] = selected.to(ids.device)
    return rows


def write_rows(states: State, ids: Tensor, new: State) -> None:
    """Replace the states of the clients ``ids`` [c] in those of all clients [N, ...].

    The states of all clients may be on another device.
    """
    moved = {name: (ids.to(v.device), new[name].to(v.device)) for name, v in states.items()}
    for name, (rows, values) in moved.items():  # after all copies, since one may lack memory
        states[name].index_copy_(0, rows, values)

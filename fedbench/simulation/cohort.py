"""One round of local work: a cohort is cut into parts, the parts are trained, their outcomes are put together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Set
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm
from fedbench.core.randomness import Purpose, hashes, key
from fedbench.core.types import ClientInfo, State, nbytes, upload, weighted_sum
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.compiled.dense import SHARE_BYTES
from fedbench.simulation.local_work import LocalWork, Plan, balanced, chunks, started, train_chunk
from fedbench.simulation.measurements import ExamplePlan, Measurements

_HELD_BYTES = 2**28  # uploads of a cohort up to this size are held at once; they are added up part by part above it
_LEAST_SHARES = 8  # shares of a cohort whose models do not fit into one, for as many threads


class PartResult(NamedTuple):
    """What the local phase of one part leaves, of c clients."""

    uploads: State  # [c, ...]; those that are held
    after: State  # [c], measured at the local models
    states: State  # [c, ...], of the clients
    sums: State  # [P] float64, of the uploads that are added up
    types: dict[str, torch.dtype]  # of these uploads
    size: int  # of all uploads, in bytes


class CohortResult:
    """The outcome of the local phase of a cohort, put together from its parts; several threads may call the methods.

    Sums are formed in the order of the parts, whichever finishes first.

    Args:
        ids: The clients of the cohort [C].
        home: The states of all clients [N, ...], in which new states replace the old ones; None keeps them apart.

    Attributes:
        uploads: The uploads, [C, ...]; at the end also those that are added up, [P].
        sums: What is added up, [P] float64.
        types: The types of these uploads.
        client_states: New states of the clients, [C, ...]; empty if they are where they belong.
        after: What is measured at the local models, [C].
        bytes_up: Size of all uploads.
    """

    def __init__(self, ids: Tensor, home: State | None) -> None:
        self.count, self.bytes_up = len(ids), 0
        self._ids, self._home = ids, home
        self.uploads: State = {}
        self.client_states: State = {}
        self.after: State = {}
        self._missing = np.ones(self.count, dtype=bool)
        self._waiting: dict[int, State] = {}
        self._next = 0
        self.sums: State = {}
        self.types: dict[str, torch.dtype] = {}
        self._lock = threading.Lock()

    def store(self, total: State, rows: Tensor | slice, some: State) -> None:
        """Copy what the clients at ``rows`` have to their places in ``total``."""
        for name, v in some.items():
            if name not in total:
                total.setdefault(name, v.new_empty(self.count, *v.shape[1:]))  # of two threads', one is kept
            total[name][rows] = v

    def add(self, item: tuple[int, Part], result: PartResult) -> None:
        """Take in the outcome of a numbered part, and add its sums to those of the parts before it."""
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
        """The positions of the clients that have not finished; the parts are numbered from 0 again."""
        for number in sorted(self._waiting):  # an allocation error has left a gap before these
            self._add_sums(self._waiting.pop(number))
        self._next = 0
        return np.flatnonzero(self._missing)

    def _add_sums(self, sums: State) -> None:
        for name, v in sums.items():
            self.sums[name] = self.sums[name].add_(v) if name in self.sums else v


class Cohort:
    """The clients of one round with the plan of their work; reused while the same clients do the same work.

    Args:
        ids: The clients [C], ascending.
        tau: Their local steps [C].
        data: The data set.
        work: The local work.
        measurements: Measures the local models; its engine says how the work is carried out.
        seed: Random seed of the run.
        purpose: The stream that the order of the examples is drawn from.
    """

    def __init__(
        self,
        ids: np.ndarray,
        tau: np.ndarray,
        data: FederatedDataset,
        work: LocalWork,
        measurements: Measurements,
        seed: int,
        purpose: Purpose,
    ) -> None:
        self.ids, self.tau, self.data, self.work = ids, tau, data, work
        self.measurements, self.engine, self.seed, self.purpose = measurements, measurements.engine, seed, purpose
        self._parts: dict[bool, list[Part]] = {}
        self._limits = self.engine.limits

    def info(self, weights: str, round: int, probe: State | None = None) -> ClientInfo:
        """The facts of the cohort, leaves [C]; ``weights`` is "size" or "uniform" and decides p."""
        device, dtype, examples = self.data.x.device, self.data.dtype, self.data.train.counts[self.ids]
        n = upload(examples, device, dtype)
        return ClientInfo(
            id=upload(self.ids, device),
            n=n,
            p=n / n.sum() if weights == "size" else torch.full_like(n, 1 / len(n)),
            steps=upload(self.tau, device, dtype),
            lr=torch.full_like(n, self.work.rate(round)),
            per_epoch=upload(self.work.per_epoch(examples), device, dtype),
            key=upload(hashes(key(self.seed, Purpose.LOCAL, round), self.ids), device),
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
        in_place: bool = False,
        size: Callable[[State], int] = nbytes,
    ) -> CohortResult:
        """Carry out the local phase of the whole cohort; outcomes are in the order of ``ids``.

        Args:
            algo: The method.
            msg: The broadcast.
            clients: States of all clients, [N, ...].
            info: Facts of the cohort; leaves [C].
            round: Rounds done before this one.
            weights: Weights [C] of the uploads that are added up, by name.
            in_place: Whether the new states of the clients replace the old ones in ``clients``.
            size: The size of uploads as they are sent.

        Raises:
            OutOfMemory: If the local phase of one client does not fit.
        """
        kernel, weights = self.engine.kernel, weights or {}
        plain = not self.work.random and not self.work.augment
        compiled = plain and kernel is not None and kernel.supports(algo.step) and kernel.reads(self.data)
        held = len(self.ids) * nbytes({"w": msg["w"]})
        summed = weights if held > (SHARE_BYTES if compiled else _HELD_BYTES) else {}  # part by part
        trained = CohortResult(info.id, clients if in_place else None)
        measured = algo.needs & {"loss_after", "accuracy_after"}

        def work(item: tuple[int, Part]) -> PartResult:
            part = item[1]
            own = info.take(part.rows)
            states = {k: v.index_select(0, own.id.to(v.device)).to(own.id.device) for k, v in clients.items()}
            uploads, states, last = part.local_phase(algo, msg, states, own, round)
            sums = {k: self._sum(v[part.rows], uploads[k]) for k, v in summed.items()}
            return PartResult(
                uploads={k: v for k, v in uploads.items() if k not in summed},
                after=part.measured(last["w"], own.n, measured) if measured else {},
                states=states,
                sums=sums,
                types={k: uploads[k].dtype for k in summed},
                size=size(uploads),
            )

        self.engine.within_memory(
            lambda: self.engine.map(work, enumerate(self._cut(compiled, trained.missing())), trained.add),
            "clients",
            lambda: max(len(part.positions) for part in self._cut(compiled, trained.missing())),
            "the local phase of one client does not fit into memory next to the uploads of the others; use a smaller "
            "local.batch_size, model or participation",
        )
        trained.uploads |= {k: v.to(trained.types[k]) for k, v in trained.sums.items()}
        if not summed:
            values = trained.uploads
            values |= {k: weighted_sum(v, values[k]).to(values[k].dtype) for k, v in weights.items()}
        return trained

    def _sum(self, weights: Tensor, values: Tensor) -> Tensor:
        """Return Σ ω_k v_k in float64, ω [C] and v [C, P]."""
        kernel = self.engine.kernel
        if kernel is not None and values.dtype == self.data.dtype:
            return kernel.weighted_sum(weights, values)
        return weighted_sum(weights, values)

    def _cut(self, compiled: bool, positions: np.ndarray) -> list[Part]:
        """Return the clients at ``positions`` in parts; those of the whole cohort are kept."""
        if self._limits != self.engine.limits:  # an allocation error has lowered what is done at once
            self._limits = self.engine.limits
            self._parts.clear()
        whole = len(positions) == len(self.ids)
        if whole and compiled in self._parts:
            return self._parts[compiled]
        ids, tau, count = self.ids[positions], self.tau[positions], len(positions)
        widths, kernel = self.work.widths(self.data.train.counts[ids]), self.engine.kernel
        cost, most = tau * widths, min(kernel.most_clients, self.engine.limits.clients) if kernel is not None else 0
        if kernel is None or not compiled:
            cut = chunks(ids, tau, widths, self.engine.cohort_size)
        elif count <= most:
            cut = balanced(cost, kernel.threads(int(cost.sum()), self.engine.workers * self.engine.ranks.world_size))
        else:  # sums over a large cohort depend on its shares, which must be the same for any number of workers
            cut = np.array_split(np.arange(count), min(count, max(-(-count // most), _LEAST_SHARES)))
            cut.sort(key=lambda p: -cost[p].sum())  # the longest first, so that no thread waits for it alone
        parts = [Part(self, positions[p], compiled) for p in cut]
        if whole:
            self._parts[compiled] = parts
        return parts


class Part:
    """Clients of a cohort that are trained together: in steps through an oracle, or in one call of compiled code.

    Args:
        cohort: The cohort.
        positions: Their positions in it [c]; ordered by falling number of steps, unless the code is compiled.
        compiled: Whether the engine's compiled code carries it out.

    Attributes:
        rows: The positions, on the device of the data; a slice if they are consecutive.
    """

    def __init__(self, cohort: Cohort, positions: np.ndarray, compiled: bool) -> None:
        self.cohort, self.positions = cohort, positions
        self.ids, self.tau = cohort.ids[positions], cohort.tau[positions]
        self.kernel = cohort.engine.kernel if compiled else None
        self.rows: Tensor | slice = upload(positions, cohort.data.x.device)
        if (np.diff(positions) == 1).all():
            self.rows = slice(int(positions[0]), int(positions[-1]) + 1)

    @cached_property
    def _plan(self) -> Plan:
        return Plan(self.ids, self.tau, self.cohort.data, self.cohort.work)

    @cached_property
    def _examples(self) -> ExamplePlan:
        """The clients' training examples, on which their own models are measured."""
        data, measured = self.cohort.data, self.cohort.measurements
        return ExamplePlan(measured.task, data, data.train, self.ids, measured.engine)

    def local_phase(
        self, algo: Algorithm, msg: State, clients: State, info: ClientInfo, round: int
    ) -> tuple[State, State, State]:
        """The uploads, the new client states and the last local variables, [c, ...].

        Args:
            algo: The method.
            msg: The broadcast.
            clients: States of these clients, [c, ...].
            info: Facts of these clients, leaves [c].
            round: Rounds done before this one.
        """
        of = self.cohort
        if self.kernel is None:
            batches = self._plan.batches(of.seed, round, of.purpose)
            return train_chunk(algo, of.engine.oracle, msg, clients, info, batches)
        info, order = info.columns(), key(of.seed, of.purpose, round)
        local = started(algo, msg, clients, info)
        last = self.kernel.descend(of.data, of.work, self.ids, self.tau, order, algo.step, msg, local, info)
        return *algo.finish(msg, clients, last, info), last

    def measured(self, w: Tensor, n: Tensor, needs: Set[str]) -> State:
        """What a method needs of the last local models w [c, P] on the clients' n [c] training examples, [c]."""
        sums = self._examples.sums(w, hits="accuracy_after" in needs, threads=False)
        means = dict(zip(("loss_after", "accuracy_after"), (v / n for v in sums), strict=False))
        return {k: v for k, v in means.items() if k in needs}


def write_rows(states: State, ids: Tensor, new: State) -> None:
    """Replace the states of the clients ``ids`` [c] in those of all clients [N, ...], wherever these are."""
    for name, v in states.items():
        v.index_copy_(0, ids.to(v.device), new[name].to(v.device))

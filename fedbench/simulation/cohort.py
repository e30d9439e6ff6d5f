"""One round of local work: cohorts are cut into chunks, chunks are trained, their uploads are put together."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Descent, weighted_sum
from fedbench.core.randomness import Purpose, hashes, key
from fedbench.core.types import Batch, ClientInfo, Descending, Oracle, State, nbytes
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.batches import LocalWork, Plan
from fedbench.simulation.compiled.dense import SHARE_BYTES, DenseKernel, Work
from fedbench.simulation.engine import Engine, balanced, chunks
from fedbench.simulation.probes import ExamplePlan
from fedbench.simulation.shared_probes import SharedProbes

_HELD_BYTES = 2**28  # uploads of a cohort up to this size are held at once; they are added up chunk by chunk above it
_LEAST_SHARES = 8  # shares of a cohort whose models do not fit into one, for as many threads


class Trained(NamedTuple):
    """The outcome of the local phase of a cohort."""

    uploads: State  # [C, ...]; [P] of those that are added up
    client_states: State  # [C, ...]; empty if they are where they belong
    after: State  # measured at the local models, [C]
    bytes_up: int


def train_cohort(
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
    local = _started(algo, msg, clients, info)
    if isinstance(algo.step, Descent) and algo.step.plain and isinstance(oracle, Descending):
        last = _descend(algo.step, oracle, msg, local, info, batches)
        return *algo.finish(msg, clients, last, info), last
    finished: State = {}
    active, at_work = count, info
    for batch, k in batches:
        if k < active:
            _store_finished(finished, local, k, active, count)
            local = {name: v[:k] for name, v in local.items()}
            active, at_work = k, info.head(k)
        local = algo.step(oracle, msg, local, batch, at_work)
    _store_finished(finished, local, 0, active, count)
    return *algo.finish(msg, clients, finished, info), finished


def _started(algo: Algorithm, msg: State, clients: State, info: ClientInfo) -> State:
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
    w = local["w"].clone()
    for batch, k in batches:
        w_at_work, lr = w[:k], info.lr[:k]
        extra = None
        if step.extra is not None:
            extra = step.extra(msg, {name: v[:k] for name, v in local.items()} | {"w": w_at_work}, info.head(k))
        oracle.descend_(w_at_work, batch, lr)
        if extra is not None:
            w_at_work.addcmul_(lr, extra, value=-1)
    return {**local, "w": w}


def _store_finished(finished: State, local: State, start: int, stop: int, count: int) -> None:
    """Copy the clients start..stop out of ``local``; a view of it would keep the whole chunk's memory alive."""
    for name, v in local.items():
        if name not in finished:
            finished[name] = v.new_empty(count, *v.shape[1:])
        finished[name][start:stop] = v[start:]


class _Part(NamedTuple):
    """A chunk of a cohort."""

    positions: np.ndarray  # in the cohort
    rows: Tensor  # the same, on the device
    plan: Plan
    oracle: Oracle

    def local_phase(
        self, algo: Algorithm, msg: State, clients: State, info: ClientInfo, seed: int, round: int, purpose: Purpose
    ) -> tuple[State, State, State]:
        """Return the uploads, the new client states and the last local variables, [C, ...]."""
        return train_cohort(algo, self.oracle, msg, clients, info, self.plan.batches(seed, round, purpose))


class _Share:
    """Clients of a cohort that compiled code trains in one call.

    Args:
        positions: Their positions in the cohort.
        ids: The clients.
        tau: Their local steps.
        data: The data set.
        work: The local work.
        kernel: The compiled code.
    """

    def __init__(
        self,
        positions: np.ndarray,
        ids: np.ndarray,
        tau: np.ndarray,
        data: FederatedDataset,
        work: LocalWork,
        kernel: DenseKernel,
    ) -> None:
        self.positions, self.data, self.kernel = positions, data, kernel
        together = bool((np.diff(positions) == 1).all())
        self.rows = slice(positions[0], positions[-1] + 1) if together else torch.from_numpy(positions)
        self.starts, self.counts, self.steps = data.train.starts[ids], data.train.counts[ids], tau.astype(np.int64)
        self.width, self.shuffled = int(work.widths(self.counts).max()), work.batch_size is not None

    def local_phase(
        self, algo: Algorithm, msg: State, clients: State, info: ClientInfo, seed: int, round: int, purpose: Purpose
    ) -> tuple[State, State, State]:
        """Return the uploads, the new client states and the last local variables, [C, ...]."""
        work = Work(self.starts, self.counts, self.steps, self.width, self.shuffled, key(seed, purpose, round))
        info = info.columns()
        last = self.kernel.descend(self.data, work, algo.step, msg, _started(algo, msg, clients, info), info)
        return *algo.finish(msg, clients, last, info), last


def store(states: State, ids: Tensor, new: State) -> None:
    """Write the new states of some clients, [C, ...], to their places in the states of all, [N, ...].

    Raises:
        KeyError: If there is no new state under a name.
    """
    for name, v in states.items():
        v.index_copy_(0, ids.to(v.device), new[name].to(v.device))


class _Gathered:
    """The outcomes of the chunks of a cohort, put together by several threads as the chunks finish.

    Sums are formed in the order of the chunks, whichever finishes first.

    Args:
        count: Number of clients of the cohort.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.uploads: State = {}
        self.client_states: State = {}
        self.after: State = {}
        self.bytes_up = self._next = 0
        self._waiting: dict[int, State] = {}
        self._sums: State = {}
        self._types: dict[str, torch.dtype] = {}
        self._lock = threading.Lock()

    def put(self, total: State, rows: Tensor | slice, some: State) -> None:
        """Copy what the clients at ``rows`` have to their places in ``total``."""
        for name, v in some.items():
            with self._lock:
                if name not in total:
                    total[name] = v.new_empty(self.count, *v.shape[1:])
            total[name][rows] = v

    def add(self, number: int, sums: State, uploads: State) -> None:
        """Add the sums [P] float64 of chunk ``number`` to those of the chunks before it."""
        with self._lock:
            self.bytes_up += nbytes(uploads)
            self._types |= {k: uploads[k].dtype for k in sums}
            self._waiting[number] = sums
            while self._next in self._waiting:
                for name, v in self._waiting.pop(self._next).items():
                    self._sums[name] = self._sums[name].add_(v) if name in self._sums else v
                self._next += 1

    def trained(self) -> Trained:
        """Return the outcome of the whole cohort."""
        sums = {k: v.to(self._types[k]) for k, v in self._sums.items()}
        return Trained(self.uploads | sums, self.client_states, self.after, self.bytes_up)


class Cohort:
    """The clients of one round with the plan of their work; reused while the same clients do the same work.

    Args:
        ids: The clients [C], ascending.
        tau: Their local steps [C].
        data: The data set.
        work: The local work.
        engine: How the work is carried out.
    """

    def __init__(
        self, ids: np.ndarray, tau: np.ndarray, data: FederatedDataset, work: LocalWork, engine: Engine
    ) -> None:
        self.ids, self.tau, self.data, self.work, self.engine = ids, tau, data, work, engine
        n, device = data.train.counts[ids], data.x.device
        count = torch.from_numpy(n).to(device, data.dtype)
        self._own: dict[bool, list[ExamplePlan]] = {}
        self._weights: State = {}
        self._facts = {
            "id": torch.from_numpy(ids).to(device),
            "n": count,
            "steps": torch.from_numpy(tau).to(device, data.dtype),
            "lr": torch.full_like(count, work.lr),
            "per_epoch": torch.from_numpy(work.per_epoch(n)).to(device, data.dtype),
        }

    def same(self, ids: np.ndarray, tau: np.ndarray, data: FederatedDataset) -> bool:
        """Return whether this is the cohort of these clients with this work."""
        return data is self.data and np.array_equal(ids, self.ids) and np.array_equal(tau, self.tau)

    def info(self, weights: str, probe: State, seed: int, round: int) -> ClientInfo:
        """Return the facts of the cohort, leaves [C]; ``weights`` is "size" or "uniform" and decides p."""
        if weights not in self._weights:
            n = self._facts["n"]
            self._weights[weights] = n / n.sum() if weights == "size" else torch.full_like(n, 1 / len(n))
        draws = torch.from_numpy(hashes(key(seed, Purpose.LOCAL, round), self.ids)).to(self.data.x.device)
        return ClientInfo(**self._facts, p=self._weights[weights], key=draws, probe=probe)

    @cached_property
    def _parts(self) -> list[_Part]:
        ids, tau, data, device = self.ids, self.tau, self.data, self.data.x.device
        parts = chunks(ids, tau, self.work.widths(data.train.counts[ids]), self.engine.cohort_size)
        return [
            _Part(p, torch.from_numpy(p).to(device), Plan(ids[p], tau[p], data, self.work), self.engine.oracle)
            for p in parts
        ]

    @cached_property
    def _shares(self) -> list[_Share]:
        kernel = self.engine.kernel
        assert kernel is not None
        count, most = len(self.ids), kernel.most_clients
        cost = self.tau * self.work.widths(self.data.train.counts[self.ids])
        if count <= most:
            positions = balanced(cost, self.engine.workers)
        else:  # sums over a large cohort depend on its shares, which must be the same for any number of workers
            positions = np.array_split(np.arange(count), min(count, max(-(-count // most), _LEAST_SHARES)))
            positions.sort(key=lambda p: -cost[p].sum())  # the longest first, so that no thread waits for it alone
        return [_Share(p, self.ids[p], self.tau[p], self.data, self.work, kernel) for p in positions]

    def _compiled(self, algo: Algorithm) -> bool:
        """Return whether there is compiled code for the local phase of a method."""
        kernel = self.engine.kernel
        if kernel is None or self.work.random or self.work.augment:
            return False
        return kernel.carries_out(algo.step) and kernel.reads(self.data)

    def probe(self, algo: Algorithm, probes: SharedProbes, w: Tensor, initial_losses: Tensor | None) -> State:
        """Return what ``algo.needs`` at the broadcast model w [P], leaves [C] (a gradient [C, P])."""
        found = probes.at_broadcast(self.data, self.ids, w, algo.needs)
        return found if initial_losses is None else found | {"loss_init": initial_losses[self._facts["id"]]}

    @torch.no_grad()
    def train(
        self,
        algo: Algorithm,
        msg: State,
        clients: State,
        info: ClientInfo,
        seed: int,
        round: int,
        purpose: Purpose = Purpose.BATCHES,
        weights: State | None = None,
        in_place: bool = False,
    ) -> Trained:
        """Return the outcome of the local phase of the whole cohort, in the order of ``ids``.

        Args:
            algo: The method.
            msg: The broadcast.
            clients: States of all clients, [N, ...].
            info: Facts of the cohort; leaves [C].
            seed: Random seed of the run.
            round: Rounds done before this one.
            purpose: The stream that the order of the examples is drawn from.
            weights: Weights [C] of the uploads that are added up, by name.
            in_place: Whether the new states of the clients replace the old ones in ``clients``.
        """
        compiled, weights = self._compiled(algo), weights or {}
        parts: Sequence[_Part | _Share] = self._shares if compiled else self._parts
        held = len(self.ids) * nbytes({"w": msg["w"]})
        by_part = len(parts) > 1 and held > (SHARE_BYTES if compiled else _HELD_BYTES)
        summed = weights if by_part else {}
        measured = algo.needs & {"loss_after", "accuracy_after"}
        plans = self._plans(compiled, parts) if measured else []  # not in the worker threads
        gathered = _Gathered(len(self.ids))

        @torch.no_grad()
        def work(number: int) -> None:
            part = parts[number]
            own = info.take(part.rows)
            states = {k: v.index_select(0, own.id.to(v.device)).to(own.id.device) for k, v in clients.items()}
            uploads, states, last = part.local_phase(algo, msg, states, own, seed, round, purpose)
            if in_place:
                store(clients, own.id, states)
            else:
                gathered.put(gathered.client_states, part.rows, states)
            if measured:
                sums = plans[number].sums(last["w"], hits="accuracy_after" in algo.needs, threads=False)
                means = dict(zip(("loss_after", "accuracy_after"), (v / own.n for v in sums), strict=False))
                gathered.put(gathered.after, part.rows, {k: v for k, v in means.items() if k in algo.needs})
            gathered.put(gathered.uploads, part.rows, {k: v for k, v in uploads.items() if k not in summed})
            added = {k: self._sum(v[part.rows], uploads[k]) for k, v in summed.items()}
            gathered.add(number, added, uploads)

        self.engine.map(work, range(len(parts)))
        trained = gathered.trained()
        late = {} if by_part else {k: weighted_sum(v, trained.uploads[k]) for k, v in weights.items()}
        return trained._replace(uploads=trained.uploads | late)

    def _sum(self, weights: Tensor, values: Tensor) -> Tensor:
        """Return Σ ω_k v_k in float64, ω [C] and v [C, P]."""
        kernel = self.engine.kernel
        if kernel is not None and values.dtype == self.data.dtype:
            return kernel.weighted_sum(weights, values)
        return weights.double() @ values.double()

    def _plans(self, compiled: bool, parts: Sequence[_Part | _Share]) -> list[ExamplePlan]:
        """Return the plans to evaluate the clients' own models, part by part."""
        if compiled not in self._own:
            self._own[compiled] = [
                ExamplePlan(self.data, self.data.train, self.ids[p.positions], self.engine) for p in parts
            ]
        return self._own[compiled]

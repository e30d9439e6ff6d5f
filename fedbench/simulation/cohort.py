"""One round of local work: cohorts are cut into chunks, chunks are trained, their uploads are put together."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Descent
from fedbench.core.randomness import Purpose, fold_in, key
from fedbench.core.types import Batch, ClientInfo, Descending, Oracle, State
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.batches import LocalWork, Plan
from fedbench.simulation.compiled.dense import DenseKernel, Work
from fedbench.simulation.engine import Engine, balanced, chunks
from fedbench.simulation.probes import ExamplePlan, client_sums
from fedbench.simulation.task import Task


class Trained(NamedTuple):
    """The outcome of the local phase of some clients; every tensor is [C, ...]."""

    uploads: State
    client_states: State
    after: State  # measured at the local models


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


class _Share:
    """Clients of a cohort that compiled code trains in one call.

    Args:
        positions: Their positions in the cohort.
        ids: The clients.
        tau: Their local steps.
        data: The data set.
        work: The local work.
    """

    def __init__(
        self, positions: np.ndarray, ids: np.ndarray, tau: np.ndarray, data: FederatedDataset, work: LocalWork
    ) -> None:
        self.positions, self.rows = positions, torch.from_numpy(positions)
        self.starts, self.counts, self.steps = data.train.starts[ids], data.train.counts[ids], tau.astype(np.int64)
        self.width, self.shuffled = int(work.widths(self.counts).max()), work.batch_size is not None

    def work(self, seed: int, round: int, purpose: Purpose) -> Work:
        """Return the local work of a round."""
        return Work(self.starts, self.counts, self.steps, self.width, self.shuffled, key(seed, purpose, round))


class _Gathered:
    """The outcomes of the chunks of a cohort, put together by several threads as the chunks finish.

    Args:
        count: Number of clients of the cohort.
    """

    def __init__(self, count: int) -> None:
        self.count, self.trained, self._lock = count, Trained({}, {}, {}), threading.Lock()

    def put(self, rows: Tensor, part: Trained) -> None:
        """Copy the outcome of the clients at ``rows`` to their places."""
        for total, some in zip(self.trained, part, strict=True):
            for name, v in some.items():
                with self._lock:
                    if name not in total:
                        total[name] = v.new_empty(self.count, *v.shape[1:])
                total[name].index_copy_(0, rows, v)


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
        self._planned = engine.limits
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
        n = self._facts["n"]
        p = n / n.sum() if weights == "size" else torch.full_like(n, 1 / len(n))
        draws = fold_in(key(seed, Purpose.LOCAL, round), self._facts["id"])
        return ClientInfo(**self._facts, p=p, key=draws, probe=probe)

    @cached_property
    def _all(self) -> ExamplePlan:
        return ExamplePlan(self.data, self.data.train, self.ids, self.engine)

    @cached_property
    def _parts(self) -> list[_Part]:
        ids, tau, data, device = self.ids, self.tau, self.data, self.data.x.device
        parts = chunks(ids, tau, self.work.widths(data.train.counts[ids]), self.engine.cohort_size)
        return [_Part(p, torch.from_numpy(p).to(device), Plan(ids[p], tau[p], data, self.work)) for p in parts]

    @cached_property
    def _shares(self) -> list[_Share]:
        assert self.engine.kernel is not None
        most = self.engine.at_once("clients", self.engine.kernel.most_clients)
        number = max(self.engine.workers, -(-len(self.ids) // most))
        cost = self.tau * self.work.widths(self.data.train.counts[self.ids])
        return [_Share(p, self.ids[p], self.tau[p], self.data, self.work) for p in balanced(cost, number, most)]

    def _follow_limits(self) -> None:
        """Drop the plans of chunks if the engine works on less at once than when they were made."""
        if self._planned != self.engine.limits:
            self._planned = self.engine.limits
            self._own.clear()
            for name in ("_parts", "_shares"):
                self.__dict__.pop(name, None)

    def _kernel(self, algo: Algorithm) -> DenseKernel | None:
        """Return the compiled code for the local phase of a method, or None if it cannot express it."""
        kernel = self.engine.kernel
        if kernel is None or not kernel.carries_out(algo.step) or not kernel.reads(self.data):
            return None
        return None if self.work.random or self.work.augment else kernel

    def probe(self, algo: Algorithm, task: Task, w: Tensor, initial_losses: Tensor | None) -> State:
        """Return what ``algo.needs`` at the broadcast model w [P], leaves [C] (a gradient [C, P])."""
        found: State = {}
        if "grad" in algo.needs:
            found["loss"], found["grad"] = self._all.gradients(w)  # the gradient's forward pass gives the loss
        if "accuracy" in algo.needs or ("loss" in algo.needs and not found):
            sums = client_sums(
                task, self.data, self.data.train, self.ids, w, self.engine, hits="accuracy" in algo.needs
            )
            found |= dict(zip(("loss", "accuracy"), (v / self._facts["n"] for v in sums), strict=False))
        if "loss_init" in algo.needs and initial_losses is not None:
            found["loss_init"] = initial_losses[self._facts["id"]]
        return {k: v for k, v in found.items() if k in algo.needs}

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

        Raises:
            OutOfMemory: If the local phase of one client does not fit.
        """
        kernel = self._kernel(algo)

        def used() -> int:
            parts: Sequence[_Part | _Share] = self._parts if kernel is None else self._shares
            return max(len(part.positions) for part in parts)

        return self.engine.within_memory(
            lambda: self._train(kernel, algo, msg, clients, info, seed, round, purpose),
            "clients",
            used,
            "the local phase of one client does not fit into memory next to the uploads of the others; use a smaller "
            "local.batch_size, model or participation",
        )

    @torch.no_grad()
    def _train(
        self,
        kernel: DenseKernel | None,
        algo: Algorithm,
        msg: State,
        clients: State,
        info: ClientInfo,
        seed: int,
        round: int,
        purpose: Purpose,
    ) -> Trained:
        self._follow_limits()
        measured = bool(algo.needs & {"loss_after", "accuracy_after"})
        gathered = _Gathered(len(self.ids))
        parts: Sequence[_Part | _Share] = self._parts if kernel is None else self._shares
        plans = (
            self._plans(kernel is not None, parts) if measured else []
        )  # computed here and not in the worker threads

        @torch.no_grad()
        def work(number: int) -> None:
            part = parts[number]
            part_info = info.take(part.rows)
            ids = part_info.id
            states = {k: v.index_select(0, ids.to(v.device)).to(ids.device) for k, v in clients.items()}
            if isinstance(part, _Part):
                batches = part.plan.batches(seed, round, purpose)
                uploads, states, last = train_cohort(algo, self.engine.oracle, msg, states, part_info, batches)
            else:
                assert kernel is not None
                columns = part_info.columns()
                local = _started(algo, msg, states, columns)
                last = kernel.descend(self.data, part.work(seed, round, purpose), algo.step, msg, local, columns)
                uploads, states = algo.finish(msg, states, last, columns)
            after: State = {}
            if measured:
                sums = plans[number].sums(last["w"], hits="accuracy_after" in algo.needs, threads=False)
                means = dict(zip(("loss_after", "accuracy_after"), (v / part_info.n for v in sums), strict=False))
                after = {k: v for k, v in means.items() if k in algo.needs}
            gathered.put(part.rows, Trained(uploads, states, after))

        self.engine.map(work, range(len(parts)))
        return gathered.trained

    def _plans(self, compiled: bool, parts: Sequence[_Part | _Share]) -> list[ExamplePlan]:
        """Return the plans to evaluate the clients' own models, part by part."""
        if compiled not in self._own:
            self._own[compiled] = [
                ExamplePlan(self.data, self.data.train, self.ids[p.positions], self.engine) for p in parts
            ]
        return self._own[compiled]

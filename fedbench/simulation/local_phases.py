"""The local phases of the parts of a cohort: step by step through an oracle, or in one call of compiled code."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Descent
from fedbench.core.randomness import Purpose, key
from fedbench.core.types import Batch, ClientInfo, Descending, Oracle, State, upload
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.batches import LocalWork, Plan
from fedbench.simulation.compiled.dense import Work
from fedbench.simulation.engine import Engine
from fedbench.simulation.measurements import ExamplePlan


class Part:
    """Clients of a cohort that are trained together: in steps through an oracle, or in one call of compiled code.

    Args:
        positions: Their positions in the cohort [c]; ordered by falling number of steps, unless the code is compiled.
        ids: The clients [c].
        tau: Their local steps [c].
        data: The data set.
        work: The local work.
        engine: How the work is carried out.
        compiled: Whether the engine's compiled code carries it out.

    Attributes:
        rows: The positions, on the device of the data; a slice if they are consecutive.
    """

    def __init__(
        self,
        positions: np.ndarray,
        ids: np.ndarray,
        tau: np.ndarray,
        data: FederatedDataset,
        work: LocalWork,
        engine: Engine,
        compiled: bool,
    ) -> None:
        self.positions, self.ids, self.tau, self.data, self.work, self.engine = positions, ids, tau, data, work, engine
        self.kernel = engine.kernel if compiled else None
        self.rows: Tensor | slice = upload(positions, data.x.device)
        if (np.diff(positions) == 1).all():
            self.rows = slice(int(positions[0]), int(positions[-1]) + 1)

    @cached_property
    def examples(self) -> ExamplePlan:
        """The clients' training examples, on which their own models are measured."""
        return ExamplePlan(self.data, self.data.train, self.ids, self.engine)

    @cached_property
    def _plan(self) -> Plan:
        return Plan(self.ids, self.tau, self.data, self.work)

    @cached_property
    def _compiled_work(self) -> Work:
        rows, counts = self.data.train, self.data.train.counts[self.ids]
        return Work(
            starts=rows.starts[self.ids],
            counts=counts,
            steps=self.tau.astype(np.int64),
            width=int(self.work.widths(counts).max()),
            shuffled=self.work.batch_size is not None,
        )

    def local_phase(
        self, algo: Algorithm, msg: State, clients: State, info: ClientInfo, seed: int, round: int, purpose: Purpose
    ) -> tuple[State, State, State]:
        """The uploads, the new client states and the last local variables, [c, ...].

        Args:
            algo: The method.
            msg: The broadcast.
            clients: States of these clients, [c, ...].
            info: Facts of these clients, leaves [c].
            seed: Random seed of the run.
            round: Rounds done before this one.
            purpose: The stream that the order of the examples is drawn from.
        """
        if self.kernel is None:
            batches = self._plan.batches(seed, round, purpose)
            return train_cohort(algo, self.engine.oracle, msg, clients, info, batches)
        info = info.columns()
        start, order = _started(algo, msg, clients, info), key(seed, purpose, round)
        last = self.kernel.descend(self.data, self._compiled_work, order, algo.step, msg, start, info)
        return *algo.finish(msg, clients, last, info), last


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
    last = {**local, "w": local["w"].clone()}
    at_work, facts, addend = last, info, step.extra
    for batch, k in batches:
        if k < len(facts.id):
            at_work, facts = {name: v[:k] for name, v in last.items()}, info.head(k)
        added = None if addend is None else addend(msg, at_work, facts)  # at the model before the step
        oracle.descend_(at_work["w"], batch, facts.lr)
        if added is not None:
            at_work["w"].addcmul_(facts.lr, added, value=-1)
    return last


def _store_finished(finished: State, local: State, start: int, stop: int, count: int) -> None:
    """Copy the clients start..stop out of ``local``; a view of it would keep the whole chunk's memory alive."""
    for name, v in local.items():
        if name not in finished:
            finished[name] = v.new_empty(count, *v.shape[1:])
        finished[name][start:stop] = v[start:]

"""The local phases of the parts of a cohort: step by step through an oracle, or in one call of compiled code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property

import numpy as np
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Step
from fedbench.core.randomness import Purpose, key
from fedbench.core.types import Batch, ClientInfo, Oracle, State, upload
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.batches import LocalWork, Plan
from fedbench.simulation.compiled.dense import Work
from fedbench.simulation.engine import Engine
from fedbench.simulation.measurements import ExamplePlan
from fedbench.simulation.steps import descend_, in_place


class Part(ABC):
    """Clients of a cohort that are trained together.

    Args:
        positions: Their positions in the cohort [c].
        ids: The clients [c].
        tau: Their local steps [c].
        data: The data set.
        work: The local work.
        engine: How the work is carried out.

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
    ) -> None:
        self.positions, self.ids, self.tau, self.data, self.work, self.engine = positions, ids, tau, data, work, engine
        self.rows: Tensor | slice = upload(positions, data.x.device)
        if (np.diff(positions) == 1).all():
            self.rows = slice(int(positions[0]), int(positions[-1]) + 1)

    @cached_property
    def examples(self) -> ExamplePlan:
        """The clients' training examples, on which their own models are measured."""
        return ExamplePlan(self.data, self.data.train, self.ids, self.engine)

    @abstractmethod
    def local_phase(
        self, algo: Algorithm, msg: State, clients: State, info: ClientInfo, seed: int, round: int, purpose: Purpose
    ) -> tuple[State, State, State]:
        """Return the uploads, the new client states and the last local variables, [c, ...].

        Args:
            algo: The method.
            msg: The broadcast.
            clients: States of these clients, [c, ...].
            info: Facts of these clients, leaves [c].
            seed: Random seed of the run.
            round: Rounds done before this one.
            purpose: The stream that the order of the examples is drawn from.
        """


class Chunk(Part):
    """Clients whose steps are taken one after another through an oracle, ordered by falling number of steps."""

    @cached_property
    def _plan(self) -> Plan:
        return Plan(self.ids, self.tau, self.data, self.work)

    def local_phase(
        self, algo: Algorithm, msg: State, clients: State, info: ClientInfo, seed: int, round: int, purpose: Purpose
    ) -> tuple[State, State, State]:
        """Return the uploads, the new client states and the last local variables, [c, ...]."""
        batches = self._plan.batches(seed, round, purpose)
        return train_cohort(algo, self.engine.oracle, msg, clients, info, batches)


class Share(Part):
    """Clients that compiled code trains in one call."""

    @cached_property
    def _phase(self) -> Work:
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
        """Return the uploads, the new client states and the last local variables, [c, ...]."""
        kernel, info = self.engine.kernel, info.columns()
        assert kernel is not None
        start, order = _started(algo, msg, clients, info), key(seed, purpose, round)
        last = kernel.descend(self.data, self._phase, order, algo.step, msg, start, info)
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
    if in_place(algo.step, oracle):
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
    step: Step,
    oracle: Oracle,
    msg: State,
    local: State,
    info: ClientInfo,
    batches: Iterable[tuple[Batch, int]],
) -> State:
    """Take all plain steps of a chunk in place on a copy; equal to calling ``step``, up to rounding."""
    last = {**local, "w": local["w"].clone()}
    at_work, facts = last, info
    for batch, k in batches:
        if k < len(facts.id):
            at_work, facts = {name: v[:k] for name, v in last.items()}, info.head(k)
        descend_(step, oracle, msg, at_work, batch, facts)
    return last


def _store_finished(finished: State, local: State, start: int, stop: int, count: int) -> None:
    """Copy the clients start..stop out of ``local``; a view of it would keep the whole chunk's memory alive."""
    for name, v in local.items():
        if name not in finished:
            finished[name] = v.new_empty(count, *v.shape[1:])
        finished[name][start:stop] = v[start:]

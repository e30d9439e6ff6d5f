"""The round loop. It prints and writes nothing and knows no method by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import After, Algorithm, Sampler, Stage
from fedbench.core.randomness import Purpose
from fedbench.core.types import State, nbytes
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.batches import LocalWork
from fedbench.simulation.client_states import Lasting
from fedbench.simulation.cohort import Cohort
from fedbench.simulation.engine import Engine
from fedbench.simulation.probes import Inspection, mean_losses
from fedbench.simulation.task import Task

_MOMENTS = 10  # clients whose moments are shown


class Snapshot(NamedTuple):
    """What the loop yields: everything that the rounds to come depend on, and what the rounds so far have cost.

    ``clients`` is the loop's own memory and valid until the next snapshot; copy what is to be kept.
    """

    round: int  # rounds done, over all stages; 0 is the initial model
    stage: int
    server: State
    clients: State  # lasting states, [N, ...]
    data: FederatedDataset
    cohort: np.ndarray  # ids of the clients of this round
    client_steps: int  # this and what follows: cumulative
    bytes_up: int
    bytes_down: int
    moments: Tensor | None = None  # after a stage's last round: first moments of the cohort [<= 10, P]


def simulate(
    stages: Sequence[Stage],
    task: Task,
    data: FederatedDataset,
    work: LocalWork,
    engine: Engine,
    w: Tensor,
    seed: int,
    sampler: Sampler,
    lasting: Lasting | None = None,
    resume: Snapshot | None = None,
) -> Iterator[Snapshot]:
    """Run the stages one after another and yield a snapshot before the first round and after every round.

    Args:
        stages: what to run; the model passes from one to the next.
        task: the model and its loss.
        data: the federated data set.
        work: what a client does in a round.
        engine: how it is carried out.
        w: the initial model [P].
        seed: of the run.
        sampler: of the cohorts, in stages that have none of their own.
        lasting: where the lasting states live; None: on the device.
        resume: go on after this snapshot, of the same stages and seed; it is not yielded again.

    Same arguments on the same device: bit-identical snapshots, resumed or not.
    """
    loop = _Loop(task, data, work, engine, w, seed, sampler, lasting or Lasting(w.device, "device"))
    now = resume or loop.begin(0, Snapshot(0, 0, {"w": w}, {}, data, np.arange(0), 0, 0, 0), stages[0])
    if resume is None:
        yield now
    done = sum(s.rounds for s in stages[: now.stage])
    for number, stage in enumerate(stages[now.stage :], now.stage):
        if number > now.stage:
            now = loop.begin(number, now, stage)
        for t in range(now.round - done, stage.rounds):
            now = loop.round(t, stage, now)
            yield now
        done += stage.rounds


class _Loop:
    """What stays the same over the rounds, and the plans of cohorts that come again."""

    def __init__(
        self,
        task: Task,
        data: FederatedDataset,
        work: LocalWork,
        engine: Engine,
        w: Tensor,
        seed: int,
        sampler: Sampler,
        lasting: Lasting,
    ) -> None:
        self.task, self.work, self.engine, self.seed, self.sampler = task, work, engine, seed, sampler
        self.lasting, self._start, self._data = lasting, w, data
        self._cohorts: dict[Purpose, Cohort] = {}
        self._initial: Tensor | None = None

    def begin(self, number: int, now: Snapshot, stage: Stage) -> Snapshot:
        """Return the state in which a stage begins."""
        algo, w, count = stage.algorithm, now.server["w"], now.data.num_clients
        server = algo.server_init(w, count) | {k: now.server[k] for k in stage.keep}
        kept = {k: v for k, v in now.clients.items() if k in stage.keep}
        fresh = {k: v for k, v in algo.client_init(w).items() if k not in kept}
        return now._replace(stage=number, server=server, clients=kept | self.lasting.keep(fresh, count))

    @torch.no_grad()
    def round(self, t: int, stage: Stage, now: Snapshot) -> Snapshot:
        """Return the snapshot after round ``t`` of the stage."""
        algo, data, seed = stage.algorithm, now.data, self.seed
        if t == 0 and algo.setup is not None:
            now = self._set_up(algo.setup, now)
        n = data.train.counts if stage.eligible is None else data.train.counts * stage.eligible(now.server)
        ids = (stage.sampler or self.sampler)(now.round, n, seed)
        tau = self.work.tau(ids, data.train.counts[ids], seed, now.round)
        cohort = self._cohort(Purpose.BATCHES, ids, tau, data)
        own = {k: v for k, v in now.server.items() if k not in stage.keep}  # the rest is none of the method's
        msg = algo.broadcast(own)
        probe = cohort.probe(algo, self.task, msg["w"], self._initial_losses(algo))
        info = cohort.info(algo.weights, probe, seed, now.round)
        up, mine, after = cohort.train(algo, msg, now.clients, info, seed, now.round)
        steps = int(tau.sum())
        if algo.personal is not None:
            personal, taken = self._personal(algo, algo.personal, msg, now, ids, tau)
            mine, steps = mine | personal, steps + taken
        for name, v in now.clients.items():  # the one mutation: this memory is the loop's own
            v.index_copy_(0, info.id.to(v.device), mine[name].to(v.device))
        info = replace(info, probe=probe | after)
        server = algo.update(own, up, info) | {k: now.server[k] for k in stage.keep}
        last = t == stage.rounds - 1
        moments = next((s["m"][:_MOMENTS].clone() for s in (up, mine) if last and "m" in s), None)
        measured = {k: v for k, v in info.probe.items() if v.dim() == 1 and k != "loss_init"}  # numbers sent up
        now = now._replace(
            round=now.round + 1,
            server=server,
            cohort=ids,
            client_steps=now.client_steps + steps,
            bytes_up=now.bytes_up + nbytes(up) + nbytes(measured),
            bytes_down=now.bytes_down + nbytes(msg) * len(ids),
            moments=moments,
        )
        return now if stage.after is None else self._after(t, stage.after, now)

    def _set_up(self, setup: Algorithm, now: Snapshot) -> Snapshot:
        data = now.data
        ids = np.flatnonzero(data.train.counts)
        cohort = self._cohort(Purpose.SETUP, ids, np.ones_like(ids), data)
        msg, info = setup.broadcast(now.server), cohort.info(setup.weights, {}, self.seed, now.round)
        up, _, _ = cohort.train(setup, msg, {}, info, self.seed, now.round, Purpose.SETUP)
        return now._replace(
            server=setup.update(now.server, up, info),
            client_steps=now.client_steps + len(ids),
            bytes_up=now.bytes_up + nbytes(up),
            bytes_down=now.bytes_down + nbytes(msg) * len(ids),
        )

    def _personal(
        self, algo: Algorithm, own: Algorithm, msg: State, now: Snapshot, ids: np.ndarray, tau: np.ndarray
    ) -> tuple[State, int]:
        """Return what the second local phase leaves with the clients, and its steps."""
        if algo.personal_epochs is not None:
            tau = self.work.tau(ids, now.data.train.counts[ids], self.seed, now.round, algo.personal_epochs)
        cohort = self._cohort(Purpose.PERSONAL, ids, tau, now.data)
        info = cohort.info(algo.weights, {}, self.seed, now.round)
        done = cohort.train(own, msg, now.clients, info, self.seed, now.round, Purpose.PERSONAL)
        return done.lasting, int(tau.sum())

    def _after(self, t: int, after: After, now: Snapshot) -> Snapshot:
        lab = Inspection(self.task, now.data, self.engine)
        server, changed, y = after(t, now.cohort, now.server, now.clients, now.data.y, lab)
        # lasting states stay where they are: a checkpoint may hold that place, not the tensor
        clients = {k: v if changed[k] is v else v.copy_(changed[k]) for k, v in now.clients.items()}
        data = now.data if y is now.data.y else now.data.relabelled(y)
        return now._replace(server=server, clients=clients, data=data)

    def _cohort(self, purpose: Purpose, ids: np.ndarray, tau: np.ndarray, data: FederatedDataset) -> Cohort:
        cohort = self._cohorts.get(purpose)
        if cohort is None or not cohort.same(ids, tau, data):
            cohort = self._cohorts[purpose] = Cohort(ids, tau, data, self.work, self.engine)
        return cohort

    def _initial_losses(self, algo: Algorithm) -> Tensor | None:
        if "loss_init" in algo.needs and self._initial is None:
            everybody = np.arange(self._data.num_clients)
            self._initial = mean_losses(self.task, self._data, everybody, self._start, self.engine)
        return self._initial

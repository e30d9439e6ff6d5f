"""The round loop. It prints and writes nothing and knows no method by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import After, Algorithm, Averaging, Sampler, Stage, Trials
from fedbench.core.randomness import Purpose, key, without_replacement
from fedbench.core.types import ClientInfo, State, nbytes, upload
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.batches import LocalWork
from fedbench.simulation.client_states import StateAllocator, write_rows
from fedbench.simulation.cohort import Cohort
from fedbench.simulation.engine import Engine
from fedbench.simulation.measurements import Inspection, Measurements
from fedbench.simulation.task import Task


class Snapshot(NamedTuple):
    """What the loop yields: everything that later rounds depend on, and what the rounds so far have cost.

    ``clients`` is the loop's own memory and valid until the next snapshot; copy what is to be kept.
    """

    round: int  # rounds done, over all stages; 0 is the initial model
    stage: int
    server: State
    clients: State  # client states, [N, ...]
    data: FederatedDataset
    cohort: np.ndarray  # ids of the clients of this round
    client_steps: int  # cumulative, like the two below
    bytes_up: int
    bytes_down: int


class Exchange(NamedTuple):
    """What passed between the clients of one round and the server, for an observer; copy what is to be kept."""

    round: int  # the number of the round, over all stages, from 1
    algorithm: Algorithm
    cohort: np.ndarray  # ids of the clients, [C]
    uploads: State  # [C, ...]
    client_states: State  # after the round, [C, ...]


class Observer(NamedTuple):
    """Looks at what clients and server exchange; only for it are all uploads of a cohort held at once."""

    wants: Callable[[int], bool]  # whether to look at a round, by its number over all stages, from 1
    observe: Callable[[Exchange], None]


def simulate(
    stages: Sequence[Stage],
    task: Task,
    data: FederatedDataset,
    work: LocalWork,
    engine: Engine,
    w: Tensor,
    seed: int,
    sampler: Sampler,
    allocator: StateAllocator | None = None,
    resume: Snapshot | None = None,
    observers: Sequence[Observer] = (),
    measurements: Measurements | None = None,
) -> Iterator[Snapshot]:
    """Run the stages one after another and yield a snapshot before the first round and after every round.

    The same arguments on the same device give bit-identical snapshots, resumed or not.

    Args:
        stages: The stages; the model passes from one to the next.
        task: The model and its loss.
        data: The federated data set.
        work: The local work of a client in a round.
        engine: How the simulation is carried out.
        w: The initial model [P].
        seed: Random seed of the run.
        sampler: Draws the cohorts of stages that have no sampler of their own.
        allocator: Allocates the client states; None keeps them on the device.
        resume: Snapshot of the same stages and seed to continue from; it is not yielded again.
        observers: Look at the uploads and client states of the cohort, in the rounds that they want.
        measurements: Measures losses, and shares them with those who evaluate the snapshots; None makes its own.
    """
    allocator = allocator or StateAllocator(w.device, "device")
    measurements = measurements or Measurements(task, engine)
    loop = _Loop(task, data, work, engine, w, seed, sampler, allocator, observers, measurements)
    snapshot = resume or loop.begin(0, Snapshot(0, 0, {"w": w}, {}, data, np.arange(0), 0, 0, 0), stages[0])
    if resume is None:
        yield snapshot
    done = sum(s.rounds for s in stages[: snapshot.stage])
    for number, stage in enumerate(stages[snapshot.stage :], snapshot.stage):
        if number > snapshot.stage:
            snapshot = loop.begin(number, snapshot, stage)
        for t in range(snapshot.round - done, stage.rounds):
            snapshot = loop.round(t, stage, snapshot)
            yield snapshot
        done += stage.rounds


class _Tried(NamedTuple):
    """Models that clients have measured between the uploads and the server's step."""

    proposed: State  # the models, and what the server's step needs of their making
    found: State  # losses [C, J], and whose they are
    bytes_up: int
    bytes_down: int


_NOTHING = _Tried({}, {}, 0, 0)


@dataclass
class _Loop:
    """The arguments that stay the same over the rounds, and the plans of cohorts that may come again."""

    task: Task
    data: FederatedDataset
    work: LocalWork
    engine: Engine
    w: Tensor
    seed: int
    sampler: Sampler
    allocator: StateAllocator
    observers: Sequence[Observer]
    measurements: Measurements
    cohorts: dict[Purpose, Cohort] = field(default_factory=dict)

    def begin(self, number: int, snapshot: Snapshot, stage: Stage) -> Snapshot:
        """Return the snapshot in which a stage begins."""
        algo, w, count = stage.algorithm, snapshot.server["w"], snapshot.data.num_clients
        server = algo.server_init(w, count) | {k: snapshot.server[k] for k in stage.keep}
        kept = {k: v for k, v in snapshot.clients.items() if k in stage.keep}
        fresh = {k: v for k, v in algo.client_init(w).items() if k not in kept}
        return snapshot._replace(stage=number, server=server, clients=kept | self.allocator.allocate(fresh, count))

    @torch.no_grad()
    def round(self, t: int, stage: Stage, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot after round ``t`` of the stage."""
        algo, data, seed = stage.algorithm, snapshot.data, self.seed
        if t == 0 and algo.setup is not None:
            snapshot = self._set_up(algo.setup, snapshot)
        ids = self._drawn(stage, snapshot)
        tau = self.work.tau(ids, data.train.counts[ids], seed, snapshot.round)
        cohort = self._cohort(Purpose.BATCHES, ids, tau, data)
        own = {k: v for k, v in snapshot.server.items() if k not in stage.keep}  # the method knows only its own entries
        msg = algo.broadcast(own)
        probe = cohort.probe(
            algo, self.measurements, msg["w"], self._initial_losses if "loss_init" in algo.needs else None
        )
        info = cohort.info(algo.weights, probe, seed, snapshot.round)
        told: State = {} if algo.instruct is None else algo.instruct(own, info)
        if told:
            info = replace(info, probe=probe | told)
        watching = [o for o in self.observers if o.wants(snapshot.round + 1)]
        rule = algo.update if isinstance(algo.update, Averaging) else Averaging(algo.update, {})
        in_place = not watching and algo.personal is None
        trained = cohort.train(
            algo,
            msg,
            snapshot.clients,
            info,
            seed,
            snapshot.round,
            weights={} if watching else {k: f(own, info) for k, f in rule.weights.items()},
            in_place=in_place,
        )
        client_states, steps = trained.client_states, int(tau.sum())
        if algo.personal is not None:
            personal, taken = self._personal(algo, algo.personal, msg, snapshot, ids, tau)
            client_states, steps = client_states | personal, steps + taken
        if not in_place:
            write_rows(snapshot.clients, info.id, client_states)
        for observer in watching:
            observer.observe(Exchange(snapshot.round + 1, algo, ids, trained.uploads, client_states))
        info = replace(info, probe=info.probe | trained.after)
        numbers = {k: v for k, v in info.probe.items() if v.dim() == 1 and k not in {"loss_init", *told}}  # sent up
        uploads = rule.summed(own, trained.uploads, info) if watching else trained.uploads
        tried = _NOTHING
        if algo.trials is not None:
            tried = self._try(algo.trials, own, uploads, info, snapshot, ids)
            uploads, info = uploads | tried.proposed, replace(info, probe=info.probe | tried.found)
        server = rule.step(own, uploads, info)
        snapshot = snapshot._replace(
            round=snapshot.round + 1,
            server=server | {k: snapshot.server[k] for k in stage.keep},
            cohort=ids,
            client_steps=snapshot.client_steps + steps,
            bytes_up=snapshot.bytes_up + trained.bytes_up + nbytes(numbers) + tried.bytes_up,
            bytes_down=snapshot.bytes_down + nbytes(msg) * len(ids) + nbytes(told) + tried.bytes_down,
        )
        return snapshot if stage.after is None else self._after(t, stage.after, snapshot)

    def _try(
        self, trials: Trials, server: State, uploads: State, info: ClientInfo, snapshot: Snapshot, ids: np.ndarray
    ) -> _Tried:
        """Have clients measure models that the server makes from the uploads."""
        data, found = snapshot.data, {}
        proposed = trials.propose(server, uploads, info)
        models = proposed["trials"]
        if trials.drawn:
            ids = without_replacement(key(self.seed, Purpose.TRIALS, snapshot.round), len(ids), data.train.counts)
            found["trial_id"] = upload(ids, models.device)
        found["loss_trials"] = self.measurements.losses_of_several(data, ids, models)
        vectors, steps = (len(models), 0) if trials.vectors is None else (trials.vectors, len(models))
        sent = (vectors * models.shape[1] + steps) * models.element_size()  # a model per step on a line, or each model
        return _Tried(proposed, found, found["loss_trials"].nbytes, sent * len(ids))

    def _drawn(self, stage: Stage, snapshot: Snapshot) -> np.ndarray:
        """Return the cohort of the next round, ascending ids."""
        n = snapshot.data.train.counts
        n = n if stage.eligible is None else n * stage.eligible(snapshot.server)
        return (stage.sampler or self.sampler)(snapshot.round, n, self.seed)

    def _set_up(self, setup: Algorithm, snapshot: Snapshot) -> Snapshot:
        data = snapshot.data
        ids = np.flatnonzero(data.train.counts)
        cohort = self._cohort(Purpose.SETUP, ids, np.ones_like(ids), data)
        msg, info = setup.broadcast(snapshot.server), cohort.info(setup.weights, {}, self.seed, snapshot.round)
        trained = cohort.train(setup, msg, {}, info, self.seed, snapshot.round, Purpose.SETUP)
        return snapshot._replace(
            server=setup.update(snapshot.server, trained.uploads, info),
            client_steps=snapshot.client_steps + len(ids),
            bytes_up=snapshot.bytes_up + trained.bytes_up,
            bytes_down=snapshot.bytes_down + nbytes(msg) * len(ids),
        )

    def _personal(
        self, algo: Algorithm, personal: Algorithm, msg: State, snapshot: Snapshot, ids: np.ndarray, tau: np.ndarray
    ) -> tuple[State, int]:
        """Return the client states after the second local phase, and its steps."""
        if algo.personal_epochs is not None:
            n = snapshot.data.train.counts[ids]
            tau = self.work.tau(ids, n, self.seed, snapshot.round, algo.personal_epochs)
        cohort = self._cohort(Purpose.PERSONAL, ids, tau, snapshot.data)
        info = cohort.info(algo.weights, {}, self.seed, snapshot.round)
        trained = cohort.train(personal, msg, snapshot.clients, info, self.seed, snapshot.round, Purpose.PERSONAL)
        return trained.client_states, int(tau.sum())

    def _after(self, t: int, after: After, snapshot: Snapshot) -> Snapshot:
        old, clients = snapshot.data, snapshot.clients
        server, changed, y = after(
            t, snapshot.cohort, snapshot.server, clients, old.y, Inspection(self.task, old, self.engine)
        )
        # client states stay where they are: a checkpoint may hold that place, not the tensor
        clients = {k: v if changed[k] is v else v.copy_(changed[k]) for k, v in clients.items()}
        return snapshot._replace(server=server, clients=clients, data=old if y is old.y else old.relabelled(y))

    def _cohort(self, purpose: Purpose, ids: np.ndarray, tau: np.ndarray, data: FederatedDataset) -> Cohort:
        cohort = self.cohorts.get(purpose)
        if cohort is None or not cohort.same(ids, tau, data):
            cohort = self.cohorts[purpose] = Cohort(ids, tau, data, self.work, self.engine)
        return cohort

    @cached_property
    def _initial_losses(self) -> Tensor:
        return self.measurements.mean_losses(self.data, np.arange(self.data.num_clients), self.w)

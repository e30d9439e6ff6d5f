"""The round loop, and what clients and server exchange in a round. It prints and writes nothing and knows no method.

Most methods select, broadcast, train and aggregate. A set-up exchange, numbers made for the clients, trials, a second
local phase and a change of the labels are fields of ``Algorithm`` and ``Stage`` that are empty for other methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Stage, Trials
from fedbench.core.randomness import Purpose, Sampler, key, without_replacement
from fedbench.core.types import After, ClientInfo, State, nbytes, upload
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.cohort import Cohort, write_rows
from fedbench.simulation.engine import StateAllocator
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.scenario import RoundPlan, Scenario


def simulate(simulation: Simulation, resume: Snapshot | None = None) -> Iterator[Snapshot]:
    """Run the stages one after another and yield a snapshot before the first round and after every round.

    The same arguments on the same device give bit-identical snapshots, resumed or not.

    Args:
        simulation: What is simulated.
        resume: Snapshot of the same simulation to continue from; it is not yielded again.
    """
    stages = simulation.stages
    snapshot = resume or begin(simulation, 0, Snapshot.initial(simulation.w, simulation.data))
    if resume is None:
        yield snapshot
    done = sum(s.rounds for s in stages[: snapshot.stage])
    for number, stage in enumerate(stages[snapshot.stage :], snapshot.stage):
        if number > snapshot.stage:
            snapshot = begin(simulation, number, snapshot)
        for t in range(snapshot.round - done, stage.rounds):
            snapshot = one_round(simulation, t, stage, snapshot)
            yield snapshot
        done += stage.rounds


@torch.no_grad()
def one_round(simulation: Simulation, t: int, stage: Stage, snapshot: Snapshot) -> Snapshot:
    """The snapshot after round ``t`` of a stage: select, broadcast, train, aggregate."""
    setup = simulation.scenario.lasting(stage.algorithm).setup if t == 0 else None
    if setup is not None:
        snapshot = set_up(simulation, setup, snapshot)
    this = Round(simulation, stage, snapshot)
    if not len(this.plan.ids):
        return this.end(this.idle())
    algo, cohort = this.algo, simulation.cohort(Purpose.BATCHES, this.plan.ids, this.plan.tau, snapshot.data)

    message = algo.broadcast(this.server)
    info = this.facts(cohort, message["w"])

    uploads, info = this.train(cohort, message, info)
    if algo.trials is not None:
        uploads, info = this.trials(algo.trials, cohort, uploads, info)

    snapshot = this.end(algo.averaging.step(this.server, uploads, info))  # the averages are taken
    return snapshot if stage.after is None else after_round(simulation, stage.after, t, snapshot)


class Snapshot(NamedTuple):
    """Everything that later rounds depend on, and what the rounds so far have cost.

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

    @classmethod
    def initial(cls, w: Tensor, data: FederatedDataset) -> Snapshot:
        """The initial model [P], before the first stage begins."""
        return cls(
            round=0,
            stage=0,
            server={"w": w},
            clients={},
            data=data,
            cohort=np.arange(0),
            client_steps=0,
            bytes_up=0,
            bytes_down=0,
        )


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


@dataclass
class Simulation:
    """Everything that stays the same over the rounds of a run, and the plans of cohorts that may come again.

    Attributes:
        stages: The stages; the model passes from one to the next.
        data: The federated data set.
        work: The local work of a client in a round.
        measurements: Measures losses with the model and the engine of the run, and shares them with those who evaluate
            the snapshots.
        w: The initial model [P].
        seed: Random seed of the run.
        sampler: Draws the cohorts of stages that have no sampler of their own.
        allocator: Allocates the client states.
        observers: Look at the uploads and client states of the cohort, in the rounds that they want.
        scenario: What surrounds the method.
    """

    stages: Sequence[Stage]
    data: FederatedDataset
    work: LocalWork
    measurements: Measurements
    w: Tensor
    seed: int
    sampler: Sampler
    allocator: StateAllocator
    observers: Sequence[Observer] = ()
    scenario: Scenario = field(default_factory=Scenario)
    cohorts: dict[Purpose, Cohort] = field(default_factory=dict)

    def cohort(self, purpose: Purpose, ids: np.ndarray, tau: np.ndarray, data: FederatedDataset) -> Cohort:
        """The clients ``ids`` with ``tau`` local steps each; the last one of the same purpose if it is the same."""
        cohort = self.cohorts.get(purpose)
        same = cohort is not None and cohort.data is data and np.array_equal((cohort.ids, cohort.tau), (ids, tau))
        if cohort is None or not same:
            cohort = Cohort(ids, tau, data, self.work, self.measurements, self.seed, purpose)
            self.cohorts[purpose] = cohort
        return cohort

    @cached_property
    def initial_losses(self) -> Tensor:
        """F_k of every client at the first model of the run, [N] float64."""
        return self.measurements.mean_losses(self.data, np.arange(self.data.num_clients), self.w)


def begin(simulation: Simulation, number: int, snapshot: Snapshot) -> Snapshot:
    """The snapshot in which a stage begins: fresh states, but for the entries that it keeps."""
    stage = simulation.stages[number]
    algo, w, count = simulation.scenario.lasting(stage.algorithm), snapshot.server["w"], snapshot.data.num_clients
    server = algo.server_init(w, count) | {k: snapshot.server[k] for k in stage.keep}
    server |= {k: v for k, v in snapshot.server.items() if k in simulation.scenario.keeps}
    kept = {k: v for k, v in snapshot.clients.items() if k in stage.keep}
    fresh = {k: v for k, v in algo.client_init(w).items() if k not in kept}
    return snapshot._replace(stage=number, server=server, clients=kept | simulation.allocator.allocate(fresh, count))


def set_up(simulation: Simulation, setup: Algorithm, snapshot: Snapshot) -> Snapshot:
    """The snapshot after the exchange before the first round: one step of every client that has examples."""
    ids = np.flatnonzero(snapshot.data.train.counts)
    cohort = simulation.cohort(Purpose.SETUP, ids, np.ones_like(ids), snapshot.data)
    message, info = setup.broadcast(snapshot.server), cohort.info(setup.weights, {}, snapshot.round)
    trained = cohort.train(setup, message, {}, info, snapshot.round)
    return snapshot._replace(
        server=setup.update(snapshot.server, trained.uploads, info),
        client_steps=snapshot.client_steps + len(ids),
        bytes_up=snapshot.bytes_up + trained.bytes_up,
        bytes_down=snapshot.bytes_down + nbytes(message) * len(ids),
    )


class Round:
    """The exchanges of one round, which add up what they cost.

    Args:
        simulation: What stays the same over the rounds.
        stage: The stage of the round.
        before: The snapshot before the round.

    Attributes:
        plan: The clients of the round, and the method as it is carried out in it.
        algo: That method.
        server: The entries of the server's state that the method of the stage knows.
    """

    def __init__(self, simulation: Simulation, stage: Stage, before: Snapshot) -> None:
        self.simulation, self.stage, self.before, n = simulation, stage, before, before.data.train.counts
        able = n if stage.eligible is None else n * stage.eligible(before.server)
        able = able if able.any() else n

        def draw(able: np.ndarray) -> np.ndarray:
            return (stage.sampler or simulation.sampler)(before.round, able, simulation.seed)

        def steps(ids: np.ndarray) -> np.ndarray:
            return simulation.work.tau(ids, n[ids], simulation.seed, before.round)

        self.server = {k: v for k, v in before.server.items() if k not in stage.keep}
        self.plan: RoundPlan = simulation.scenario.plan(stage.algorithm, before.round, able, draw, steps, self.server)
        self.algo = self.plan.algorithm
        self._steps, self._up, self._down = self.plan.steps, 0, 0
        if self.algo.personal is not None:
            self._steps += int(self._personal_steps(self.plan.receivers).sum())

    def idle(self) -> State:
        """The server's state after a round without results, whose broadcast is sent all the same."""
        self._down += self.plan.bytes_down(self.algo.broadcast(self.server), len(self.plan.receivers))
        return self.plan.idle(self.server)

    def facts(self, cohort: Cohort, w: Tensor) -> ClientInfo:
        """The facts of the cohort: with measurements at the broadcast model ``w`` and the server's numbers."""
        simulation, algo = self.simulation, self.algo
        probe = simulation.measurements.at_broadcast(cohort.data, cohort.ids, w, algo.needs)
        self._up += nbytes({k: v for k, v in probe.items() if v.dim() == 1})  # numbers; gradients are uploads
        if "loss_init" in algo.needs:
            probe["loss_init"] = simulation.initial_losses[upload(cohort.ids, w.device)]
        info = cohort.info(algo.weights, probe, self.before.round)
        if algo.instruct is None:
            return info
        told = algo.instruct(self.server, info)
        self._down += nbytes({k: v[:1] for k, v in told.items()}) * len(self.plan.receivers)
        return replace(info, probe=probe | told)

    def train(self, cohort: Cohort, message: State, info: ClientInfo) -> tuple[State, ClientInfo]:
        """Carry out the local work, and write the new client states to their places.

        Returns:
            The uploads as ``update`` sees them, and the facts with what was measured at the local models. Entries that
            the method averages (``Averaging``) are their weighted sums [P], however the cohort was trained.
        """
        algo, number, clients = self.algo, self.before.round, self.before.clients
        watching = [o for o in self.simulation.observers if o.wants(number + 1)]
        whole = bool(watching) or algo.deliver is not None
        weights = {} if whole else {k: f(self.server, info) for k, f in algo.averaging.weights.items()}
        in_place = not whole and algo.personal is None
        trained = cohort.train(algo, message, clients, info, number, weights, in_place, self.plan.bytes_up)
        self._up += trained.bytes_up + nbytes(trained.after)
        self._down += self.plan.bytes_down(message, len(self.plan.receivers))
        if not in_place:
            states = trained.client_states | self._second_phase(cohort, message)
            if algo.deliver is not None:
                trained.uploads, states = algo.deliver(self.server, trained.uploads, states, info)
            write_rows(clients, info.id, states)
            for observer in watching:
                observer.observe(Exchange(number + 1, algo, cohort.ids, trained.uploads, states))
        info = replace(info, probe=info.probe | trained.after)
        return algo.averaging.summed(self.server, trained.uploads, info) if whole else trained.uploads, info

    def _second_phase(self, first: Cohort, message: State) -> State:
        """The client states after the second local phase, if the method has one; nothing is sent in it."""
        simulation, algo, number = self.simulation, self.algo, self.before.round
        if algo.personal is None:
            return {}
        cohort = simulation.cohort(Purpose.PERSONAL, first.ids, self._personal_steps(first.ids), first.data)
        info = cohort.info(algo.weights, {}, number)
        return cohort.train(algo.personal, message, self.before.clients, info, number).client_states

    def _personal_steps(self, ids: np.ndarray) -> np.ndarray:
        """Steps of clients in the second local phase, which no deadline ends."""
        n, epochs = self.before.data.train.counts[ids], self.algo.personal_epochs
        return self.simulation.work.tau(ids, n, self.simulation.seed, self.before.round, epochs)

    def trials(self, asked: Trials, cohort: Cohort, uploads: State, info: ClientInfo) -> tuple[State, ClientInfo]:
        """The uploads and facts with the losses of models that the server makes and clients measure."""
        proposed = asked.propose(self.server, uploads, info)
        models, ids, data = proposed["trials"], cohort.ids, cohort.data
        found: State = {}
        if asked.drawn:
            draw = key(self.simulation.seed, Purpose.TRIALS, self.before.round)
            ids = without_replacement(draw, len(ids), data.train.counts)
            found["trial_id"] = upload(ids, models.device)
        found["loss_trials"] = self.simulation.measurements.losses_of_several(data, ids, models)
        self._up += found["loss_trials"].nbytes
        # what is sent: each model, or the vectors of a line and a step on it for each model
        vectors, steps = (len(models), 0) if asked.vectors is None else (asked.vectors, len(models))
        self._down += (vectors * models.shape[1] + steps) * models.element_size() * len(ids)
        return uploads | proposed, replace(info, probe=info.probe | found)

    def end(self, server: State) -> Snapshot:
        """The snapshot after the round, whose method has left the state ``server``."""
        before = self.before
        return before._replace(
            round=before.round + 1,
            server=self.plan.remembered(server | {k: before.server[k] for k in self.stage.keep}),
            cohort=self.plan.ids,
            client_steps=before.client_steps + self._steps,
            bytes_up=before.bytes_up + self._up,
            bytes_down=before.bytes_down + self._down,
        )


def after_round(simulation: Simulation, after: After, t: int, snapshot: Snapshot) -> Snapshot:
    """The snapshot with the states and labels that a stage changes after its round ``t``."""
    old, clients = snapshot.data, snapshot.clients
    predict_fn = partial(simulation.measurements.predictions, old)
    server, changed, y = after(t, snapshot.cohort, snapshot.server, clients, old.y, predict_fn)
    # client states stay where they are: a checkpoint may hold that place, not the tensor
    clients = {k: v if changed[k] is v else v.copy_(changed[k]) for k, v in clients.items()}
    return snapshot._replace(server=server, clients=clients, data=old if y is old.y else old.relabelled(y))

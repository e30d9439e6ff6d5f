"""The round loop, and the exchange between clients and server in a round.

The loop prints and writes nothing and is independent of the method. Most methods select, broadcast,
train and aggregate. A set-up exchange, instructions for the clients, trials, a second local phase
and changes of the labels are optional fields of ``Algorithm`` and ``Stage``.
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
from fedbench.core.types import After, ClientInfo, State, nbytes, to_device
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.client_states import StateAllocator
from fedbench.simulation.cohort import Cohort, read_rows, write_rows
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.personal import PERSONAL
from fedbench.simulation.scenario import OWN, RoundPlan, Scenario
from fedbench.simulation.selection import Asked, LossSelection
from fedbench.simulation.statistics import STATISTICS, local_models

# columns of a round whose clients are selected by losses
_ASKED, _SAMPLED = "asked", "sampled"
_NOTES = (OWN + _ASKED, OWN + _SAMPLED)
# entries of a message that are the model
_MODEL = ("w", STATISTICS)


def simulate(simulation: Simulation, resume: Snapshot | None = None) -> Iterator[Snapshot]:
    """Run the stages one after another.

    Yield a snapshot before the first round and after every round.

    The same arguments on the same device give bit-identical snapshots, resumed or not.

    Args:
        simulation: The simulation to run.
        resume: Snapshot of the same simulation to continue from; it is not yielded again.
    """
    snapshot = resume
    if snapshot is None:
        initial = Snapshot(
            round=0,
            stage=0,
            server={"w": simulation.w},
            clients={},
            data=simulation.data,
        )
        snapshot = begin_stage(simulation, 0, initial)
        yield snapshot

    first_stage = snapshot.stage
    rounds_before = sum(stage.rounds for stage in simulation.stages[:first_stage])
    for number, stage in enumerate(simulation.stages[first_stage:], first_stage):
        if number > first_stage:
            snapshot = begin_stage(simulation, number, snapshot)

        for t in range(snapshot.round - rounds_before, stage.rounds):
            snapshot = run_round(simulation, t, stage, snapshot)
            yield snapshot
        rounds_before += stage.rounds


@torch.no_grad()
def run_round(
    simulation: Simulation,
    t: int,
    stage: Stage,
    snapshot: Snapshot,
) -> Snapshot:
    """Return the snapshot after round ``t`` of a stage: select, broadcast, train, aggregate."""
    if t == 0:
        snapshot = set_up(simulation, stage, snapshot)

    plan = select(simulation, stage, snapshot)
    algo = plan.algorithm
    server = plan.server
    participants = Participants(simulation, plan, snapshot)
    if not len(plan.ids):
        return end_round(participants, stage, participants.idle())

    message = algo.broadcast(server)
    info = participants.info(message["w"])

    uploads, info = participants.train(message, info)
    if algo.trials is not None:
        uploads, info = participants.run_trials(algo.trials, uploads, info)

    # ``train`` has formed the sums: the step receives them, or the uploads if there are no sums
    server = algo.averaging.step(server, uploads, info)
    snapshot = end_round(participants, stage, server)
    if stage.after is not None:
        snapshot = after_round(simulation, stage.after, t, snapshot)
    return snapshot


class Snapshot(NamedTuple):
    """Everything that later rounds depend on, and the costs of the rounds so far.

    ``clients`` is the loop's own memory and valid only until the next snapshot; copy it to keep it.
    """

    round: int  # number of rounds done, over all stages; 0 for the initial model
    stage: int
    server: State
    clients: State  # client states, [N, ...]
    data: FederatedDataset
    cohort: np.ndarray = np.arange(0)  # ids of the clients of this round
    client_steps: int = 0  # cumulative, like the two below
    bytes_up: int = 0
    bytes_down: int = 0


class Exchange(NamedTuple):
    """The exchange of one round, for an observer, which must copy tensors to keep them."""

    round: int  # the number of the round, over all stages, from 1
    algorithm: Algorithm
    cohort: np.ndarray  # ids of the clients, [C]
    uploads: State  # [C, ...]
    client_states: State  # after the round, [C, ...]


class Observer(NamedTuple):
    """Observer of exchanges; in the rounds observed, a cohort's uploads are all held at once."""

    # whether to observe a round, given its number over all stages, from 1
    wants: Callable[[int], bool]
    observe: Callable[[Exchange], None]


@dataclass
class Simulation:
    """Everything that is constant over the rounds of a run, and the last cohorts.

    Attributes:
        stages: The stages; the model passes from one to the next.
        data: The federated data set.
        work: The local work of a client in a round.
        measurements: Measurements with the model and the engine of the run, shared with the code
            that evaluates the snapshots.
        w: The shared part of the initial model [S].
        seed: Random seed of the run.
        sampler: Sampler of cohorts in stages without their own sampler.
        selection: Selection of cohorts by losses, in the place of ``sampler``, or None.
        allocator: Allocator of the client states.
        observers: Observers of the uploads and client states of the cohort, in the rounds that they
            want.
        scenario: Conditions around the method.
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
    selection: LossSelection | None = None
    scenario: Scenario = field(default_factory=Scenario)
    cohorts: dict[Purpose, Cohort] = field(default_factory=dict)

    def cohort(
        self,
        purpose: Purpose,
        ids: np.ndarray,
        tau: np.ndarray,
        data: FederatedDataset,
    ) -> Cohort:
        """Return the clients ``ids`` with ``tau`` local steps each.

        If the last cohort of this purpose is equal, it is returned.
        """
        last = self.cohorts.get(purpose)
        if (
            last is not None
            and last.data is data
            and np.array_equal(last.ids, ids)
            and np.array_equal(last.tau, tau)
        ):
            return last

        cohort = Cohort(
            ids,
            tau,
            data,
            self.work,
            self.measurements,
            self.seed,
            purpose,
        )
        self.cohorts[purpose] = cohort
        return cohort

    @cached_property
    def initial_losses(self) -> Tensor:
        """F_k of every client at the initial model of the run, [N] float64."""
        everyone = np.arange(self.data.num_clients)
        first = self.stages[0].algorithm
        server = first.server_init(self.w, len(everyone))
        w = local_models(self.w, server, first.client_init(self.w))
        return self.measurements.mean_losses(self.data, everyone, w)


def begin_stage(simulation: Simulation, number: int, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot at the beginning of a stage, with fresh states.

    Entries that the stage keeps are taken from the previous stage.
    """
    stage = simulation.stages[number]
    scenario = simulation.scenario
    algo = scenario.with_states(stage.algorithm)
    w = snapshot.server["w"]
    count = snapshot.data.num_clients

    server = algo.server_init(w, count)
    for name, v in snapshot.server.items():
        if name in stage.keep or name in scenario.keeps:
            server[name] = v

    kept = {k: v for k, v in snapshot.clients.items() if k in stage.keep}
    first = algo.client_init(w)
    fresh = {k: v for k, v in first.items() if k not in kept}
    clients = kept | simulation.allocator.allocate(fresh, count)
    return snapshot._replace(stage=number, server=server, clients=clients)


def set_up(simulation: Simulation, stage: Stage, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot after the set-up exchange before the first round, if there is one.

    Every client with training examples takes one step.
    """
    setup = simulation.scenario.with_states(stage.algorithm).setup
    if setup is None:
        return snapshot
    ids = np.flatnonzero(snapshot.data.train.counts)
    one_step = np.ones_like(ids)
    cohort = simulation.cohort(Purpose.SETUP, ids, one_step, snapshot.data)
    message = setup.broadcast(snapshot.server)
    info = cohort.info(setup.weights, snapshot.round)
    trained = cohort.train(setup, message, {}, info, snapshot.round)
    return snapshot._replace(
        server=setup.update(snapshot.server, trained.uploads, info),
        client_steps=snapshot.client_steps + len(ids),
        bytes_up=snapshot.bytes_up + trained.bytes_up,
        bytes_down=snapshot.bytes_down + nbytes(message) * len(ids),
    )


def select(simulation: Simulation, stage: Stage, snapshot: Snapshot) -> RoundPlan:
    """Return the plan of the next round: its clients, their local steps and the method."""
    scenario = simulation.scenario
    seed = simulation.seed
    round = snapshot.round

    counts = able = snapshot.data.train.counts
    if stage.eligible is not None:
        eligible = counts * stage.eligible(snapshot.server)
        able = eligible if eligible.any() else counts
    able = scenario.reachable(round, able)
    selection = simulation.selection
    asked = None
    if selection is None:
        sampler = scenario.sampler(stage.sampler or simulation.sampler)
        ids = sampler(round, able, seed)
    else:
        candidates = selection.candidates_of(round, able, seed)
        asked = ask(simulation, stage, snapshot, candidates)
        ids = selection.cohort_of(round, asked, len(able), seed)
    tau = simulation.work.tau(ids, counts[ids], seed, round)

    # entries that a later stage keeps, and columns of the record, are hidden from the method;
    # ``end_round`` adds them again
    hidden = stage.keep if asked is None else (*stage.keep, *_NOTES)
    server = snapshot.server
    plan = RoundPlan(
        algorithm=stage.at(round, server),
        seed=seed,
        round=round,
        server={k: v for k, v in server.items() if k not in hidden},
        able=able,
        ids=ids,
        receivers=ids,
        tau=tau,
        steps=int(tau.sum()),
        asked=asked,
    )
    plan = scenario.plan(plan)
    if asked is None:
        return plan
    answers = {_ASKED: len(asked.ids), _SAMPLED: len(plan.receivers)}
    return replace(plan, notes=plan.notes | answers)


def ask(
    simulation: Simulation,
    stage: Stage,
    snapshot: Snapshot,
    ids: np.ndarray,
) -> Asked:
    """Return the losses that the clients ``ids`` report at the broadcast model."""
    method = stage.at(snapshot.round, snapshot.server)
    algo = simulation.scenario.with_states(method)
    w = algo.broadcast(snapshot.server)["w"]
    losses = w.new_zeros(0, dtype=torch.float64)
    if len(ids):
        models = _local_models(snapshot, w, ids)
        losses = simulation.measurements.mean_losses(snapshot.data, ids, models)
    reported = simulation.scenario.attackers.reported(ids, {"loss": losses})
    return Asked(ids, reported["loss"])


def _local_models(snapshot: Snapshot, w: Tensor, ids: np.ndarray) -> Tensor:
    """Return the models of clients at a broadcast w [S]: one [P], or one each [C, P]."""
    own = {k: v for k, v in snapshot.clients.items() if k in (PERSONAL, STATISTICS)}
    states = read_rows(own, to_device(ids, w.device))
    return local_models(w, snapshot.server, states)


@dataclass(eq=False)
class Participants:
    """The clients of one round, their work, and the messages exchanged with the server.

    Attributes:
        simulation: Parts of the simulation that are constant over the rounds.
        plan: The clients of the round, and the method as carried out in the round.
        before: The snapshot before the round.
        client_steps: Number of local steps of the clients in the round.
        bytes_up: Bytes sent by the clients so far in the round.
        bytes_down: Bytes sent by the server so far in the round.
    """

    simulation: Simulation
    plan: RoundPlan
    before: Snapshot
    bytes_up: int = 0
    bytes_down: int = 0

    def __post_init__(self) -> None:
        self.algo = self.plan.algorithm
        self.server = self.plan.server
        self.client_steps = self.plan.steps
        if self.algo.personal is not None:
            self.client_steps += int(self._personal_steps(self.plan.receivers).sum())
        # whether the broadcast's model is sent with the message to the cohort
        self._sends_model = self.plan.asked is None
        if self.plan.asked is not None:
            message = self.algo.broadcast(self.server)
            model = {k: v for k, v in message.items() if k in _MODEL}
            self.bytes_down += nbytes(model) * len(self.plan.asked.ids)
            self.bytes_up += self.plan.asked.losses.nbytes

    @cached_property
    def cohort(self) -> Cohort:
        """The clients whose results arrive, with the plan of their local work."""
        return self.simulation.cohort(
            Purpose.BATCHES,
            self.plan.ids,
            self.plan.tau,
            self.before.data,
        )

    def idle(self) -> State:
        """Return the server's state after a round without results; its broadcast is counted."""
        self._count_download(self.algo.broadcast(self.server))
        return self.plan.idle(self.server)

    def info(self, w: Tensor) -> ClientInfo:
        """Return the facts of the cohort.

        The facts include measurements at the broadcast model ``w`` and the server's instructions.
        """
        algo = self.algo
        cohort = self.cohort
        measurements = self.simulation.measurements
        models = w
        if algo.needs:
            models = _local_models(self.before, w, cohort.ids)
        asked = self.plan.asked
        needs = algo.needs if asked is None else algo.needs - {"loss"}
        probe = measurements.at_broadcast(cohort.data, cohort.ids, models, needs)
        if "grad" in probe:
            probe["grad"] = probe["grad"][:, : len(w)]
        # a gradient is counted when the method uploads it
        numbers = {k: v for k, v in probe.items() if v.dim() == 1}
        self.bytes_up += nbytes(numbers)
        if "loss_init" in algo.needs:
            ids = to_device(cohort.ids, w.device)
            probe["loss_init"] = self.simulation.initial_losses[ids]
        probe = self.plan.reported(cohort.ids, probe)
        if asked is not None and "loss" in algo.needs:
            probe["loss"] = asked.of(cohort.ids)
        if algo.class_counts:  # known to the clients, never sent
            ids = to_device(cohort.ids, w.device)
            probe["labels"] = cohort.data.class_counts[ids]
        info = cohort.info(algo.weights, self.plan.round, probe)
        if algo.instruct is None:
            return info

        instructions = algo.instruct(self.server, info)
        of_one_client = {k: v[:1] for k, v in instructions.items()}
        self.bytes_down += nbytes(of_one_client) * len(self.plan.receivers)
        if "w" in instructions:
            self._sends_model = False
        return replace(info, probe=probe | instructions)

    def train(
        self,
        message: State,
        info: ClientInfo,
    ) -> tuple[State, ClientInfo]:
        """Carry out the local work, and store the new client states.

        Returns:
            The uploads as ``update`` sees them, and the facts with measurements at the local
            models. Entries that the method averages (``Averaging``) are weighted sums [P],
            regardless of how the cohort was trained.
        """
        algo = self.algo
        server = self.server
        round = self.plan.round
        clients = self.before.clients
        observers = [o for o in self.simulation.observers if o.wants(round + 1)]

        weights = None  # observers and ``deliver`` need the uploads one by one
        if not observers and algo.deliver is None:
            weightings = algo.averaging.weights
            weights = {k: weighting(server, info) for k, weighting in weightings.items()}
        trained = self.cohort.train(
            algo,
            message,
            clients,
            info,
            round,
            weights=weights,
            size=self.plan.bytes_up,
        )
        uploads = trained.uploads
        self.bytes_up += trained.bytes_up + nbytes(trained.after)
        self._count_download(message)

        if not trained.in_place:
            states = trained.client_states | self._second_phase(message)
            if algo.deliver is not None:
                uploads, states = algo.deliver(server, uploads, states, info)
            write_rows(clients, info.id, states)
            exchange = Exchange(round + 1, algo, self.plan.ids, uploads, states)
            for observer in observers:
                observer.observe(exchange)

        after = self.plan.reported(self.plan.ids, trained.after)
        info = replace(info, probe=info.probe | after)
        if not trained.sums:
            uploads = algo.averaging.summed(server, uploads, info)
        return uploads, info

    def _count_download(self, message: State) -> None:
        sent = message
        if not self._sends_model:
            sent = {k: v for k, v in message.items() if k not in _MODEL}
        self.bytes_down += self.plan.bytes_down(sent, len(self.plan.receivers))

    def _second_phase(self, message: State) -> State:
        """Return the client states after the second local phase, if the method has one.

        Nothing is sent in this phase.
        """
        algo = self.algo
        if algo.personal is None:
            return {}

        ids = self.plan.ids
        round = self.plan.round
        tau = self._personal_steps(ids)
        cohort = self.simulation.cohort(Purpose.PERSONAL, ids, tau, self.before.data)
        info = cohort.info(algo.weights, round)
        trained = cohort.train(algo.personal, message, self.before.clients, info, round)
        return trained.client_states

    def _personal_steps(self, ids: np.ndarray) -> np.ndarray:
        """Return the clients' numbers of steps in the second local phase, which has no deadline."""
        plan = self.plan
        counts = self.before.data.train.counts[ids]
        epochs = self.algo.personal_epochs
        return self.simulation.work.tau(ids, counts, plan.seed, plan.round, epochs)

    def run_trials(
        self, trials: Trials, uploads: State, info: ClientInfo
    ) -> tuple[State, ClientInfo]:
        """Return the uploads and facts, with the losses of the models that the server proposes."""
        proposed = trials.propose(self.server, uploads, info)
        models = proposed["trials"]
        ids = self.plan.ids
        data = self.before.data
        probe = dict(info.probe)

        if trials.drawn:
            draw = key(self.plan.seed, Purpose.TRIALS, self.plan.round)
            ids = without_replacement(draw, len(ids), data.train.counts)
            probe["trial_id"] = to_device(ids, models.device)

        losses = self.simulation.measurements.losses_of_several(data, ids, models)
        probe |= self.plan.reported(ids, {"loss_trials": losses})
        self.bytes_up += losses.nbytes

        values = models.numel()
        if trials.vectors is not None:  # vectors that define a line, and a step for each model
            values = trials.vectors * models.shape[1] + len(models)
        self.bytes_down += values * models.element_size() * len(ids)
        return uploads | proposed, replace(info, probe=probe)


def end_round(participants: Participants, stage: Stage, server: State) -> Snapshot:
    """Return the snapshot after a round, given the method's new server state ``server``."""
    before = participants.before
    plan = participants.plan
    kept = {k: before.server[k] for k in stage.keep}
    return before._replace(
        round=before.round + 1,
        server=plan.remembered(server | kept),
        cohort=plan.ids,
        client_steps=before.client_steps + participants.client_steps,
        bytes_up=before.bytes_up + participants.bytes_up,
        bytes_down=before.bytes_down + participants.bytes_down,
    )


def after_round(
    simulation: Simulation,
    after: After,
    t: int,
    snapshot: Snapshot,
) -> Snapshot:
    """Return the snapshot with the states and labels that a stage changes after its round ``t``."""
    data = snapshot.data
    clients = snapshot.clients
    predict_fn = partial(simulation.measurements.predictions, data)
    server, changed, y = after(
        t,
        snapshot.cohort,
        snapshot.server,
        clients,
        data.y,
        predict_fn,
    )
    # the states keep their memory, because a checkpoint may refer to it, not to the tensor
    for name, v in clients.items():
        if changed[name] is not v:
            v.copy_(changed[name])
    if y is not data.y:
        data = data.relabelled(y)
    return snapshot._replace(server=server, data=data)

"""The round loop. It prints and writes nothing and knows no method by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Averaging, Stage
from fedbench.core.randomness import Sampler
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.batches import LocalWork
from fedbench.simulation.client_states import StateAllocator
from fedbench.simulation.engine import Engine
from fedbench.simulation.exchanges import Federation, Observer, Round, Snapshot, after_round, begin, set_up
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.task import Task


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
    measurements = measurements or Measurements(task, engine)
    allocator = allocator or StateAllocator(w.device, "device")
    run = Federation(data, work, engine, w, seed, sampler, allocator, observers, measurements)
    snapshot = resume or begin(run, 0, stages[0], Snapshot(0, 0, {"w": w}, {}, data, np.arange(0), 0, 0, 0))
    if resume is None:
        yield snapshot
    done = sum(s.rounds for s in stages[: snapshot.stage])
    for number, stage in enumerate(stages[snapshot.stage :], snapshot.stage):
        if number > snapshot.stage:
            snapshot = begin(run, number, stage, snapshot)
        for t in range(snapshot.round - done, stage.rounds):
            snapshot = one_round(run, t, stage, snapshot)
            yield snapshot
        done += stage.rounds


@torch.no_grad()
def one_round(run: Federation, t: int, stage: Stage, snapshot: Snapshot) -> Snapshot:
    """The snapshot after round ``t`` of a stage: select, broadcast, train, aggregate."""
    algo = stage.algorithm
    if t == 0 and algo.setup is not None:
        snapshot = set_up(run, algo.setup, snapshot)
    this = Round(run, stage, snapshot)
    cohort = this.select()

    message = algo.broadcast(this.server)
    info = this.facts(cohort, message["w"])

    uploads, info = this.train(cohort, message, info)
    if algo.trials is not None:
        uploads, info = this.trials(algo.trials, cohort, uploads, info)

    update = algo.update.step if isinstance(algo.update, Averaging) else algo.update  # the averages are taken
    snapshot = this.end(cohort, update(this.server, uploads, info))
    return snapshot if stage.after is None else after_round(run, stage.after, t, snapshot)

"""The round loop. It prints and writes nothing and knows no method by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.algorithm import Algorithm
from fedbench.batches import LocalWork
from fedbench.cohort import Cohort
from fedbench.data.federated import FederatedDataset
from fedbench.engine import Engine
from fedbench.probes import mean_losses
from fedbench.randomness import Purpose, key, without_replacement
from fedbench.task import Task
from fedbench.types import State, nbytes

Sampler = Callable[[int, np.ndarray, int], np.ndarray]
After = Callable[[State, State, FederatedDataset], tuple[State, State, FederatedDataset]]


def sample_cohort(participation: float | int = 1.0, by_size: bool = False) -> Sampler:
    """Return a sampler: (round, training examples per client [N], seed) -> ids of the cohort, ascending.

    Args:
        participation: a share of the N clients in (0, 1], rounded up, or a number of clients.
        by_size: draw with probability proportional to the number of training examples, in place of uniformly.

    Clients without training examples are never drawn. Sampling is without replacement.
    """

    def sampler(round: int, n: np.ndarray, seed: int) -> np.ndarray:
        able = int((n > 0).sum())
        # 1e-9: 0.1 * 30 is a little more than 3 in floating point
        size = max(1, ceil(participation * len(n) - 1e-9)) if isinstance(participation, float) else participation
        return without_replacement(key(seed, Purpose.SAMPLING, round), min(size, able), n, uniform=not by_size)

    return sampler


class Stage(NamedTuple):
    """A number of rounds of one algorithm; ``after`` may change states and data before the next stage begins."""

    algorithm: Algorithm
    rounds: int
    sampler: Sampler
    after: After | None = None


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


def simulate(
    stages: Sequence[Stage],
    task: Task,
    data: FederatedDataset,
    work: LocalWork,
    engine: Engine,
    w: Tensor,
    seed: int,
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
        resume: go on after this snapshot, of the same stages and seed; it is not yielded again.

    Same arguments on the same device: bit-identical snapshots, resumed or not.
    """
    start = w
    now = resume or _begin(0, Snapshot(0, 0, {"w": w}, {}, data, np.arange(0), 0, 0, 0), stages)
    if resume is None:
        yield now
    for number in range(now.stage, len(stages)):
        stage = stages[number]
        if number > now.stage:
            now = _begin(number, now, stages)
        done = sum(s.rounds for s in stages[:number])
        initial = None
        if "loss_init" in stage.algorithm.needs:
            initial = mean_losses(task, now.data, np.arange(now.data.num_clients), start, engine)
        cohort: Cohort | None = None
        for t in range(now.round - done, stage.rounds):
            now, cohort = _round(t + done, stage, now, task, work, engine, seed, initial, cohort)
            if t + 1 == stage.rounds and stage.after:
                server, clients, changed = stage.after(now.server, now.clients, now.data)
                now = now._replace(server=server, clients=clients, data=changed)
            yield now


def _begin(number: int, now: Snapshot, stages: Sequence[Stage]) -> Snapshot:
    algo, w, count = stages[number].algorithm, now.server["w"], now.data.num_clients
    clients = {k: v.expand(count, *v.shape).clone() for k, v in algo.client_init(w).items()}
    return now._replace(stage=number, server=algo.server_init(w, count), clients=clients)


@torch.no_grad()
def _round(
    t: int,
    stage: Stage,
    now: Snapshot,
    task: Task,
    work: LocalWork,
    engine: Engine,
    seed: int,
    initial: Tensor | None,
    cohort: Cohort | None,
) -> tuple[Snapshot, Cohort]:
    algo, data = stage.algorithm, now.data
    ids = stage.sampler(t, data.train.counts, seed)
    tau = work.tau(ids, data.train.counts[ids], seed, t)
    if cohort is None or not cohort.same(ids, tau, data):
        cohort = Cohort(ids, tau, data, work, engine)
    msg = algo.broadcast(now.server)
    info = cohort.info(algo.weights, cohort.probe(algo, task, msg["w"], initial))
    up, mine = cohort.train(algo, msg, now.clients, info, seed, t)
    for name, v in now.clients.items():
        v.index_copy_(0, info.id, mine[name])  # the one mutation: this memory is the loop's own
    server = algo.update(now.server, up, info)
    after = Snapshot(
        round=t + 1,
        stage=now.stage,
        server=server,
        clients=now.clients,
        data=data,
        cohort=ids,
        client_steps=now.client_steps + int(tau.sum()),
        bytes_up=now.bytes_up + nbytes(up),
        bytes_down=now.bytes_down + nbytes(msg) * len(ids),
    )
    return after, cohort

"""Small problems with known solutions, on which tests run methods; in float64."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import torch
from tools import make, simulated, task_for

from fedbench.core.algorithm import Stage
from fedbench.core.randomness import sample_cohort
from fedbench.core.types import Batch, ClientInfo, Oracle
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.simulation.engine import Engine
from fedbench.simulation.local_work import LocalWork

UNIFORM = {"weights": "uniform"}


class LinearLosses(Oracle):
    """F(w; batch) = w · (mean of the batch's inputs): clients with equal inputs have a constant gradient."""

    def grad(self, w, batch: Batch):
        return (batch.x * batch.weight.unsqueeze(2)).sum(1)

    def loss_and_grad(self, w, batch: Batch):
        g = self.grad(w, batch)
        return (w * g).sum(1, keepdim=True), g


def constant_gradients(sizes, dimension, seed=0):
    """A federation whose client k has the gradient g_k [N, P] everywhere, and these gradients."""
    rng = np.random.default_rng(seed)
    g = rng.normal(size=(len(sizes), dimension))
    at = np.concatenate([[0], np.cumsum(sizes)])
    data = FederatedDataset(
        x=torch.from_numpy(np.repeat(g, sizes, axis=0)),
        y=torch.zeros(sum(sizes), dtype=torch.int64),
        train=Rows.of([np.arange(a, b) for a, b in pairwise(at)]),
        test=Rows.of([np.arange(0)] * len(sizes)),
        names=tuple(map(str, range(len(sizes)))),
        classes=1,
        dtype=torch.float64,
    )
    return data, torch.from_numpy(g)


def step_on_linear_losses(algo, data, dimension, work, rounds=1):
    """The models after each round, from 0; of a task only the work of an example counts."""
    engine = Engine(LinearLosses(), "stacked", 100)
    task = SimpleNamespace(traits=SimpleNamespace(work_values=1))
    w = torch.zeros(dimension, dtype=torch.float64)
    run = simulated([Stage(algo, rounds)], task, data, work, engine, w, 0, sample_cohort())
    return [s.server for s in run]


D = torch.float64


FULL = LocalWork(lr=0.1, batch_size=None)


class Given(Oracle):
    """Losses and gradients of functions of w [A, P] and of one row of numbers per client."""

    def __init__(self, loss, grad):
        self._loss, self._grad = loss, grad

    def grad(self, w, batch):
        return self._grad(w, batch.x[:, 0])

    def loss_and_grad(self, w, batch):
        return self._loss(w, batch.x[:, 0]), self.grad(w, batch)


# F = a/2 ||w - b||², rows (a, b)
QUADRATIC = Given(
    lambda w, r: r[:, :1] / 2 * (w - r[:, 1:]).square().sum(1, keepdim=True),
    lambda w, r: r[:, :1] * (w - r[:, 1:]),
)


class Losses:
    """What ``Measurements`` measures, of F = a/2 ||w - b||² with rows (a, b)."""

    def __init__(self, rows):
        self.rows = torch.tensor(rows, dtype=D)

    def at_broadcast(self, data, ids, w, needs):
        a, b = self.rows[ids, :1], self.rows[ids, 1:]
        found = {"loss": (a / 2 * (w - b).square()).sum(1), "grad": a * (w - b)}
        return {k: v for k, v in found.items() if k in needs}

    def losses_of_several(self, data, ids, models):
        return torch.stack([self.at_broadcast(data, ids, w, {"loss"})["loss"] for w in models], 1)


def run_on(oracle, rows, algo, work, rounds, w, **options):
    """The snapshots of a run on one example per client."""
    rows = torch.tensor(rows, dtype=D)
    data = FederatedDataset(
        x=rows,
        y=torch.zeros(len(rows), dtype=torch.int64),
        train=Rows.of([np.array([k]) for k in range(len(rows))]),
        test=Rows.of([np.arange(0)] * len(rows)),
        names=tuple(map(str, range(len(rows)))),
        classes=1,
        dtype=D,
    )
    engine, start = Engine(oracle, "stacked", 100), torch.tensor(w, dtype=D)
    if "measurements" in options:
        options["measurements"].task, options["measurements"].engine = None, engine
    return list(
        simulated(
            [Stage(algo, rounds)], None, data, work, engine, start, 0, sample_cohort(), **options
        )
    )


def on_quadratics(algo, rows, rounds, w, lr=0.5, steps=1):
    """The snapshots of a run on F = a/2 ||w - b||² with rows (a, b), full batches."""
    work = LocalWork(lr=lr, batch_size=None, steps=steps)
    return run_on(QUADRATIC, rows, algo, work, rounds, w, measurements=Losses(rows))


def cohort(p, **probe):
    """Facts of a cohort for a server's update alone."""
    p = torch.tensor(p, dtype=D)
    ones = torch.ones_like(p)
    return ClientInfo(
        id=torch.arange(len(p)),
        n=p,
        p=p,
        steps=ones,
        lr=ones,
        per_epoch=ones,
        key=ones,
        probe=dict(probe),
    )


def start_of(data):
    return task_for(data).init(torch.Generator().manual_seed(0))


BATCHES = LocalWork(lr=0.1, batch_size=10, epochs=(2, 2))


def vector(*values):
    return torch.tensor(values, dtype=D)


def fair_cohort(ids, **probe):
    """Facts of a cohort of these clients, of equal weight."""
    ids = torch.tensor(ids)
    ones = torch.ones(len(ids), dtype=D)
    probe = {k: torch.as_tensor(v, dtype=D) for k, v in probe.items()}
    return ClientInfo(
        id=ids, n=ones, p=ones / len(ids), steps=ones, lr=ones, per_epoch=ones, key=ids, probe=probe
    )


def moved(name, updates, loss, rounds=1, **options):
    """The vectors that the server subtracts in successive rounds, all clients, the same uploads."""
    algo, g = make(name, **options), torch.as_tensor(updates, dtype=D)
    server = algo.server_init(torch.zeros(g.shape[1], dtype=D), len(g))
    seen = []
    for _ in range(rounds):
        after = algo.update(server, {"delta": g}, fair_cohort(range(len(g)), loss=loss))
        seen.append(server["w"] - after["w"])
        server = after
    return seen[-1]


DRAWN = LocalWork(lr=0.1, batch_size=10, epochs=(1, 3))  # unequal steps


def facts(count, p=None, lr=1.0, steps=1.0):
    """Facts of a cohort for a server's update alone."""
    ones = torch.ones(count, dtype=D)
    lr, steps = (torch.as_tensor(v, dtype=D).expand(count) for v in (lr, steps))
    p = ones / count if p is None else torch.tensor(p, dtype=D)
    return ClientInfo(
        id=torch.arange(count),
        n=ones,
        p=p,
        steps=steps,
        lr=lr,
        per_epoch=ones,
        key=torch.arange(count),
    )


def models(run, key="w"):
    return [s.server[key].item() for s in run]

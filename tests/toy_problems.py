"""Small problems with known solutions, on which tests run methods; in float64."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import torch
import yaml
from reference_clients import loss_and_grad
from tools import ROOT, close, federation, final, make, simulated, task_for

from fedbench.core.algorithm import Stage
from fedbench.core.optim import SGD
from fedbench.core.randomness import sample_cohort
from fedbench.core.types import Batch, ClientInfo, Oracle
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.simulation.engine import Engine
from fedbench.simulation.local_work import LocalWork

D = torch.float64
UNIFORM = {"weights": "uniform"}
FEDAVG = ("fedavg", UNIFORM)
REDUCTIONS = yaml.safe_load((ROOT / "tests/algorithms/reductions.yaml").read_text())

FULL = LocalWork(lr=0.1, batch_size=None)
BATCHES = LocalWork(
    lr=0.1,
    batch_size=10,
    epochs=(2, 2),
)
DRAWN = LocalWork(
    lr=0.1,
    batch_size=10,
    epochs=(1, 3),
)  # unequal steps


def vector(*values):
    return torch.tensor(values, dtype=D)


# ---- a method on softmax regression


def start_of(data):
    return task_for(data).init(torch.Generator().manual_seed(0))


def clients_of(data):
    """The training examples (x, y) of every client, for NumPy."""
    return [(data.x[rows].numpy(), data.y[rows].numpy()) for rows in data.train.split()]


def with_idle_clients(data, count, *places):
    """The clients of a data set among ``count``, the others of which have only test examples."""
    train = [np.arange(0)] * count
    for place, rows in zip(places, data.train.split(), strict=True):
        train[place] = rows
    tests = [data.test.split()[0]] * count
    names = tuple(map(str, range(count)))
    return replace(
        data,
        train=Rows.of(train),
        test=Rows.of(tests),
        names=names,
    )


def objective_of(data, combine):
    """A function of w: of the losses of all clients."""
    clients = clients_of(data)
    return lambda w: combine(np.array([loss_and_grad(w, x, y)[0] for x, y in clients]))


def assert_descends(method, data, combine):
    """Assert that one full-batch step is against the slope of a function of the clients' losses."""
    start = start_of(data)
    step = start - trained(method, data, rounds=1, work=FULL)
    slope = slope_of(objective_of(data, combine), start.numpy())
    assert close(step / FULL.lr, slope, 1e-7)


def adam_steps(data, lr, losses_of, steps):
    """Return the models of torch's Adam on a function of the step and of ``loss(rows)``."""
    task = task_for(data)
    w = torch.nn.Parameter(start_of(data))
    adam = torch.optim.Adam([w], lr=lr)

    def loss(rows):
        return torch.nn.functional.cross_entropy(task.predict(w, data.x[rows]), data.y[rows])

    models = []
    for t in range(steps):
        adam.zero_grad()
        losses_of(t, loss).backward()
        adam.step()
        models.append(w.detach().clone())
    return models


def trained(method, data=None, solver=SGD, **how):
    """Return the final model of a method: a name, or a name and options."""
    name, options = (method, {}) if isinstance(method, str) else method
    return final(
        make(name, solver, **options),
        data or federation(),
        **how,
    )


def distance(a, b):
    """Return the length of the difference of two vectors in units of the second."""
    return ((a - b).norm() / b.norm()).item()


def apart(one, other, **how):
    """Return the distance of the final models of two methods that are run alike."""
    return distance(trained(one, **how), trained(other, **how))


def slope_of(objective, w):
    """Return the gradient of a function of a vector by central differences."""
    steps = 1e-6 * np.eye(len(w))
    rises = [objective(w + step) - objective(w - step) for step in steps]
    return torch.tensor(rises, dtype=D) / 2e-6


# ---- a server's update alone


def cohort(n, ids=None, lr=1.0, steps=1.0, **probe):
    """Facts of a cohort: its examples (or a number of clients of one), and its probes."""
    n = torch.as_tensor(
        [1.0] * n if isinstance(n, int) else n,
        dtype=D,
    )
    ids = torch.arange(len(n)) if ids is None else torch.tensor(ids)
    ones = torch.ones_like(n)

    return ClientInfo(
        id=ids,
        n=n,
        p=n / n.sum(),
        steps=ones * torch.as_tensor(steps, dtype=D),
        lr=ones * lr,
        per_epoch=ones,
        key=ids,
        probe={k: torch.as_tensor(v, dtype=D) for k, v in probe.items()},
    )


def updated(algo, uploads, info, server=None):
    """Return the state of a server after these uploads (or updates); it starts from zeros."""
    if not isinstance(uploads, dict):
        uploads = {"delta": torch.as_tensor(uploads, dtype=D)}
    if server is None:
        size = next(iter(uploads.values())).shape[1]
        server = algo.server_init(torch.zeros(size, dtype=D), len(info.id))
    return algo.update(server, uploads, info)


def moved(algo, updates, n=None, rounds=1, **probe):
    """Return the vector that a server subtracts in the last of rounds with the same updates."""
    info = cohort(n or len(updates), **probe)
    after = updated(algo, updates, info)
    before = {"w": torch.zeros_like(after["w"])}
    for _ in range(rounds - 1):
        before = after
        after = updated(algo, updates, info, before)
    return before["w"] - after["w"]


# ---- functions of a few numbers


class LinearLosses(Oracle):
    """F(w; batch) = w · (mean of the batch's inputs): clients with equal inputs have a constant
    gradient.
    """

    def grad(self, w, batch: Batch):
        return (batch.x * batch.weight.unsqueeze(2)).sum(1)

    def loss_and_grad(self, w, batch: Batch):
        g = self.grad(w, batch)
        return (w * g).sum(1, keepdim=True), g


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
LINEAR = LinearLosses()


class Losses:
    """Measurements of F = a/2 ||w - b||² with rows (a, b)."""

    def __init__(self, rows):
        self.rows = torch.tensor(rows, dtype=D)

    def at_broadcast(self, data, ids, w, needs):
        a, b = self.rows[ids, :1], self.rows[ids, 1:]
        measured = {"loss": (a / 2 * (w - b).square()).sum(1), "grad": a * (w - b)}
        return {k: v for k, v in measured.items() if k in needs}

    def losses_of_several(self, data, ids, models):
        return torch.stack(
            [
                self.at_broadcast(
                    data,
                    ids,
                    w,
                    {"loss"},
                )["loss"]
                for w in models
            ],
            1,
        )


def rows_of(x, counts):
    """Training data without labels: ``counts`` consecutive rows of x for each client."""
    ends = np.concatenate([[0], np.cumsum(counts)])
    return FederatedDataset(
        x=torch.as_tensor(x, dtype=D),
        y=torch.zeros(sum(counts), dtype=torch.int64),
        train=Rows.of([np.arange(a, b) for a, b in pairwise(ends)]),
        test=Rows.of([np.arange(0)] * len(counts)),
        names=tuple(map(str, range(len(counts)))),
        classes=1,
        dtype=D,
    )


def run_on(oracle, rows, algo, work, rounds, w, counts=None, participation=1.0, **options):
    """Return the snapshots of a run; every example of client k is the k-th row."""
    counts = counts or [1] * len(rows)
    data = rows_of(
        np.repeat(
            np.array(rows),
            counts,
            axis=0,
        ),
        counts,
    )
    engine, start = Engine(oracle, "stacked", 100), torch.tensor(w, dtype=D)
    if "measurements" in options:
        options["measurements"].task, options["measurements"].engine = None, engine
    options.setdefault("task", None)

    run = simulated(
        [Stage(algo, rounds)],
        data=data,
        work=work,
        engine=engine,
        w=start,
        seed=0,
        sampler=sample_cohort(participation),
        **options,
    )
    return list(run)


def on_quadratics(algo, rows, rounds, w, lr=0.5, steps=1):
    """Return the snapshots of a run on F = a/2 ||w - b||² with rows (a, b), full batches."""
    work = LocalWork(lr=lr, batch_size=None, steps=steps)
    return run_on(
        QUADRATIC,
        rows,
        algo,
        work,
        rounds,
        w,
        measurements=Losses(rows),
    )


def on_linear_losses(algo, work, rows, counts=None, rounds=1):
    """Return the snapshots of a run from 0 on F = b · w with rows b: every gradient is constant."""
    task = SimpleNamespace(traits=SimpleNamespace(work_values=1))  # the work of an example
    w = [0.0] * len(rows[0])
    return run_on(
        LINEAR,
        rows,
        algo,
        work,
        rounds,
        w,
        counts,
        task=task,
    )


def models(run, key="w"):
    return [s.server[key].item() for s in run]

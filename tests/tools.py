"""What the tests share: small federations, and a way to run them without configuration."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedbench.algorithm import Algorithm
from fedbench.batches import LocalWork
from fedbench.data.federated import FederatedDataset, Rows
from fedbench.engine import Engine
from fedbench.models.dense import Linear
from fedbench.optim import SGD, Optimizer
from fedbench.oracles import make_oracle
from fedbench.simulate import Sampler, Snapshot, Stage, sample_cohort, simulate
from fedbench.task import Task

ROOT = Path(__file__).resolve().parent.parent
ALGORITHMS = sorted(p.stem for p in (ROOT / "fedbench" / "algorithms").glob("*.py") if p.stem != "__init__")
UNEQUAL = (1, 23, 4, 9, 40, 10, 2)  # training examples; with batch 10 these take 1, 3, 1, 1, 4, 1, 1 steps an epoch


def factory(name: str) -> Callable[..., Algorithm]:
    """The function that makes a method."""
    made: Callable[..., Algorithm] = getattr(importlib.import_module(f"fedbench.algorithms.{name}"), name)
    return made


def variants(name: str) -> list[dict[str, Any]]:
    """The settings under which a method is put through the contract: its defaults and each of its switches."""
    extra: dict[str, list[dict[str, Any]]] = {
        "fedavg": [{"weights": "uniform", "server_lr": 0.5}],
        "fedavgm": [{"nesterov": True}],
        "fedadam": [{"bias_correction": True, "v0": 0.0, "tau": 1e-8, "server_lr": 1e-2}, {"eps_inside": True}],
        "fednova": [{"server_momentum": 0.5}],
        "qfedavg": [{"q": 0.0}, {"q": 0.3}, {"q": 10.0, "L": 1.0}],
        "adafedadam": [
            {"alpha": 0.5, "step_scale": "one"},
            {"alpha": 2.0, "step_scale": "certainty_after_6", "inverse_rate": "ratio"},
        ],
    }
    return [{}, *extra.get(name, [])]


CASES = [(name, options) for name in ALGORITHMS for options in variants(name)]


def case_id(case: tuple[str, dict[str, Any]]) -> str:
    """A name for a case."""
    return "-".join([case[0], *(f"{k}={v}" for k, v in case[1].items())])


def make(name: str, local: Optimizer = SGD, **options: Any) -> Algorithm:
    """A method with a local solver, if it takes one."""
    build = factory(name)
    if "local" in inspect.signature(build).parameters:
        options["local"] = local
    return build(**options)


def federation(
    sizes: Sequence[int] = UNEQUAL,
    tests: Sequence[int] | None = None,
    features: int = 6,
    classes: int = 3,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    shape: Sequence[int] | None = None,
) -> FederatedDataset:
    """Clients with Gaussian inputs around their own centers, labelled by their own linear models."""
    rng = np.random.default_rng(seed)
    tests = [3] * len(sizes) if tests is None else tests
    xs, ys, train, test, at = [], [], [], [], 0
    for n, m in zip(sizes, tests, strict=True):
        x = rng.normal(rng.normal(0, 0.5, features), 1.0, (n + m, features))
        xs.append(x)
        ys.append((x @ rng.normal(0, 1, (features, classes))).argmax(1))
        train.append(np.arange(at, at + n))
        test.append(np.arange(at + n, at + n + m))
        at += n + m
    x = np.concatenate(xs)
    data = FederatedDataset(
        x=torch.from_numpy(x if shape is None else x.reshape(-1, *shape)),
        y=torch.from_numpy(np.concatenate(ys)),
        train=Rows.of(train),
        test=Rows.of(test),
        names=tuple(f"c{k}" for k in range(len(sizes))),
        classes=classes,
    )
    return data.to(torch.device("cpu"), dtype)


def task_for(data: FederatedDataset, model: Callable[..., nn.Module] = Linear, **options: Any) -> Task:
    """A task with a model of the data's shape."""
    with torch.device("meta"):
        net = model(data.shape, data.classes, **options)
    return Task(net, torch.device("cpu"), data.dtype)


def snapshots(
    algo: Algorithm,
    data: FederatedDataset,
    *,
    task: Task | None = None,
    rounds: int = 3,
    mode: str = "stacked",
    cohort_size: int = 1000,
    workers: int = 1,
    work: LocalWork | None = None,
    participation: float | int = 1.0,
    sampler: Sampler | None = None,
    seed: int = 0,
    w: Tensor | None = None,
) -> list[Snapshot]:
    """Run a method and return all snapshots, from the initial model on."""
    task = task or task_for(data)
    engine = Engine(make_oracle(task, mode), mode, cohort_size, workers)
    work = work or LocalWork(lr=0.1, batch_size=10)
    w = task.init(torch.Generator().manual_seed(seed)) if w is None else w
    stage = Stage(algo, rounds, sampler or sample_cohort(participation))
    try:
        return list(simulate([stage], task, data, work, engine, w, seed))
    finally:
        engine.close()


def final(algo: Algorithm, data: FederatedDataset, **options: Any) -> Tensor:
    """The final model [P] of a run."""
    return snapshots(algo, data, **options)[-1].server["w"]


def close(a: Tensor, b: Tensor, relative: float) -> bool:
    """Whether two vectors differ by at most ``relative`` times the length of the second."""
    return bool(torch.linalg.vector_norm(a - b) <= relative * torch.linalg.vector_norm(b))

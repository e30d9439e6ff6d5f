#!/usr/bin/env python
"""Measure for which perceptrons stacking, threads and compiled code are faster, the basis of `engine.mode=auto`.

usage: python scripts/modes.py
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from fedbench.algorithms.fedavg import fedavg
from fedbench.config.schema import EngineConfig, Mode
from fedbench.core.algorithm import Stage
from fedbench.core.randomness import Purpose, generator
from fedbench.core.samplers import sample_cohort
from fedbench.data.assemble import assemble
from fedbench.data.dataset import FederatedDataset
from fedbench.data.examples import Examples
from fedbench.models.dense import MLP
from fedbench.runs.build_engine import make_engine
from fedbench.simulation.batches import LocalWork
from fedbench.simulation.loop import simulate
from fedbench.simulation.task import Task

CASES = (
    ([32], 784, 10),
    ([128], 784, 10),
    ([200, 200], 784, 64),
    ([200, 200], 3072, 64),
    ([200, 200], 3072, 10),
    ([512, 512], 3072, 10),
    ([1024], 3072, 32),
)
MODES: tuple[tuple[Mode, int, int], ...] = (
    ("stacked", 8, 1), ("stacked", 8, 2), ("loop", 1, 1), ("loop", 1, 2), ("compiled", 8, 1), ("compiled", 8, 2),
)  # fmt: skip
CLIENTS, EXAMPLES, CLASSES, ROUNDS = 100, 40, 10, 3


def federation(features: int) -> FederatedDataset:
    """Return clients with equal numbers of random examples."""
    rng = np.random.default_rng(0)
    x = rng.random((CLIENTS * EXAMPLES, features), dtype=np.float32)
    examples = Examples(
        x,
        rng.integers(0, CLASSES, len(x)),
        CLASSES,
        owner=np.repeat(np.arange(CLIENTS), EXAMPLES),
        names=tuple(map(str, range(CLIENTS))),
    )
    return assemble(examples, partition=None, clients=None, split=0.8, local_test="split", seed=0)


def seconds(hidden: Sequence[int], data: FederatedDataset, mode: Mode, size: int, workers: int, batch: int) -> float:
    """Return the seconds of the fastest round."""
    with torch.device("meta"):
        task = Task(MLP(data.shape, CLASSES, hidden), torch.device("cpu"), torch.float32)
    options = EngineConfig(mode, size, workers, "float32", "auto", profile=False)
    work = LocalWork(0.01, batch)
    engine = make_engine(task, data, work, options)
    w = task.init(generator(0, Purpose.INIT))
    stages = [Stage(fedavg(), ROUNDS)]
    rounds = simulate(stages, task, data, work, engine, w, 0, sample_cohort())
    next(rounds)
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        next(rounds)
        times.append(time.perf_counter() - start)
    engine.close()
    return min(times)


def main() -> None:
    """Measure all cases and print a table."""
    torch.set_num_threads(1)
    print("hidden, inputs, batch        " + "".join(f"{f'{m}, {w} thread(s)':>22}" for m, _, w in MODES))
    for hidden, features, batch in CASES:
        data = federation(features).to(torch.device("cpu"), torch.float32)
        times = [seconds(hidden, data, m, c, w, batch) for m, c, w in MODES]
        print(f"{f'{hidden}, {features}, {batch}':<29}" + "".join(f"{t:>22.3f}" for t in times), flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python
"""Measure the time and memory of a round over the number and skew of clients, participation and model size.

usage: python scripts/scale.py [--picture FILE.png] [--json FILE]

Every point is the fastest of three rounds of FedAvg after a warm-up, with engine.mode=auto, in a process of its own;
its peak memory is the one that the system reports. `scaffold` and `ditto` are rounds of 100 clients of methods that
keep a vector or a model for every client; `femnist` is a round over 3500 clients with 700000 images of 28 x 28.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from fedbench.algorithms.ditto import ditto
from fedbench.algorithms.fedavg import fedavg
from fedbench.algorithms.scaffold import scaffold
from fedbench.config.compose import compose_run
from fedbench.core.algorithm import Stage
from fedbench.core.randomness import Purpose, generator, sample_cohort
from fedbench.data.assemble import assemble
from fedbench.data.dataset import FederatedDataset
from fedbench.data.examples import Examples
from fedbench.models.dense import MLP, Linear
from fedbench.runs.build_engine import make_engine
from fedbench.simulation.client_states import StateAllocator
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.loop import Simulation, simulate
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROUNDS, BATCH, LR = 3, 10, 0.01
COLORS = ("#0072B2", "#D55E00")
MEMORY = (("linear",), ("scaffold", "ditto"))  # panels whose peak memory is drawn, too
ALGORITHMS = {"fedavg": fedavg, "scaffold": scaffold, "ditto": ditto}
STATES = (100, 1000, 3000, 10_000)
# panel: x axis, points of (x, clients, examples each, sigma of lognormal sizes, participation, hidden, algorithm)
PANELS: dict[str, tuple[str, list[tuple[float, int, int, float, float, int, str]]]] = {
    "linear": (
        "clients, linear 60-10",
        [(n, n, 50, 0, 1.0, 0, "fedavg") for n in (10, 100, 1000, 10_000, 100_000)],
    ),
    "mlp": ("clients, perceptron 784-128-62", [(n, n, 50, 0, 1.0, 128, "fedavg") for n in (16, 64, 256, 1024, 3500)]),
    "skew": ("sigma of lognormal sizes, linear, 1000 clients", [(s, 1000, 50, s, 1.0, 0, "fedavg") for s in (0, 1, 2)]),
    "participation": (
        "clients taking part of 1000, perceptron",
        [(n, 1000, 50, 0, n, 128, "fedavg") for n in (10, 100, 1000)],
    ),
    "model": (
        "parameters, perceptron, 64 clients",
        [(784 * h + h + 63 * h, 64, 50, 0, 1.0, h, "fedavg") for h in (16, 64, 256, 1024)],
    ),
    "femnist": ("clients, perceptron, 200 images each", [(3500, 3500, 250, 0, 1.0, 128, "fedavg")]),
    "scaffold": ("clients, 100 take part, perceptron", [(n, n, 50, 0, 100, 128, "scaffold") for n in STATES]),
    "ditto": ("clients, 100 take part, perceptron", [(n, n, 50, 0, 100, 128, "ditto") for n in STATES]),
}


def federation(clients: int, examples: int, sigma: float, images: bool) -> FederatedDataset:
    """Return random examples: images of 28 x 28 of 62 classes, or vectors of 60 numbers of 10 classes."""
    rng = np.random.default_rng(0)
    weights = rng.lognormal(0, sigma, clients)
    n = np.maximum(np.round(weights / weights.sum() * clients * examples), 5).astype(int)
    if images:
        x, classes = rng.integers(0, 256, (n.sum(), 1, 28, 28), dtype=np.uint8), 62
    else:
        x, classes = rng.standard_normal((n.sum(), 60), dtype=np.float32), 10
    e = Examples(
        x,
        rng.integers(0, classes, n.sum()),
        classes,
        owner=np.repeat(np.arange(clients), n),
        names=tuple(map(str, range(clients))),
    )
    data = assemble(e, partition=None, clients=None, split=0.8, local_test="split", seed=0)
    return data.to(torch.device("cpu"), torch.float32)


def point(
    clients: int, examples: int, sigma: float, participation: float, hidden: int, algorithm: str, folder: Path
) -> dict[str, float]:
    """Return the seconds per round, the client-steps of a round and the peak memory of this process.

    The bytes of the examples and of the client states, which are kept in ``folder`` if they do not fit into memory,
    are what a run cannot do without.
    """
    torch.set_num_threads(1)
    data = federation(clients, examples, sigma, hidden > 0)
    model: nn.Module
    with torch.device("meta"):
        model = MLP(data.shape, data.classes, [hidden]) if hidden else Linear(data.shape, data.classes)
    task = Task(model, torch.device("cpu"), torch.float32)
    work = LocalWork(LR, BATCH)
    engine = make_engine(task, data, work, compose_run([]).engine, data.num_clients)
    states = StateAllocator(task.device, folder=folder)
    taking = int(participation) if participation > 1 else participation
    w = task.init(generator(0, Purpose.INIT))
    stages = [Stage(ALGORITHMS[algorithm](), ROUNDS + 1)]
    measurements = Measurements(task, engine)
    simulation = Simulation(stages, data, work, measurements, w, 0, sample_cohort(taking), states)
    rounds = simulate(simulation)
    next(rounds)
    next(rounds)
    seconds, steps = [], []
    before = 0
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        snapshot = next(rounds)
        seconds.append(time.perf_counter() - begun)
        steps.append(snapshot.client_steps - before)
        before = snapshot.client_steps
    engine.close()
    return {
        "seconds": min(seconds),
        "client_steps": steps[-1],
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "data_bytes": data.x.nbytes,
        "state_bytes": states.bytes,
    }


def picture(found: dict[str, list[dict[str, float]]], path: Path) -> None:
    """Draw the microseconds per client-step, a panel per varied quantity, and the peak memory against the clients."""
    from matplotlib.figure import Figure

    timed = [p for p in found if len(found[p]) > 1 and p not in ("scaffold", "ditto")]
    figure = Figure(figsize=(15, 6), layout="constrained")
    axes = figure.subplots(2, 4).ravel()
    for axis, name in zip(axes, timed, strict=False):
        x = [p["x"] for p in found[name]]
        axis.plot(x, [1e6 * p["seconds"] / p["client_steps"] for p in found[name]], "o-", color=COLORS[0])
        axis.set(xlabel=PANELS[name][0], ylabel="µs per client-step", ylim=(0, None), title=name)
        if name != "skew":
            axis.set_xscale("log")
    for axis, names in zip(axes[len(timed) :], MEMORY, strict=False):
        memory(axis, {name: found[name] for name in names if name in found})
    for axis in axes[len(timed) + len(MEMORY) :]:
        axis.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def memory(axis: Axes, found: dict[str, list[dict[str, float]]]) -> None:
    """Draw the peak memory, and as a dotted line what the examples and the states of all clients take."""
    for color, (name, points) in zip(COLORS, found.items(), strict=False):
        x = [p["x"] for p in points]
        axis.plot(x, [p["peak_memory_bytes"] / 1e9 for p in points], "o-", color=color, label=name)
        least = [(p["data_bytes"] + p["state_bytes"]) / 1e9 for p in points]
        axis.plot(x, least, ":", color=color, label=f"{name}: examples and states of all clients")
        axis.set(xlabel=PANELS[name][0])
    axis.set(ylabel="peak memory, GB", xscale="log", yscale="log", title="memory: " + ", ".join(found))
    axis.legend(fontsize="small")


def main() -> None:
    """Measure all points and print a table; with --point, measure one point for the parent process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="draw the results")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    parser.add_argument("--point", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.point:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(point(*args.point, Path(folder))))
        return
    found: dict[str, list[dict[str, float]]] = {}
    print(f"{'':<14} {'x':>8} {'s/round':>9} {'steps':>8} {'µs/step':>8} {'memory':>8}")
    for name, (_, points) in PANELS.items():
        for x, *what in points:
            command = [sys.executable, __file__, "--point", json.dumps(what)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            got = {"x": x, **json.loads(done.stdout)}
            found.setdefault(name, []).append(got)
            each, memory = 1e6 * got["seconds"] / got["client_steps"], got["peak_memory_bytes"] / 2**20
            line = f"{got['seconds']:9.4f} {got['client_steps']:8.0f} {each:8.1f} {memory:6.0f} M"
            print(f"{name:<14} {x:8g} {line}", flush=True)
    if args.picture:
        picture(found, args.picture)
    if args.json:
        args.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

#!/usr/bin/env python
"""Measure the cost of a round of FedAvg over the number and skew of clients, participation and model size.

usage: python scripts/scale.py [--picture FILE.png] [--json FILE]

Every point is the fastest of three rounds after a warm-up, with engine.mode=auto, in a process of its own; its peak
memory is the one that the system reports. `femnist` is a round over 3500 clients with 700000 images of 28 x 28.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fedbench.algorithms.fedavg import fedavg
from fedbench.config.compose import compose_run
from fedbench.core.algorithm import Stage
from fedbench.core.randomness import Purpose, generator
from fedbench.core.samplers import sample_cohort
from fedbench.data.assemble import assemble
from fedbench.data.examples import Examples
from fedbench.models.dense import MLP, Linear
from fedbench.runs.build_engine import make_engine
from fedbench.simulation.batches import LocalWork
from fedbench.simulation.loop import simulate
from fedbench.simulation.task import Task

ROUNDS, BATCH, LR = 3, 10, 0.01
# panel: x axis, points of (x, clients, examples each, sigma of lognormal sizes, participation, hidden)
PANELS: dict[str, tuple[str, list[tuple[float, int, int, float, float, int]]]] = {
    "linear": ("clients, linear 60-10", [(n, n, 50, 0, 1.0, 0) for n in (10, 100, 1000, 10_000)]),
    "mlp": ("clients, perceptron 784-128-62", [(n, n, 50, 0, 1.0, 128) for n in (16, 64, 256, 1024, 3500)]),
    "skew": ("sigma of lognormal sizes, linear, 1000 clients", [(s, 1000, 50, s, 1.0, 0) for s in (0, 1, 2)]),
    "participation": ("clients taking part of 1000, perceptron", [(n, 1000, 50, 0, n, 128) for n in (10, 100, 1000)]),
    "model": (
        "parameters, perceptron, 64 clients",
        [(784 * h + h + 63 * h, 64, 50, 0, 1.0, h) for h in (16, 64, 256, 1024)],
    ),
    "femnist": ("clients, perceptron, 200 images each", [(3500, 3500, 250, 0, 1.0, 128)]),
}


def point(clients: int, examples: int, sigma: float, participation: float, hidden: int) -> dict[str, float]:
    """Return the seconds per round, the client-steps of a round and the peak memory of this process."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    weights = rng.lognormal(0, sigma, clients)
    n = np.maximum(np.round(weights / weights.sum() * clients * examples), 5).astype(int)
    shape, classes = ((1, 28, 28), 62) if hidden else ((60,), 10)
    x = rng.integers(0, 256, (n.sum(), *shape), dtype=np.uint8) if hidden else rng.normal(size=(n.sum(), *shape))
    e = Examples(
        x if hidden else x.astype(np.float32),
        rng.integers(0, classes, n.sum()),
        classes,
        owner=np.repeat(np.arange(clients), n),
        names=tuple(map(str, range(clients))),
    )
    data = assemble(e, partition=None, clients=None, split=0.8, local_test="split", seed=0)
    data = data.to(torch.device("cpu"), torch.float32)
    model: nn.Module
    with torch.device("meta"):
        model = MLP(shape, classes, [hidden]) if hidden else Linear(shape, classes)
    task = Task(model, torch.device("cpu"), torch.float32)
    engine = make_engine(task, clients, compose_run([]).engine)
    taking = int(participation) if participation > 1 else participation
    w = task.init(generator(0, Purpose.INIT))
    rounds = simulate(
        [Stage(fedavg(), ROUNDS + 1)], task, data, LocalWork(LR, BATCH), engine, w, 0, sample_cohort(taking)
    )
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
    }


def picture(found: dict[str, list[dict[str, float]]], path: Path) -> None:
    """Draw the microseconds per client-step, a panel per varied quantity."""
    from matplotlib.figure import Figure

    drawn = [p for p in found if len(found[p]) > 1]
    figure = Figure(figsize=(12, 6), layout="constrained")
    axes = figure.subplots(2, 3).ravel()
    for axis, name in zip(axes, drawn, strict=False):
        x = [p["x"] for p in found[name]]
        axis.plot(x, [1e6 * p["seconds"] / p["client_steps"] for p in found[name]], "o-", color="#0072B2")
        axis.set(xlabel=PANELS[name][0], ylabel="µs per client-step", ylim=(0, None), title=name)
        if name != "skew":
            axis.set_xscale("log")
    for axis in axes[len(drawn) :]:
        axis.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measure all points and print a table; with --point, measure one point for the parent process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="draw the results")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    parser.add_argument("--point", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.point:
        print(json.dumps(point(*args.point)))
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

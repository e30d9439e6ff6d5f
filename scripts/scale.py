#!/usr/bin/env python
"""Measure time and memory over the number of clients and the size of the model, and draw them.

    python scripts/scale.py rounds [--picture FILE.png] [--json FILE] python scripts/scale.py
    population [--clients 10000,100000,1000000] [--picture FILE.png] [--json FILE]

Every point has a process of its own, and its peak memory is the one that the system reports.

`rounds`: a round over the number and skew of clients, participation and model size. Every point is
the fastest of three rounds of FedAvg after a warm-up, with engine.mode=auto. `scaffold` and `ditto`
are rounds of 100 clients of methods that keep a vector or a model for every client; `femnist` is a
round over 3500 clients with 700000 images of 28 x 28.

`population`: a round, an evaluation and the data over the number of clients. Synthetic(1, 1) with 5
examples a client and a linear model of 610 parameters, 100 clients a round, 200 rounds, every 20th
evaluated on 1000 clients or all; a checkpoint and the final files are written too. Times are
seconds of a CPU, which other processes on the machine hardly change; those of a round and of an
evaluation are medians. By default the picture is docs/figures/population.png.
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
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from fedbench.algorithms.ditto import ditto
from fedbench.algorithms.fedavg import fedavg
from fedbench.algorithms.scaffold import scaffold
from fedbench.config.compose import compose_run
from fedbench.core.algorithm import Stage
from fedbench.core.optim import SGD
from fedbench.core.randomness import Purpose, generator, sample_cohort
from fedbench.data.assemble import assemble
from fedbench.data.dataset import FederatedDataset
from fedbench.data.examples import Examples
from fedbench.models.dense import MLP, Linear
from fedbench.runs.build import build
from fedbench.runs.build_engine import make_engine
from fedbench.runs.recorder import Recorder
from fedbench.runs.training import TrainingSession
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
# panel: x axis, points of (x, clients, examples each, sigma of lognormal sizes, participation,
# hidden, algorithm)
PANELS: dict[str, tuple[str, list[tuple[float, int, int, float, float, int, str]]]] = {
    "linear": (
        "clients, linear 60-10",
        [(n, n, 50, 0, 1.0, 0, "fedavg") for n in (10, 100, 1000, 10_000, 100_000)],
    ),
    "mlp": (
        "clients, perceptron 784-128-62",
        [(n, n, 50, 0, 1.0, 128, "fedavg") for n in (16, 64, 256, 1024, 3500)],
    ),
    "skew": (
        "sigma of lognormal sizes, linear, 1000 clients",
        [(s, 1000, 50, s, 1.0, 0, "fedavg") for s in (0, 1, 2)],
    ),
    "participation": (
        "clients taking part of 1000, perceptron",
        [(n, 1000, 50, 0, n, 128, "fedavg") for n in (10, 100, 1000)],
    ),
    "model": (
        "parameters, perceptron, 64 clients",
        [(784 * h + h + 63 * h, 64, 50, 0, 1.0, h, "fedavg") for h in (16, 64, 256, 1024)],
    ),
    "femnist": ("clients, perceptron, 200 images each", [(3500, 3500, 250, 0, 1.0, 128, "fedavg")]),
    "scaffold": (
        "clients, 100 take part, perceptron",
        [(n, n, 50, 0, 100, 128, "scaffold") for n in STATES],
    ),
    "ditto": (
        "clients, 100 take part, perceptron",
        [(n, n, 50, 0, 100, 128, "ditto") for n in STATES],
    ),
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


def round_cost(
    clients: int,
    examples: int,
    sigma: float,
    participation: float,
    hidden: int,
    algorithm: str,
    folder: Path,
) -> dict[str, float]:
    """Return the seconds per round, the client-steps of a round and the peak memory of this process.

    The bytes of the examples and of the client states, which are kept in ``folder`` if they do not
    fit into memory, are what a run cannot do without.
    """
    torch.set_num_threads(1)
    data = federation(clients, examples, sigma, hidden > 0)
    model: nn.Module
    with torch.device("meta"):
        model = (
            MLP(data.shape, data.classes, [hidden]) if hidden else Linear(data.shape, data.classes)
        )
    task = Task(model, torch.device("cpu"), torch.float32)
    work = LocalWork(LR, BATCH)
    engine = make_engine(task, data, work, compose_run([]).engine, data.num_clients)
    states = StateAllocator(task.device, folder=folder)
    taking = int(participation) if participation > 1 else participation
    w = task.init(generator(0, Purpose.INIT))
    stages = [Stage(ALGORITHMS[algorithm](SGD), ROUNDS + 1)]
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


def draw_rounds(found: dict[str, list[dict[str, float]]], path: Path) -> None:
    """Draw the microseconds per client-step, a panel per varied quantity, and the peak memory against the clients."""
    from matplotlib.figure import Figure

    timed = [p for p in found if len(found[p]) > 1 and p not in ("scaffold", "ditto")]
    figure = Figure(figsize=(15, 6), layout="constrained")
    axes = figure.subplots(2, 4).ravel()
    for axis, name in zip(axes, timed, strict=False):
        x = [p["x"] for p in found[name]]
        axis.plot(
            x, [1e6 * p["seconds"] / p["client_steps"] for p in found[name]], "o-", color=COLORS[0]
        )
        axis.set(xlabel=PANELS[name][0], ylabel="µs per client-step", ylim=(0, None), title=name)
        if name != "skew":
            axis.set_xscale("log")
    for axis, names in zip(axes[len(timed) :], MEMORY, strict=False):
        draw_memory(axis, {name: found[name] for name in names if name in found})
    for axis in axes[len(timed) + len(MEMORY) :]:
        axis.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def draw_memory(axis: Axes, found: dict[str, list[dict[str, float]]]) -> None:
    """Draw the peak memory, and as a dotted line what the examples and the states of all clients take."""
    for color, (name, points) in zip(COLORS, found.items(), strict=False):
        x = [p["x"] for p in points]
        axis.plot(x, [p["peak_memory_bytes"] / 1e9 for p in points], "o-", color=color, label=name)
        least = [(p["data_bytes"] + p["state_bytes"]) / 1e9 for p in points]
        axis.plot(x, least, ":", color=color, label=f"{name}: examples and states of all clients")
        axis.set(xlabel=PANELS[name][0])
    axis.set(
        ylabel="peak memory, GB", xscale="log", yscale="log", title="memory: " + ", ".join(found)
    )
    axis.legend(fontsize="small")


# ---- populations

ROOT = Path(__file__).parent.parent
POPULATION_RUN = [
    "data=synthetic_1_1",
    "data.source.most=5",
    "participation=100",
    "rounds=200",
    "eval_every=20",
]
POPULATION_LINES = {  # label: overrides, colour, dashes
    "FedAvg": (["algo=fedavg", "evaluate.clients=1000"], "#0072B2", "-"),
    "AdaFedAdam": (["algo=adafedadam", "evaluate.clients=1000"], "#009E73", "--"),
    "SCAFFOLD": (["algo=scaffold", "evaluate.clients=1000"], "#D55E00", "-."),
    "FedAvg, all evaluated": (["algo=fedavg"], "#56B4E9", ":"),
}
POPULATION_PANELS = {  # key: label of the axis, factor, lowest value shown
    "round": ("a round of 100 clients, CPU ms", 1e3, 0.1),
    "evaluation": ("an evaluation, CPU ms", 1e3, 0.1),
    "memory": ("peak memory, GB", 1e-9, 0.1),
    "data": ("making the data, CPU s", 1, 0.1),
}


def population_cost(overrides: list[str]) -> dict[str, float]:
    """Return CPU seconds of the data, of a round, of an evaluation and of a checkpoint, and bytes, of a run here."""
    torch.set_num_threads(1)
    took: dict[str, list[float]] = {"round": [], "evaluation": []}
    begun = time.process_time()
    prepared = build(compose_run([*overrides, "engine.workers=1"]))
    data = time.process_time() - begun
    with tempfile.TemporaryDirectory() as folder:
        session = TrainingSession(prepared, Recorder(Path(folder) / "run"))
        snapshots = session.snapshots()
        while True:
            begun = time.process_time()
            snapshot = next(snapshots, None)
            if snapshot is None:
                break
            took["round"].append(time.process_time() - begun)
            if session.evaluates(snapshot.round):
                begun = time.process_time()
                session.record(snapshot)
                took["evaluation"].append(time.process_time() - begun)
        begun = time.process_time()
        session._save(session.last)
        saved = time.process_time() - begun
        written = sum(
            file.stat().st_size for file in session.recorder.folder.rglob("*.safetensors")
        )
        session.finish({})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    medians = {k: float(np.median(v[1:])) for k, v in took.items()}
    return {
        "data": data,
        **medians,
        "checkpoint": saved,
        "checkpoint_bytes": written,
        "memory": peak,
    }


def population_figure(found: dict[str, dict[int, dict[str, float]]]) -> Any:
    """Return a panel for each quantity over the number of clients."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.6), layout="constrained")
    panels = figure.subplots(1, len(POPULATION_PANELS))
    for axes, (key, (label, factor, least)) in zip(panels, POPULATION_PANELS.items(), strict=True):
        for name, (_, colour, dashes) in POPULATION_LINES.items():
            points = found[name]
            values = [factor * p[key] for p in points.values()]
            axes.plot(
                list(points), values, "o", linestyle=dashes, color=colour, label=name, markersize=4
            )
        axes.set(xlabel="clients", title=label, xscale="log", yscale="log")
        axes.set_ylim(min(least, axes.get_ylim()[0]), max(10, axes.get_ylim()[1]))
        axes.grid(color="0.9")
    panels[2].axhline(4, color="0.4", linewidth=0.8)
    panels[2].text(min(found["FedAvg"]), 4.2, "4 GB", color="0.3", fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(POPULATION_LINES), frameon=False
    )
    return figure


# ---- the command line


def in_own_process(*arguments: object) -> dict[str, float]:
    """Measure a point in a process of its own."""
    command = [sys.executable, __file__, *map(str, arguments)]
    measured: dict[str, float] = json.loads(
        subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    )
    return measured


def measure_rounds(args: argparse.Namespace) -> None:
    """Measure all points of rounds, print a row for each, and draw them."""
    if args.point:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(round_cost(*args.point, Path(folder))))
        return
    measured: dict[str, list[dict[str, float]]] = {}
    print(f"{'':<14} {'x':>8} {'s/round':>9} {'steps':>8} {'µs/step':>8} {'memory':>8}")
    for name, (_, points) in PANELS.items():
        for x, *settings in points:
            cost = {"x": x, **in_own_process("rounds", "--point", json.dumps(settings))}
            measured.setdefault(name, []).append(cost)
            each, memory = (
                1e6 * cost["seconds"] / cost["client_steps"],
                cost["peak_memory_bytes"] / 2**20,
            )
            line = f"{cost['seconds']:9.4f} {cost['client_steps']:8.0f} {each:8.1f} {memory:6.0f} M"
            print(f"{name:<14} {x:8g} {line}", flush=True)
    if args.picture:
        draw_rounds(measured, args.picture)
    if args.json:
        args.json.write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")


def measure_population(args: argparse.Namespace) -> None:
    """Measure all points of populations, print a row for each, and draw them."""
    if args.point:
        print(json.dumps(population_cost(args.point)))
        return
    measured: dict[str, dict[int, dict[str, float]]] = {name: {} for name in POPULATION_LINES}
    heads = ("", "clients", "data s", "round ms", "eval. ms", "checkpoint ms", "MB", "peak GB")
    print("{:<22} {:>9} {:>8} {:>9} {:>9} {:>14} {:>8} {:>8}".format(*heads))
    for clients in map(int, args.clients.split(",")):
        for name, (overrides, *_) in POPULATION_LINES.items():
            settings = [*POPULATION_RUN, *overrides, f"data.clients={clients}"]
            cost = in_own_process("population", "--point", json.dumps(settings))
            measured[name][clients] = cost
            row = f"{cost['data']:8.1f} {1e3 * cost['round']:9.2f} {1e3 * cost['evaluation']:9.1f}"
            row += f" {1e3 * cost['checkpoint']:14.0f} {cost['checkpoint_bytes'] / 1e6:8.1f}"
            print(f"{name:<22} {clients:9} {row} {cost['memory'] / 1e9:8.2f}", flush=True)
    args.picture.parent.mkdir(parents=True, exist_ok=True)
    population_figure(measured).savefig(args.picture, dpi=120)
    print(f"written: {args.picture}")
    if args.json:
        args.json.write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)

    rounds = commands.add_parser(
        "rounds", help="a round over clients, skew, participation and model size"
    )
    rounds.add_argument("--picture", type=Path, metavar="FILE.png", help="draw the results")
    rounds.set_defaults(measure=measure_rounds)

    population = commands.add_parser(
        "population", help="rounds, evaluations and data over the number of clients"
    )
    population.add_argument("--clients", default="10000,100000,1000000", help="numbers of clients")
    population.add_argument(
        "--picture", type=Path, default=ROOT / "docs" / "figures" / "population.png"
    )
    population.set_defaults(measure=measure_population)

    for command in (rounds, population):
        command.add_argument(
            "--json", type=Path, metavar="FILE", help="write the results to this file"
        )
        command.add_argument("--point", type=json.loads, help=argparse.SUPPRESS)

    args = parser.parse_args()
    args.measure(args)


if __name__ == "__main__":
    main()

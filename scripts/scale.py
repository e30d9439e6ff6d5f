#!/usr/bin/env python
"""Measure and draw time and memory over the number of clients and the size of the model.

    python scripts/scale.py rounds [--picture FILE.png]
    python scripts/scale.py population [--clients 10000,100000,1000000] [--picture FILE.png]

Every point runs in a process of its own; the system reports the peak memory of that process.

`rounds`: a round over the number and skew of clients, participation and model size. Every point is
the fastest of three rounds of FedAvg after a warm-up, with engine.mode=auto. `scaffold` and `ditto`
are rounds of 100 clients of methods that keep a vector or a model for every client; `femnist` is a
round over 3500 clients with 700000 images of 28 x 28.

`population`: a round, an evaluation and the data over the number of clients. Synthetic(1, 1) with 5
examples a client and a linear model of 610 parameters; 200 rounds of 100 clients, with an
evaluation on 1000 clients or all after every 20th; a checkpoint and the final files. Times are CPU
seconds, which other processes on the machine hardly change; those of a round and of an evaluation
are medians. The default picture is docs/figures/population.png.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from bench import CPU, owned
from torch import nn

from fedbench.algorithms.ditto import ditto
from fedbench.algorithms.fedavg import fedavg
from fedbench.algorithms.scaffold import scaffold
from fedbench.config.compose import compose_run
from fedbench.core.algorithm import Stage
from fedbench.core.optim import SGD
from fedbench.core.randomness import Purpose, generator, sample_cohort
from fedbench.data.dataset import FederatedDataset
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
    from matplotlib.figure import Figure

Cost = dict[str, float]  # of a point, by quantity


def in_own_process(command: str, point: Sequence[Any]) -> Cost:
    """Measure a point in a process of its own."""
    arguments = [sys.executable, __file__, command, "--point", json.dumps(point)]
    output = subprocess.run(arguments, stdout=subprocess.PIPE, check=True).stdout
    cost: Cost = json.loads(output)
    return cost


def peak_bytes() -> int:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# ---- rounds

ROUNDS = 3
WORK = LocalWork(0.01, 10)
ALGORITHMS = {
    "fedavg": fedavg,
    "scaffold": scaffold,
    "ditto": ditto,
}


class Point(NamedTuple):
    """A setting of a round.

    Attributes:
        clients: Number of clients.
        examples: Their mean number of examples.
        sigma: Skew of the number of examples, which is lognormal.
        participation: Number or share of the clients of a round.
        hidden: Size of the hidden layer; 0 for a linear model.
        algorithm: The method.
    """

    clients: int
    examples: int = 50
    sigma: float = 0
    participation: float = 1.0
    hidden: int = 128
    algorithm: str = "fedavg"


class Panel(NamedTuple):
    """Points over one quantity, by its values."""

    label: str
    points: dict[float, Point]


def by_clients(
    *counts: int,
    **settings: Any,
) -> dict[float, Point]:
    """Return points over the number of clients."""
    return {count: Point(count, **settings) for count in counts}


STATES = (100, 1000, 3000, 10_000)
HIDDEN = (16, 64, 256, 1024)
PANELS = {
    "linear": Panel(
        "clients, linear 60-10",
        by_clients(10, 100, 1000, 10_000, 100_000, hidden=0),
    ),
    "mlp": Panel(
        "clients, perceptron 784-128-62",
        by_clients(16, 64, 256, 1024, 3500),
    ),
    "skew": Panel(
        "sigma of lognormal sizes, linear, 1000 clients",
        {s: Point(1000, sigma=s, hidden=0) for s in (0, 1, 2)},
    ),
    "participation": Panel(
        "clients taking part of 1000, perceptron",
        {n: Point(1000, participation=n) for n in (10, 100, 1000)},
    ),
    "model": Panel(
        "parameters, perceptron, 64 clients",
        # about 848 parameters per hidden unit
        {848 * h: Point(64, hidden=h) for h in HIDDEN},
    ),
    "femnist": Panel(
        "clients, perceptron, 200 images each",
        by_clients(3500, examples=250),
    ),
    "scaffold": Panel(
        "clients, 100 take part, perceptron",
        by_clients(*STATES, participation=100, algorithm="scaffold"),
    ),
    "ditto": Panel(
        "clients, 100 take part, perceptron",
        by_clients(*STATES, participation=100, algorithm="ditto"),
    ),
}
TIMED = ("linear", "mlp", "skew", "participation", "model")  # panels of the time
MEMORY = (("linear",), ("scaffold", "ditto"))  # panels of the peak memory
COLORS = ("#0072B2", "#D55E00")


def federation(point: Point) -> FederatedDataset:
    """Return random examples: images of 62 classes for a perceptron, else vectors of 10 classes."""
    rng = np.random.default_rng(0)
    weights = rng.lognormal(0, point.sigma, point.clients)
    shares = weights / weights.sum()
    n = np.round(shares * point.clients * point.examples)
    n = np.maximum(n, 5).astype(int)
    total = n.sum()
    if point.hidden:
        shape = (total, 1, 28, 28)
        x = rng.integers(0, 256, shape, dtype=np.uint8)
        classes = 62
    else:
        x = rng.standard_normal((total, 60), dtype=np.float32)
        classes = 10
    y = rng.integers(0, classes, total)
    data = owned(x, y, classes, n)
    return data.to(CPU, torch.float32)


def round_cost(point: Point, folder: Path) -> Cost:
    """Return the seconds and the client-steps of a round, and the peak memory of this process.

    The bytes of the examples and of the client states, which are kept in ``folder`` if they do not
    fit into memory, are what a run cannot do without.
    """
    torch.set_num_threads(1)
    data = federation(point)
    with torch.device("meta"):
        model: nn.Module = Linear(data.shape, data.classes)
        if point.hidden:
            model = MLP(data.shape, data.classes, [point.hidden])
    task = Task(model, CPU, torch.float32)
    engine = make_engine(
        task,
        data,
        WORK,
        compose_run([]).engine,
        data.num_clients,
    )
    states = StateAllocator(CPU, folder=folder)
    cohort = point.participation
    if cohort > 1:
        cohort = int(cohort)
    algorithm = ALGORITHMS[point.algorithm](SGD)
    simulation = Simulation(
        [Stage(algorithm, ROUNDS + 1)],
        data,
        WORK,
        Measurements(task, engine),
        task.init(generator(0, Purpose.INIT)),
        0,
        sample_cohort(cohort),
        states,
    )
    ends = [time.perf_counter()]
    steps = [0]
    for snapshot in simulate(simulation):
        ends.append(time.perf_counter())
        steps.append(snapshot.client_steps)
    engine.close()
    seconds = np.diff(ends)[-ROUNDS:]
    return {
        "seconds": float(seconds.min()),
        "client_steps": steps[-1] - steps[-2],
        "peak_memory_bytes": peak_bytes(),
        "data_bytes": data.x.nbytes,
        "state_bytes": states.bytes,
    }


def measure_rounds(args: argparse.Namespace) -> None:
    """Measure all points of rounds, print a row for each, and draw them."""
    if args.point:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(round_cost(Point(*args.point), Path(folder))))
        return

    costs: dict[str, dict[float, Cost]] = {}
    print(f"{'':<14} {'x':>8} {'s/round':>9} {'steps':>8} {'µs/step':>8} {'memory':>8}")
    for name, panel in PANELS.items():
        costs[name] = {}
        for x, point in panel.points.items():
            cost = in_own_process("rounds", point)
            cost["step"] = 1e6 * cost["seconds"] / cost["client_steps"]
            costs[name][x] = cost
            memory = cost["peak_memory_bytes"] / 2**20
            print(
                f"{name:<14} {x:8g} {cost['seconds']:9.4f} {cost['client_steps']:8.0f} "
                f"{cost['step']:8.1f} {memory:6.0f} M",
                flush=True,
            )
    if args.picture:
        draw_rounds(costs, args.picture)


def draw_rounds(costs: Mapping[str, Mapping[float, Cost]], path: Path) -> None:
    """Draw the microseconds per client-step, a panel per quantity, and the peak memory."""
    from matplotlib.figure import Figure  # late: a point measures the memory of its process

    figure = Figure(figsize=(15, 6), layout="constrained")
    every_axes = figure.subplots(2, 4).ravel()
    for axes, name in zip(every_axes, TIMED, strict=False):
        steps = [cost["step"] for cost in costs[name].values()]
        axes.plot(list(costs[name]), steps, "o-", color=COLORS[0])
        axes.set(
            xlabel=PANELS[name].label,
            ylabel="µs per client-step",
            ylim=(0, None),
            title=name,
        )
        if name != "skew":
            axes.set_xscale("log")
    rest = every_axes[len(TIMED) :]
    for axes, names in zip(rest, MEMORY, strict=False):
        draw_memory(axes, {name: costs[name] for name in names})
    for axes in rest[len(MEMORY) :]:
        axes.axis("off")
    save(figure, path)


def draw_memory(axes: Any, costs: Mapping[str, Mapping[float, Cost]]) -> None:
    """Draw the peak memory, and as a dotted line the memory of all examples and states."""
    for color, (name, points) in zip(COLORS, costs.items(), strict=False):
        peaks = []
        least = []
        for cost in points.values():
            peaks.append(cost["peak_memory_bytes"] / 1e9)
            stored = cost["data_bytes"] + cost["state_bytes"]
            least.append(stored / 1e9)
        x = list(points)
        axes.plot(x, peaks, "o-", color=color, label=name)
        label = f"{name}: examples and states of all clients"
        axes.plot(x, least, ":", color=color, label=label)
        axes.set(xlabel=PANELS[name].label)
    axes.set(
        ylabel="peak memory, GB",
        xscale="log",
        yscale="log",
        title="memory: " + ", ".join(costs),
    )
    axes.legend(fontsize="small")


def save(figure: Figure, path: Path) -> None:
    """Write a picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"written: {path}")


# ---- populations

POPULATION_PICTURE = Path(__file__).parents[1] / "docs" / "figures" / "population.png"
POPULATION_RUN = [
    "data=synthetic_1_1",
    "data.source.most=5",
    "participation=100",
    "rounds=200",
    "eval_every=20",
]


class Series(NamedTuple):
    """Overrides of the runs of a line, and its look."""

    overrides: list[str]
    colour: str
    dashes: str


POPULATION_LINES = {
    "FedAvg": Series(["algo=fedavg", "evaluate.clients=1000"], "#0072B2", "-"),
    "AdaFedAdam": Series(["algo=adafedadam", "evaluate.clients=1000"], "#009E73", "--"),
    "SCAFFOLD": Series(["algo=scaffold", "evaluate.clients=1000"], "#D55E00", "-."),
    "FedAvg, all evaluated": Series(["algo=fedavg"], "#56B4E9", ":"),
}
POPULATION_PANELS = {  # quantity: label of the axis, and factor
    "round": ("a round of 100 clients, CPU ms", 1e3),
    "evaluation": ("an evaluation, CPU ms", 1e3),
    "memory": ("peak memory, GB", 1e-9),
    "data": ("making the data, CPU s", 1),
}


def population_cost(overrides: Sequence[str]) -> Cost:
    """Return the CPU seconds of the parts of a run, and its bytes."""
    torch.set_num_threads(1)
    clock = [time.process_time()]

    def lap() -> float:
        clock.append(time.process_time())
        return clock[-1] - clock[-2]

    prepared = build(compose_run([*overrides, "engine.workers=1"]))
    data = lap()
    rounds: list[float] = []
    evaluations: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        session = TrainingSession(prepared, Recorder(Path(folder) / "run"))
        lap()
        for snapshot in session.snapshots():
            rounds.append(lap())
            if session.evaluates(snapshot.round):
                session.record(snapshot)
                evaluations.append(lap())
        lap()
        session._save(session.last)
        checkpoint = lap()
        files = session.recorder.checkpoint.rglob("*.safetensors")
        checkpoint_bytes = sum(file.stat().st_size for file in files)
        session.finish({})
    return {
        "data": data,
        "round": float(np.median(rounds[1:])),
        "evaluation": float(np.median(evaluations[1:])),
        "checkpoint": checkpoint,
        "checkpoint_bytes": checkpoint_bytes,
        "memory": peak_bytes(),
    }


def measure_population(args: argparse.Namespace) -> None:
    """Measure all points of populations, print a row for each, and draw them."""
    if args.point:
        print(json.dumps(population_cost(args.point)))
        return

    costs: dict[str, dict[int, Cost]] = {name: {} for name in POPULATION_LINES}
    row = "{:<22} {:>9} {:>8} {:>9} {:>9} {:>14} {:>8} {:>8}"
    heads = (
        "clients",
        "data s",
        "round ms",
        "eval. ms",
        "checkpoint ms",
        "MB",
        "peak GB",
    )
    print(row.format("", *heads))
    for clients in map(int, args.clients.split(",")):
        for name, series in POPULATION_LINES.items():
            overrides = [*POPULATION_RUN, *series.overrides, f"data.clients={clients}"]
            cost = in_own_process("population", overrides)
            costs[name][clients] = cost
            cells = (
                f"{cost['data']:.1f}",
                f"{1e3 * cost['round']:.2f}",
                f"{1e3 * cost['evaluation']:.1f}",
                f"{1e3 * cost['checkpoint']:.0f}",
                f"{cost['checkpoint_bytes'] / 1e6:.1f}",
                f"{cost['memory'] / 1e9:.2f}",
            )
            print(row.format(name, clients, *cells), flush=True)
    save(population_figure(costs), args.picture)


def population_figure(costs: Mapping[str, Mapping[int, Cost]]) -> Figure:
    """Return a panel for each quantity over the number of clients."""
    from matplotlib.figure import Figure  # late: a point measures the memory of its process

    figure = Figure(figsize=(13, 3.6), layout="constrained")
    panels = figure.subplots(1, len(POPULATION_PANELS))
    for axes, quantity in zip(panels, POPULATION_PANELS, strict=True):
        label, factor = POPULATION_PANELS[quantity]
        for name, series in POPULATION_LINES.items():
            values = [factor * cost[quantity] for cost in costs[name].values()]
            axes.plot(
                list(costs[name]),
                values,
                "o",
                linestyle=series.dashes,
                color=series.colour,
                label=name,
                markersize=4,
            )
        axes.set(
            xlabel="clients",
            title=label,
            xscale="log",
            yscale="log",
        )
        low, high = axes.get_ylim()
        axes.set_ylim(min(0.1, low), max(10, high))
        axes.grid(color="0.9")

    memory = panels[list(POPULATION_PANELS).index("memory")]
    memory.axhline(4, color="0.4", linewidth=0.8)
    memory.text(
        min(costs["FedAvg"]),
        4.2,
        "4 GB",
        color="0.3",
        fontsize=8,
    )
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=len(labels),
        frameon=False,
    )
    return figure


def main() -> None:
    """Measure and draw rounds or populations."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)

    rounds = commands.add_parser(
        "rounds",
        help="a round over clients, skew, participation and model size",
    )
    rounds.add_argument("--picture", type=Path, help="file of the picture")
    rounds.set_defaults(measure=measure_rounds)

    population = commands.add_parser(
        "population",
        help="rounds, evaluations and data over the number of clients",
    )
    population.add_argument(
        "--clients",
        default="10000,100000,1000000",
        help="numbers of clients",
    )
    population.add_argument("--picture", type=Path, default=POPULATION_PICTURE)
    population.set_defaults(measure=measure_population)

    for command in (rounds, population):
        command.add_argument("--point", type=json.loads, help=argparse.SUPPRESS)

    args = parser.parse_args()
    args.measure(args)


if __name__ == "__main__":
    main()

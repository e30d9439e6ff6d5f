#!/usr/bin/env python
"""Measure what a part of a round costs, and print a Markdown table.

    python scripts/costs.py rules [--clients C] [--parameters P] [--repeats R] [--device D]
    python scripts/costs.py steps [CASE ...]
    python scripts/costs.py processes [--rounds N] [--processes N]

`rules`: robust aggregation rules next to the mean. Rows are float32 vectors of C clients, as the
server gets them. Seconds are those of the fastest of R calls, of one thread, whatever else the
machine does, or of the GPU, which should be idle otherwise.

`steps`: a step of all clients on a GPU, client by client and side by side, first as it is and then
as CUDA graphs. A case is a model with the number of clients and the size of their batches.
Milliseconds of the fastest of five steps, and the peak of the memory: engine.mode=auto rests on
these numbers (docs/gpu.md).

`processes`: a round in one process with a thread per core, and in as many processes as there are
cores. The workloads are W4 and W5 of scripts/bench.py, and VGG-11. Processes are started by
torchrun on this machine and exchange by gloo. `sent` is what the first process sends to each of the
others in a round; `computed` is 4 bytes for each parameter of each vector of the clients that it
has trained. Seconds are those of the fastest round.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from bench import ALGORITHMS, CPU, WORKLOADS, Workload, fed_rounds, owned, synchronize
from torch import nn

from fedbench.core.types import Batch, weighted_sum
from fedbench.data.dataset import FederatedDataset
from fedbench.models.cnn import ConvNet, LeNet
from fedbench.models.lstm import LSTM
from fedbench.models.resnet import resnet
from fedbench.models.vgg import VGG11
from fedbench.runs.build import device_of
from fedbench.runs.process import WORLD_SIZE, available_cores
from fedbench.scenarios.defence import Defence
from fedbench.simulation.captured import CapturedOracle
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.oracles import make_oracle
from fedbench.simulation.ranks import ALONE, Ranks
from fedbench.simulation.task import Task

# ---- robust rules

RULES: list[dict[str, Any]] = [
    *(
        {"rule": rule}
        for rule in ("median", "trimmed_mean", "krum", "multi_krum", "bulyan", "geometric_median")
    ),
    {"rule": "centered_clipping"},
    *({"rule": "mean", "before": before} for before in ("bucketing", "nnm")),
]


def seconds(f: Callable[[], object], repeats: int, device: torch.device) -> float:
    """The time of the fastest of some calls."""
    now = time.process_time if device.type == "cpu" else time.perf_counter
    clock = [now()]
    for _ in range(repeats):
        f()
        synchronize(device)
        clock.append(now())
    return float(np.diff(clock).min())


def print_rules(args: argparse.Namespace) -> None:
    """Print a row per robust rule."""
    torch.set_num_threads(1)
    count, f = args.clients, (args.clients - 3) // 5
    device = device_of(args.device, "float32")
    rows = torch.randn(count, args.parameters, generator=torch.Generator().manual_seed(0)).to(
        device
    )
    p_k, centre = (
        torch.full((count,), 1 / count, device=device),
        torch.zeros(args.parameters, device=device),
    )
    everybody: Any = SimpleNamespace(planned=count, able=np.arange(count))
    mean = seconds(lambda: weighted_sum(p_k, rows), args.repeats, device)
    print(f"C = {count}, P = {args.parameters}, f = {f}\n")
    print("| rule | seconds | times the mean |\n| --- | ---: | ---: |")
    print(f"| mean | {mean:.3g} | 1.0 |", flush=True)
    for rule in RULES:
        defence = Defence(population=everybody, attackers=0, f=f, **rule)
        took = seconds(
            lambda d=defence: d.aggregate(rows, p_k, np.arange(count), centre), args.repeats, device
        )
        print(
            f"| {' after '.join(map(str, rule.values()))} | {took:.3g} | {took / mean:.1f} |",
            flush=True,
        )


# ---- steps on a GPU

GREY, COLOUR, TEXT = (1, 28, 28), (3, 32, 32), (80,)
CNN = partial(ConvNet, GREY, 62, [32, 64], 5, 512)
CHARACTERS = partial(LSTM, TEXT, 80, 80, None, embedding=8, hidden=256, layers=2)
VGG, RESNET = partial(VGG11, COLOUR, 10), partial(resnet, COLOUR, 10)


class Case(NamedTuple):
    """A model, the number of clients, the size of a batch, and the shape of an example."""

    model: Callable[[], nn.Module]
    clients: int
    batch: int
    shape: tuple[int, ...]


CASES = {
    "LeNet, 10 x 64": Case(partial(LeNet, GREY, 10, [6, 16], 5, [120, 84]), 10, 64, GREY),
    "2 convolutions, 10 x 32": Case(CNN, 10, 32, GREY),
    "2 convolutions, 100 x 10": Case(CNN, 100, 10, GREY),
    "3 convolutions, 20 x 128": Case(
        partial(ConvNet, COLOUR, 10, [32, 64, 64], 3, 64), 20, 128, COLOUR
    ),
    "LSTM, 2 x 10": Case(CHARACTERS, 2, 10, TEXT),
    "LSTM, 10 x 10": Case(CHARACTERS, 10, 10, TEXT),
    "LSTM, 50 x 10": Case(CHARACTERS, 50, 10, TEXT),
    "VGG-11, 10 x 64": Case(VGG, 10, 64, COLOUR),
    "VGG-11, 5 x 256": Case(VGG, 5, 256, COLOUR),
    "ResNet-18, 10 x 32": Case(RESNET, 10, 32, COLOUR),
    "ResNet-18, 2 x 64": Case(RESNET, 2, 64, COLOUR),
    "ResNet-18 with 7x7 stem, 10 x 10": Case(
        partial(resnet, COLOUR, 10, stem="7x7"), 10, 10, COLOUR
    ),
}


def timed(step: Callable[[], None]) -> float:
    """Return the milliseconds of a step on the GPU."""
    torch.cuda.synchronize()
    begun = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - begun)


def measured(case: Case, mode: str, device: torch.device) -> str:
    """Return the milliseconds of a step of all clients, and the memory, as cells of a table."""
    with torch.device("meta"):
        task = Task(case.model(), device, torch.float32)
    count = (case.clients, case.batch)
    x = torch.randn(*count, *case.shape, device=device)
    batch = Batch(
        x.abs().long() if case.shape == TEXT else x,
        torch.randint(0, 10, count, device=device),
        torch.full(count, 1 / case.batch, device=device),
    )
    w = task.init(torch.Generator().manual_seed(0)).expand(case.clients, -1).clone()
    lr = torch.full((case.clients, 1), 0.001, device=device)
    side = 1 if mode == "loop" else case.clients
    plain, best = make_oracle(task, mode), []
    torch.cuda.reset_peak_memory_stats()
    for oracle in (plain, CapturedOracle(plain)):

        def step(oracle: Any = oracle) -> None:
            for k in range(0, case.clients, side):
                part = slice(k, k + side)
                oracle.descend_(w[part], Batch(*(v[part] for v in batch[:3])), lr[part])

        best.append(min([timed(step) for _ in range(9)][4:]))
    return f"{best[0]:.1f} | {best[1]:.2f} | {torch.cuda.max_memory_reserved() / 2**20:.0f}"


def print_steps(args: argparse.Namespace) -> None:
    """Print a row per case."""
    device = device_of("cuda", "float32")
    print(f"{torch.cuda.get_device_name(device)}; milliseconds of a step, also captured, and MiB\n")
    print(
        "| clients x batch | loop | captured | MiB | stacked | captured | MiB |\n| --- |"
        + " ---: |" * 6
    )
    for name in args.cases or CASES:
        cells = [measured(CASES[name], mode, device) for mode in ("loop", "stacked")]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


# ---- processes

# vectors of a client that travel; SCAFFOLD: two uploads and a state
METHODS = {"fedavg": 1, "scaffold": 3}


def small_images() -> FederatedDataset:
    """4 clients, 64 images of 3 x 32 x 32 each."""
    rng = np.random.RandomState(931231)
    n = np.full(4, 80)
    return owned(
        rng.randn(n.sum(), 3, 32, 32).astype(np.float32), rng.randint(0, 10, n.sum()), 10, n
    )


def vgg() -> torch.nn.Module:
    """Return VGG-11 for these images."""
    return VGG11((3, 32, 32), 10)


MEASURED = {k: WORKLOADS[k] for k in ("W4", "W5")}
MEASURED["VGG-11"] = Workload(
    "4 clients, 64 images each, batch 32", small_images, vgg, vgg, LocalWork(0.01, 32)
)


def measure_processes(rounds: int) -> None:
    """Print a line of JSON per workload and method, in the first of the processes."""
    ranks = Ranks(CPU) if WORLD_SIZE > 1 else ALONE
    torch.set_num_threads(1)
    for name, w in MEASURED.items():
        data = w.data().to(CPU, torch.float32)
        size = sum(p.numel() for p in w.model().parameters())
        for method in METHODS:
            before = ranks.sent
            with tempfile.TemporaryDirectory() as folder:
                seconds = [
                    train
                    for train, _ in fed_rounds(
                        ALGORITHMS[method](), w, data, rounds, Path(folder), ranks
                    )
                ]
            sent = (ranks.sent - before) / rounds
            computed = 4 * size * METHODS[method] * data.num_clients / WORLD_SIZE
            row = {
                "workload": name,
                "method": method,
                "seconds": min(seconds[1:]),
                "sent": sent,
                "computed": computed,
            }
            if not ranks.rank:
                print(json.dumps(row), flush=True)


def print_processes(args: argparse.Namespace) -> None:
    """Start the processes and print a row per workload and method."""
    if args.here:
        measure_processes(args.rounds)
        return
    measured_rows = []
    for processes in (1, args.processes):
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        command = [
            sys.executable,
            *torchrun,
            __file__,
            "processes",
            "--here",
            f"--rounds={args.rounds}",
        ]
        lines = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True
        ).stdout.splitlines()
        measured_rows.append([json.loads(line) for line in lines if line.startswith("{")])
    threads = f"1 process, {available_cores()} threads"
    print(f"| workload | method | {threads} | {args.processes} processes | sent | computed |")
    print("| --- | --- | --- | --- | --- | --- |")
    for one, many in zip(*measured_rows, strict=True):
        cells = [
            one["workload"],
            one["method"],
            f"{one['seconds']:.2f} s",
            f"{many['seconds']:.2f} s",
        ]
        cells += [f"{many[k] / 1e6:.1f} MB" for k in ("sent", "computed")]
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Print the table that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)

    rules = commands.add_parser("rules", help="robust aggregation rules next to the mean")
    for name, value in (("clients", 100), ("parameters", 10**6), ("repeats", 2)):
        rules.add_argument(f"--{name}", type=int, default=value)
    rules.add_argument("--device", default="cpu", help="as in a run (default: cpu)")
    rules.set_defaults(print_table=print_rules)

    steps = commands.add_parser("steps", help="a step of all clients on a GPU")
    steps.add_argument(
        "cases", nargs="*", metavar="CASE", choices=[*CASES, []], help=f"from {'; '.join(CASES)}"
    )
    steps.set_defaults(print_table=print_steps)

    processes = commands.add_parser("processes", help="one process and several")
    processes.add_argument(
        "--rounds", type=int, default=5, help="number of rounds; the first does not count"
    )
    processes.add_argument(
        "--processes", type=int, default=available_cores(), help="number of processes"
    )
    processes.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    processes.set_defaults(print_table=print_processes)

    args = parser.parse_args()
    args.print_table(args)


if __name__ == "__main__":
    main()

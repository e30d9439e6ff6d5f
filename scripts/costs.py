#!/usr/bin/env python
"""Measure what a part of a round costs, and print a Markdown table.

    python scripts/costs.py rules [--clients C] [--parameters P] [--repeats R] [--device D]
    python scripts/costs.py steps [CASE ...]
    python scripts/costs.py processes [--rounds N] [--processes N]

`rules`: robust aggregation rules next to the mean. The rows are float32 vectors of C clients, as
the server receives them. Seconds are those of the fastest of R calls: CPU time of one thread, which
the load of the machine hardly changes, or time on the GPU, which should be idle otherwise.

`steps`: a step of all clients on a GPU, client by client and side by side, first without and then
with CUDA graphs. A case is a model with the number of clients and the size of their batches. The
table has the milliseconds of the fastest of five steps and the peak memory; engine.mode=auto rests
on these numbers (docs/gpu.md).

`processes`: a round in one process with a thread per core, and in as many processes as there are
cores. The workloads are W4 and W5 of scripts/bench.py, and VGG-11. torchrun starts the processes on
this machine, and they communicate by gloo. `sent` is the data that the first process sends to each
other process in a round; `computed` is 4 bytes for each parameter of each vector of the clients
that it has trained. Seconds are those of the fastest round.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from bench import ALGORITHMS, CPU, WORKLOADS, Workload, fed_rounds, images, synchronize
from torch import nn

from fedbench.core.types import Batch, weighted_sum
from fedbench.models.cnn import ConvNet, LeNet
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


def print_row(cells: Iterable[object]) -> None:
    """Print a row of a Markdown table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


# ---- robust rules

RULES: dict[str, dict[str, Any]] = {
    "median": {"rule": "median"},
    "trimmed_mean": {"rule": "trimmed_mean"},
    "krum": {"rule": "krum"},
    "multi_krum": {"rule": "multi_krum"},
    "bulyan": {"rule": "bulyan"},
    "geometric_median": {"rule": "geometric_median"},
    "centered_clipping": {"rule": "centered_clipping"},
    "mean after bucketing": {"rule": "mean", "before": "bucketing"},
    "mean after nnm": {"rule": "mean", "before": "nnm"},
}


def fastest(
    f: Callable[[], object],
    repeats: int,
    device: torch.device,
) -> float:
    """Return the seconds of the fastest of some calls."""
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
    device = device_of(args.device, "float32")
    count = args.clients
    f = (count - 3) // 5
    seeded = torch.Generator().manual_seed(0)
    rows = torch.randn(count, args.parameters, generator=seeded).to(device)
    p = torch.full((count,), 1 / count, device=device)
    centre = torch.zeros(args.parameters, device=device)
    clients = np.arange(count)
    population: Any = SimpleNamespace(planned=count, able=clients)

    mean = fastest(lambda: weighted_sum(p, rows), args.repeats, device)
    print(f"C = {count}, P = {args.parameters}, f = {f}\n")
    print_row(["rule", "seconds", "times the mean"])
    print_row(["---", "---:", "---:"])
    print_row(["mean", f"{mean:.3g}", "1.0"])
    for name, options in RULES.items():
        defence = Defence(
            population=population,
            attackers=0,
            f=f,
            **options,
        )
        aggregate = partial(defence.aggregate, rows, p, clients, centre)
        seconds = fastest(aggregate, args.repeats, device)
        print_row([name, f"{seconds:.3g}", f"{seconds / mean:.1f}"])


# ---- steps on a GPU

GREY = (1, 28, 28)
COLOUR = (3, 32, 32)
TEXT = (80,)
CNN = WORKLOADS["W3"].model
DEEPER_CNN = partial(ConvNet, COLOUR, 10, [32, 64, 64], 3, 64)
LENET = partial(LeNet, GREY, 10, [6, 16], 5, [120, 84])
LSTM = WORKLOADS["W5"].model
VGG = partial(VGG11, COLOUR, 10)
RESNET = partial(resnet, COLOUR, 10)
WIDE_RESNET = partial(resnet, COLOUR, 10, stem="7x7")


class Case(NamedTuple):
    """A model, the number of clients, the size of a batch, and the shape of an example."""

    model: Callable[[], nn.Module]
    clients: int
    batch: int
    shape: tuple[int, ...]


CASES = {
    "LeNet, 10 x 64": Case(LENET, 10, 64, GREY),
    "2 convolutions, 10 x 32": Case(CNN, 10, 32, GREY),
    "2 convolutions, 100 x 10": Case(CNN, 100, 10, GREY),
    "3 convolutions, 20 x 128": Case(DEEPER_CNN, 20, 128, COLOUR),
    "LSTM, 2 x 10": Case(LSTM, 2, 10, TEXT),
    "LSTM, 10 x 10": Case(LSTM, 10, 10, TEXT),
    "LSTM, 50 x 10": Case(LSTM, 50, 10, TEXT),
    "VGG-11, 10 x 64": Case(VGG, 10, 64, COLOUR),
    "VGG-11, 5 x 256": Case(VGG, 5, 256, COLOUR),
    "ResNet-18, 10 x 32": Case(RESNET, 10, 32, COLOUR),
    "ResNet-18, 2 x 64": Case(RESNET, 2, 64, COLOUR),
    "ResNet-18 with 7x7 stem, 10 x 10": Case(WIDE_RESNET, 10, 10, COLOUR),
}


def measure_steps(case: Case, mode: str, device: torch.device) -> list[str]:
    """Return the milliseconds of a step of all clients, and the memory, as cells of a table."""
    with torch.device("meta"):
        task = Task(case.model(), device, torch.float32)
    count = (case.clients, case.batch)
    x = torch.randn(*count, *case.shape, device=device)
    if case.shape == TEXT:
        x = x.abs().long()
    batch = Batch(
        x,
        torch.randint(0, 10, count, device=device),
        torch.full(count, 1 / case.batch, device=device),
    )
    w = task.init(torch.Generator().manual_seed(0))
    w = w.expand(case.clients, -1).clone()
    lr = torch.full((case.clients, 1), 0.001, device=device)
    together = 1 if mode == "loop" else case.clients

    def step(oracle: Any) -> None:
        for k in range(0, case.clients, together):
            part = slice(k, k + together)
            of_part = Batch(*(values[part] for values in batch[:3]))
            oracle.descend_(w[part], of_part, lr[part])

    torch.cuda.reset_peak_memory_stats()
    plain = make_oracle(task, mode)
    milliseconds = []
    for oracle in (plain, CapturedOracle(plain)):
        for _ in range(4):
            step(oracle)
        torch.cuda.synchronize()
        seconds = fastest(partial(step, oracle), 5, device)
        milliseconds.append(1000 * seconds)
    memory = torch.cuda.max_memory_reserved() / 2**20
    return [
        f"{milliseconds[0]:.1f}",
        f"{milliseconds[1]:.2f}",
        f"{memory:.0f}",
    ]


def print_steps(args: argparse.Namespace) -> None:
    """Print a row per case."""
    device = device_of("cuda", "float32")
    print(f"{torch.cuda.get_device_name(device)}; milliseconds of a step, also captured, and MiB\n")
    heads = []
    for mode in ("loop", "stacked"):
        heads += [mode, "captured", "MiB"]
    print_row(["clients x batch", *heads])
    print_row(["---", *["---:"] * len(heads)])
    for name in args.cases or CASES:
        cells = []
        for mode in ("loop", "stacked"):
            cells += measure_steps(CASES[name], mode, device)
        print_row([name, *cells])


# ---- processes

# vectors of a client that travel; SCAFFOLD: two uploads and a state
METHODS = {"fedavg": 1, "scaffold": 3}
EXCHANGED = {
    "W4": WORKLOADS["W4"],
    "W5": WORKLOADS["W5"],
    "VGG-11": Workload(
        about="4 clients, 64 images each, batch 32",
        data=partial(images, 4, 80, COLOUR, 10),
        plain=VGG,
        model=VGG,
        work=LocalWork(0.01, 32),
    ),
}


def measure_processes(rounds: int) -> None:
    """Print a line of JSON per workload and method, in the first of the processes."""
    ranks = Ranks(CPU) if WORLD_SIZE > 1 else ALONE
    torch.set_num_threads(1)
    for name, w in EXCHANGED.items():
        data = w.data().to(CPU, torch.float32)
        size = sum(p.numel() for p in w.model().parameters())
        for method, vectors in METHODS.items():
            sent = ranks.sent
            with tempfile.TemporaryDirectory() as folder:
                timed_rounds = fed_rounds(
                    ALGORITHMS[method](),
                    w,
                    data,
                    rounds,
                    Path(folder),
                    ranks,
                )
                seconds = [train for train, _ in timed_rounds]
            row = {
                "workload": name,
                "method": method,
                "seconds": min(seconds[1:]),
                "sent": (ranks.sent - sent) / rounds,
                "computed": 4 * size * vectors * data.num_clients / WORLD_SIZE,
            }
            if not ranks.rank:
                print(json.dumps(row), flush=True)


def rows_of(processes: int, rounds: int) -> list[dict[str, Any]]:
    """Start some processes and return their rows."""
    command = [
        sys.executable,
        *("-m", "torch.distributed.run"),
        "--standalone",
        f"--nproc-per-node={processes}",
        __file__,
        "processes",
        "--worker",
        f"--rounds={rounds}",
    ]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def print_processes(args: argparse.Namespace) -> None:
    """Print a row per workload and method."""
    if args.worker:
        measure_processes(args.rounds)
        return
    alone = rows_of(1, args.rounds)
    together = rows_of(args.processes, args.rounds)
    print_row(
        [
            "workload",
            "method",
            f"1 process, {available_cores()} threads",
            f"{args.processes} processes",
            "sent",
            "computed",
        ]
    )
    print_row(["---"] * 6)
    for one, many in zip(alone, together, strict=True):
        print_row(
            [
                one["workload"],
                one["method"],
                f"{one['seconds']:.2f} s",
                f"{many['seconds']:.2f} s",
                f"{many['sent'] / 1e6:.1f} MB",
                f"{many['computed'] / 1e6:.1f} MB",
            ]
        )


def main() -> None:
    """Print the table of a command."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)

    rules = commands.add_parser("rules", help="robust aggregation rules next to the mean")
    rules.add_argument("--clients", type=int, default=100)
    rules.add_argument("--parameters", type=int, default=10**6)
    rules.add_argument("--repeats", type=int, default=2)
    rules.add_argument("--device", default="cpu", help="as in a run (default: cpu)")
    rules.set_defaults(print_table=print_rules)

    steps = commands.add_parser("steps", help="a step of all clients on a GPU")
    steps.add_argument(
        "cases",
        nargs="*",
        metavar="CASE",
        choices=[*CASES, []],
        help=f"from {'; '.join(CASES)}",
    )
    steps.set_defaults(print_table=print_steps)

    processes = commands.add_parser("processes", help="one process and several")
    processes.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="number of rounds; the first does not count",
    )
    processes.add_argument(
        "--processes",
        type=int,
        default=available_cores(),
        help="number of processes",
    )
    processes.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    processes.set_defaults(print_table=print_processes)

    args = parser.parse_args()
    args.print_table(args)


if __name__ == "__main__":
    main()

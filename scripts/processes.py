#!/usr/bin/env python
"""Measure a round in one process with a thread per core, and in as many processes as there are cores.

usage: python scripts/processes.py [--rounds N] [--processes N]

The workloads are W4 and W5 of scripts/bench.py, and VGG-11. Processes are started by torchrun on this machine and
exchange by gloo. `sent` is what the first process sends to each of the others in a round; `on paper` is the arithmetic
of it: 4 bytes for each parameter of each vector of the clients that it has trained. Seconds are those of the fastest
round.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from bench import ALGORITHMS, CPU, WORKLOADS, Workload, fed_rounds, owned

from fedbench.data.dataset import FederatedDataset
from fedbench.models.vgg import VGG11
from fedbench.runs.process import WORLD_SIZE, available_cores
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.ranks import ALONE, Ranks

METHODS = {"fedavg": 1, "scaffold": 3}  # vectors of a client that travel; SCAFFOLD: two uploads and a state


def images() -> FederatedDataset:
    """4 clients, 64 images of 3 x 32 x 32 each."""
    rng = np.random.RandomState(931231)
    n = np.full(4, 80)
    return owned(rng.randn(n.sum(), 3, 32, 32).astype(np.float32), rng.randint(0, 10, n.sum()), 10, n)


def vgg() -> torch.nn.Module:
    """Return VGG-11 for these images."""
    return VGG11((3, 32, 32), 10)


MEASURED = {k: WORKLOADS[k] for k in ("W4", "W5")}
MEASURED["VGG-11"] = Workload("4 clients, 64 images each, batch 32", images, vgg, vgg, LocalWork(0.01, 32))


def measure(rounds: int) -> None:
    """Print a line of JSON per workload and method, in the first of the processes."""
    ranks = Ranks(CPU) if WORLD_SIZE > 1 else ALONE
    torch.set_num_threads(1)
    for name, w in MEASURED.items():
        data = w.data().to(CPU, torch.float32)
        size = sum(p.numel() for p in w.model().parameters())
        for method in METHODS:
            before = ranks.sent
            with tempfile.TemporaryDirectory() as folder:
                seconds = [train for train, _ in fed_rounds(ALGORITHMS[method](), w, data, rounds, Path(folder), ranks)]
            sent = (ranks.sent - before) / rounds
            paper = 4 * size * METHODS[method] * data.num_clients / WORLD_SIZE
            row = {"workload": name, "method": method, "seconds": min(seconds[1:]), "sent": sent, "paper": paper}
            if not ranks.rank:
                print(json.dumps(row), flush=True)


def main() -> None:
    """Start the processes and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds; the first does not count")
    parser.add_argument("--processes", type=int, default=available_cores(), help="number of processes")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        measure(args.rounds)
        return
    found = []
    for processes in (1, args.processes):
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        command = [sys.executable, *torchrun, __file__, "--here", f"--rounds={args.rounds}"]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        found.append([json.loads(line) for line in lines if line.startswith("{")])
    print(
        f"| workload | method | 1 process, {available_cores()} threads | {args.processes} processes | sent | on paper |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for one, many in zip(*found, strict=True):
        cells = [one["workload"], one["method"], f"{one['seconds']:.2f} s", f"{many['seconds']:.2f} s"]
        cells += [f"{many[k] / 1e6:.1f} MB" for k in ("sent", "paper")]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

"""Measure what a robust rule costs in a round, next to the mean, and print a Markdown table.

usage: python scripts/robust_cost.py [--clients C] [--parameters P] [--repeats R] [--device D]

Rows are float32 vectors of C clients, as the server gets them. Seconds are those of the fastest of R calls, of one
thread, whatever else the machine does, or of the GPU, which should be idle otherwise.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from bench import synchronize

from fedbench.core.types import weighted_sum
from fedbench.runs.build import device_of
from fedbench.scenarios.defence import Defence

CASES: list[dict[str, Any]] = [
    *({"rule": rule} for rule in ("median", "trimmed_mean", "krum", "multi_krum", "bulyan", "geometric_median")),
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


def main() -> None:
    """Print the table."""
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, value in (("clients", 100), ("parameters", 10**6), ("repeats", 2)):
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--device", default="cpu", help="as in a run (default: cpu)")
    asked = p.parse_args()
    torch.set_num_threads(1)
    count, f = asked.clients, (asked.clients - 3) // 5
    device = device_of(asked.device, "float32")
    rows = torch.randn(count, asked.parameters, generator=torch.Generator().manual_seed(0)).to(device)
    p_k, centre = torch.full((count,), 1 / count, device=device), torch.zeros(asked.parameters, device=device)
    everybody: Any = SimpleNamespace(planned=count, able=np.arange(count))
    mean = seconds(lambda: weighted_sum(p_k, rows), asked.repeats, device)
    print(f"C = {count}, P = {asked.parameters}, f = {f}\n")
    print("| rule | seconds | times the mean |\n| --- | ---: | ---: |")
    print(f"| mean | {mean:.3g} | 1.0 |", flush=True)
    for case in CASES:
        defence = Defence(population=everybody, attackers=0, f=f, **case)
        took = seconds(lambda d=defence: d.aggregate(rows, p_k, np.arange(count), centre), asked.repeats, device)
        print(f"| {' after '.join(map(str, case.values()))} | {took:.3g} | {took / mean:.1f} |", flush=True)


if __name__ == "__main__":
    main()

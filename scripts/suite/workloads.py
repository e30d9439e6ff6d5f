"""Part c: the workloads of scripts/bench.py against the sequential loop on the same device, and against this CPU."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from bench import ALGORITHMS, CPU, WORKLOADS, fed_rounds, matmul_rate, measure
from suite.parts import Outcome, Part, Piece, Setting

from fedbench.runs.cores import available_cores

_ROUNDS = {"W1": 10, "W2": 10}  # of both on the device; 4 of the others


def workload(name: str, setting: Setting) -> Outcome:
    """Measure a round on the device, of the loop and of fedbench, and of fedbench on all cores of this machine."""
    load = WORKLOADS[name]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    rate = matmul_rate(available_cores(), setting.device)  # leaves torch with one thread, as the loop has it
    found = measure(load, 1 if setting.small else _ROUNDS.get(name, 4), ["fedavg"], rate, setting.device)
    seconds = found["seconds_fedavg"]
    cpu = seconds if setting.small else _on_cpu(name)
    slower = [f"{1000 * seconds:.1f} ms on the device, {1000 * cpu:.1f} ms on the CPU"] if seconds > cpu else []
    return {
        "about": load.about,
        "seconds_loop": found["seconds_loop"],
        "seconds_fedbench": seconds,
        "seconds_cpu": cpu,
        "ratio": found["ratio_fedavg"],
        "share": found["share_of_floor"],
        "matmul_rate": rate,
        "client_steps": found["client_steps"],
        "wrong": slower,
    }


def _on_cpu(name: str, rounds: int = 3) -> float:
    """Return the seconds of the fastest round of training on the CPU, after one that warms up."""
    load = WORKLOADS[name]
    data = load.data().to(CPU, torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        timed = fed_rounds(ALGORITHMS["fedavg"](), load, data, rounds + 1, Path(folder))
        return min(train for train, _ in islice(timed, 1, None))


def pieces(setting: Setting) -> list[Piece]:
    """Return a piece for each workload."""
    return [Piece(name, 1.0, partial(workload, name)) for name in (("W1",) if setting.small else WORKLOADS)]


def table(found: Mapping[str, Outcome]) -> list[str]:
    """Return the times of a round as a table."""
    lines = [
        "| workload | loop, ms | fedbench, ms | ratio | share of the matmul rate | fedbench on the CPU, ms |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, f in found.items():
        if "ratio" in f:
            times = [f"{1000 * f[k]:.2f}" for k in ("seconds_loop", "seconds_fedbench", "seconds_cpu")]
            lines.append(
                f"| {name} {f['about']} | {times[0]} | {times[1]} | {f['ratio']:.1f} | {f['share']:.1%} | {times[2]} |"
            )
    return lines


PART = Part("c", "W1 to W5", pieces, table)

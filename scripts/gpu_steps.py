#!/usr/bin/env python
"""Time a step of all clients on a GPU, client by client and side by side, first as it is and then as CUDA graphs.

usage: python scripts/gpu_steps.py [CASE ...]

A case is a model with the number of clients and the size of their batches. Milliseconds of the fastest of five steps,
and the peak of the memory: engine.mode=auto rests on these numbers (docs/gpu.md).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from fedbench.core.types import Batch
from fedbench.models.cnn import ConvNet, LeNet
from fedbench.models.lstm import LSTM
from fedbench.models.resnet import resnet
from fedbench.models.vgg import VGG11
from fedbench.runs.build import device_of
from fedbench.simulation.captured import CapturedOracle
from fedbench.simulation.oracles import make_oracle
from fedbench.simulation.task import Task

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
    "3 convolutions, 20 x 128": Case(partial(ConvNet, COLOUR, 10, [32, 64, 64], 3, 64), 20, 128, COLOUR),
    "LSTM, 2 x 10": Case(CHARACTERS, 2, 10, TEXT),
    "LSTM, 10 x 10": Case(CHARACTERS, 10, 10, TEXT),
    "LSTM, 50 x 10": Case(CHARACTERS, 50, 10, TEXT),
    "VGG-11, 10 x 64": Case(VGG, 10, 64, COLOUR),
    "VGG-11, 5 x 256": Case(VGG, 5, 256, COLOUR),
    "ResNet-18, 10 x 32": Case(RESNET, 10, 32, COLOUR),
    "ResNet-18, 2 x 64": Case(RESNET, 2, 64, COLOUR),
    "ResNet-18 with 7x7 stem, 10 x 10": Case(partial(resnet, COLOUR, 10, stem="7x7"), 10, 10, COLOUR),
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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"from {'; '.join(CASES)} (default: all)")
    asked = parser.parse_args().cases or CASES
    if unknown := set(asked) - set(CASES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    device = device_of("cuda", "float32")
    print(f"{torch.cuda.get_device_name(device)}; milliseconds of a step, also captured, and MiB\n")
    print("| clients x batch | loop | captured | MiB | stacked | captured | MiB |\n| --- |" + " ---: |" * 6)
    for name in asked:
        cells = [measured(CASES[name], mode, device) for mode in ("loop", "stacked")]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

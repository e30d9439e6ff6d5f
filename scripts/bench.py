#!/usr/bin/env python
"""How fast fedbench simulates, as a ratio to a tight sequential PyTorch loop in the same run.

usage: python scripts/bench.py [--rounds 30] [--json FILE] [WORKLOAD ...]

The yardstick: one model, parameters copied in per client, rows gathered once per epoch, batches are slices, plain
autograd and a fused update; no DataLoader, no optimizer object, one thread. Rounds of the yardstick and of fedbench
alternate, so that both see the same machine. `train` is a round of the simulator with its shuffling; `recorded` adds
the evaluation of every client and the line in rounds.jsonl. Ratios compare the fastest rounds; medians stand beside.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from fedbench.algorithm import Stage
from fedbench.algorithms.adafedadam import adafedadam
from fedbench.algorithms.fedavg import fedavg
from fedbench.batches import LocalWork
from fedbench.build import make_engine
from fedbench.data.assemble import assemble
from fedbench.data.examples import Examples
from fedbench.data.federated import FederatedDataset
from fedbench.data.sources.synthetic import leaf
from fedbench.evaluate import evaluate
from fedbench.models.dense import MLP, Linear
from fedbench.randomness import Purpose, generator
from fedbench.sampling import sample_cohort
from fedbench.simulate import simulate
from fedbench.store import Recorder
from fedbench.task import Task

LR, BATCH = 0.01, 10


@dataclass(frozen=True)
class Workload:
    """A data set and a model for it."""

    about: str
    data: Callable[[], FederatedDataset]
    model: Callable[[FederatedDataset], nn.Module]


def synthetic() -> FederatedDataset:
    """LEAF synthetic, 100 clients."""
    return assemble(leaf(Path(), 0, clients=100), partition=None, clients=None, split=0.8, local_test="split", seed=0)


def images() -> FederatedDataset:
    """200 clients of 10 to 400 random images of 784 values, 62 classes."""
    rng = np.random.default_rng(0)
    n = np.clip(rng.lognormal(np.log(90) - 0.125, 0.5, 200).astype(int), 13, 500)
    x, y = rng.random((n.sum(), 784), dtype=np.float32), rng.integers(0, 62, n.sum())
    examples = Examples(x, y, 62, owner=np.repeat(np.arange(200), n), names=tuple(map(str, range(200))))
    return assemble(examples, partition=None, clients=None, split=0.8, local_test="split", seed=0)


WORKLOADS = {
    "linear": Workload(
        "Synthetic (LEAF), 100 clients, 60-10, batch 10", synthetic, lambda d: Linear(d.shape, d.classes)
    ),
    "mlp": Workload("200 clients, 784-128-62, batch 10", images, lambda d: MLP(d.shape, d.classes, [128])),
}


def tight_loop(model: nn.Module, data: FederatedDataset) -> Callable[[], None]:
    """Return one round of FedAvg as a careful user would write it without a framework."""
    net = model.to_empty(device="cpu")
    params = list(net.parameters())
    w = [torch.randn(p.shape) * 0.01 for p in params]
    rng = np.random.RandomState(0)
    owned = data.train.split()
    total = sum(map(len, owned))

    def round_() -> None:
        acc = [torch.zeros_like(t) for t in w]
        for rows in owned:
            with torch.no_grad():
                torch._foreach_copy_(params, w)
            order = torch.from_numpy(rng.permutation(rows))
            for x, y in zip(data.x[order].split(BATCH), data.y[order].split(BATCH), strict=True):
                grads = torch.autograd.grad(F.cross_entropy(net(x), y), params)
                with torch.no_grad():
                    torch._foreach_add_(params, grads, alpha=-LR)
            with torch.no_grad():
                torch._foreach_add_(acc, params, alpha=len(rows) / total)
        for t, a in zip(w, acc, strict=True):
            t.copy_(a)

    return round_


def fed_rounds(
    name: str, model: nn.Module, data: FederatedDataset, rounds: int, folder: Path
) -> Iterator[tuple[float, float]]:
    """Yield (seconds of training, seconds of recording) of fedbench's rounds."""
    task = Task(model, torch.device("cpu"), torch.float32)
    engine = make_engine(task, data.num_clients, {"mode": "auto", "cohort_size": "auto", "workers": "auto"})
    algorithm = {"fedavg": fedavg, "adafedadam": adafedadam}[name]()
    stages = [Stage(algorithm, rounds)]
    w = task.init(generator(0, Purpose.INIT))
    snapshots = simulate(stages, task, data, LocalWork(LR, BATCH), engine, w, 0, sample_cohort())
    recorder = Recorder(folder)
    next(snapshots)
    while True:
        start = time.perf_counter()
        snapshot = next(snapshots, None)
        trained = time.perf_counter()
        if snapshot is None:
            return
        record = evaluate(task, data, algorithm.deploy(snapshot.server, snapshot.clients), engine)
        recorder.append({"round": snapshot.round, **record.summary()})
        yield trained - start, time.perf_counter() - trained


def measure(workload: Workload, rounds: int) -> dict[str, float]:
    """Alternate rounds of the yardstick and of fedbench and return seconds per round and ratios."""
    data = workload.data().to(torch.device("cpu"), torch.float32)
    loop = tight_loop(workload.model(data), data)
    seconds: dict[str, list[float]] = {"loop": [], "train": [], "recorded": [], "adafedadam": []}
    with tempfile.TemporaryDirectory() as folder:
        feds = [
            fed_rounds(name, workload.model(data).to("meta"), data, rounds + 1, Path(folder) / name)
            for name in ("fedavg", "adafedadam")
        ]
        for _ in range(rounds + 1):
            start = time.perf_counter()
            loop()
            seconds["loop"].append(time.perf_counter() - start)
            (train, record), (other, _) = next(feds[0]), next(feds[1])
            seconds["train"].append(train)
            seconds["recorded"].append(train + record)
            seconds["adafedadam"].append(other)
    warm = {k: v[1:] for k, v in seconds.items()}  # the first round of each also warms caches
    best = {k: min(v) for k, v in warm.items()}
    steps = int((-(-data.train.counts // BATCH)).sum())
    return {
        "client_steps": steps,
        **{f"seconds_{k}": v for k, v in best.items()},
        **{f"ratio_{k}": best["loop"] / best[k] for k in ("train", "recorded", "adafedadam")},
        **{f"ratio_{k}_median": median(warm["loop"]) / median(warm[k]) for k in ("train", "recorded", "adafedadam")},
        "client_steps_per_second": steps / best["train"],
    }


def main() -> None:
    """Measure the chosen workloads and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(WORKLOADS)}; default: all")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    unknown = set(args.workloads) - set(WORKLOADS)
    if unknown:
        parser.error(f"unknown workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    torch.set_num_threads(1)
    results = {}
    print(f"{'workload':<10} {'loop ms':>9} {'train ms':>9} {'recorded':>9}   train  recorded  adafedadam   (medians)")
    for name in args.workloads or WORKLOADS:
        r = results[name] = measure(WORKLOADS[name], args.rounds)
        times = " ".join(f"{1000 * r[f'seconds_{k}']:9.2f}" for k in ("loop", "train", "recorded"))
        best, middle = ([r[f"ratio_{k}{end}"] for k in ("train", "recorded", "adafedadam")] for end in ("", "_median"))
        ratios = f"{best[0]:6.2f}x {best[1]:8.2f}x {best[2]:10.2f}x"
        print(f"{name:<10} {times}  {ratios}   ({', '.join(f'{v:.2f}x' for v in middle)})   {WORKLOADS[name].about}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

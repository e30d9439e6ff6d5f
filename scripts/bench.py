#!/usr/bin/env python
"""Measure the speed of the simulator relative to a tight sequential PyTorch loop.

usage: python scripts/bench.py [WORKLOAD ...] [--rounds N] [--algorithms NAME,...] [--device D]
[--mode M] [--json FILE]

The loop uses one model whose parameters are copied in per client, rows gathered once per epoch,
batches that are slices, autograd.grad and a fused foreach update, without DataLoader or optimiser
object, on one thread. Rounds of the loop and of the simulator alternate, so that both see the same
load of the machine. Ratios compare the fastest rounds; those of the medians are in parentheses.
`train` is a round of the simulator with its shuffling; `recorded` adds all that a run does after a
round at its defaults: the evaluation of every client's test examples, diagnostics, the line in
rounds.jsonl, checkpoints. What a run does in every tenth round only, the evaluation of the training
examples, is left out. `floor` is the time of the arithmetic at the rate of the fastest matrix
product on all cores, or on the GPU, as a share of the time of a round.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fedbench.algorithms.adafedadam import adafedadam
from fedbench.algorithms.fedadam import fedadam
from fedbench.algorithms.fedavg import fedavg
from fedbench.algorithms.fedprox import fedprox
from fedbench.algorithms.scaffold import scaffold
from fedbench.config.compose import compose_run
from fedbench.core.algorithm import Algorithm, Stage
from fedbench.core.optim import SGD, Optimizer
from fedbench.core.randomness import Purpose, generator, sample_cohort
from fedbench.data.assemble import assemble
from fedbench.data.dataset import FederatedDataset
from fedbench.data.examples import Examples
from fedbench.data.sources.synthetic import leaf
from fedbench.models.cnn import ConvNet
from fedbench.models.dense import MLP, Linear
from fedbench.models.lstm import LSTM
from fedbench.runs.build import device_of
from fedbench.runs.build_engine import make_engine
from fedbench.runs.environment import peak_memory_bytes
from fedbench.runs.recorder import Recorder
from fedbench.runs.training import PreparedRun, TrainingSession
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.ranks import ALONE, Ranks
from fedbench.simulation.task import Task

CPU = torch.device("cpu")
RECORDED = "_recorded"
ALGORITHMS: dict[str, Callable[[Optimizer], Algorithm]] = {
    "fedavg": fedavg,
    "fedadam": fedadam,
    "scaffold": scaffold,
    "fedprox": lambda local: fedprox(local, mu=0.1),
    "adafedadam": adafedadam,
}


class PlainLSTM(nn.Module):
    """The character LSTM in plain PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm, self.out = (
            nn.Embedding(80, 8),
            nn.LSTM(8, 256, 2, batch_first=True),
            nn.Linear(256, 80),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map tokens [B, 80] to logits [B, 80]."""
        return self.out(self.lstm(self.embedding(x))[0][:, -1])


def plain_cnn(channels: list[int], kernel: int, side: int, hidden: int, classes: int) -> nn.Module:
    """Return convolutions, ReLU and pooling in the usual order."""
    layers: list[nn.Module] = []
    for a, b in pairwise(channels):
        layers += [nn.Conv2d(a, b, kernel, padding=kernel // 2), nn.ReLU(), nn.MaxPool2d(2)]
    flat = channels[-1] * (side >> (len(channels) - 1)) ** 2
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(flat, hidden), nn.ReLU(), nn.Linear(hidden, classes)
    )


def owned(x: np.ndarray, y: np.ndarray, classes: int, n: np.ndarray) -> FederatedDataset:
    """Return clients with ``n`` examples each, of which four fifths are for training."""
    names = tuple(map(str, range(len(n))))
    examples = Examples(x, y, classes, owner=np.repeat(np.arange(len(n)), n), names=names)
    return assemble(examples, partition=None, clients=None, split=0.8, local_test="split", seed=0)


def w1() -> FederatedDataset:
    """LEAF synthetic, 100 clients, 8264 examples."""
    return assemble(
        leaf(clients=100), partition=None, clients=None, split=0.8, local_test="split", seed=0
    )


def w2() -> FederatedDataset:
    """200 clients, about 18400 examples of 784 values."""
    rng = np.random.RandomState(931231)
    n = np.ceil(
        np.clip(rng.lognormal(np.log(90) - 0.125, 0.5, 200).astype(int), 10, 400) * 1.25
    ).astype(int)
    return owned(rng.rand(n.sum(), 784).astype(np.float32), rng.randint(0, 62, n.sum()), 62, n)


def w3() -> FederatedDataset:
    """100 clients, 100 images of 28 x 28 each."""
    rng = np.random.RandomState(931231)
    n = np.full(100, 125)
    return owned(
        rng.rand(n.sum(), 1, 28, 28).astype(np.float32), rng.randint(0, 62, n.sum()), 62, n
    )


def w4() -> FederatedDataset:
    """16 clients, 256 images of 3 x 32 x 32 each."""
    rng = np.random.RandomState(931231)
    n = np.full(16, 320)
    return owned(
        rng.randn(n.sum(), 3, 32, 32).astype(np.float32), rng.randint(0, 10, n.sum()), 10, n
    )


def w5() -> FederatedDataset:
    """10 clients, 64 sequences of 80 characters each."""
    rng = np.random.RandomState(931231)
    n = np.full(10, 80)
    return owned(
        rng.randint(0, 80, (n.sum(), 80)).astype(np.int64), rng.randint(0, 80, n.sum()), 80, n
    )


@dataclass(frozen=True)
class Workload:
    """A data set, a model for it in plain PyTorch and in fedbench, and the local work of a round."""

    about: str
    data: Callable[[], FederatedDataset]
    plain: Callable[[], nn.Module]
    model: Callable[[], nn.Module]
    work: LocalWork
    sampled: int | float = 1.0


def lstm() -> nn.Module:
    """Return the character LSTM."""
    return LSTM((80,), 80, 80, None, embedding=8, hidden=256, layers=2)


WORKLOADS = {
    "W1": Workload(
        "linear 60-10, 100 clients, batch 10",
        w1,
        lambda: nn.Linear(60, 10),
        lambda: Linear((60,), 10),
        LocalWork(0.01, 10),
    ),
    "W2": Workload(
        "784-128-62, 200 clients, batch 10",
        w2,
        lambda: nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 62)),
        lambda: MLP((784,), 62, [128]),
        LocalWork(0.01, 10),
    ),
    "W3": Workload(
        "2 convolutions 5x5, 10 of 100 clients, batch 32",
        w3,
        lambda: plain_cnn([1, 32, 64], 5, 28, 512, 62),
        lambda: ConvNet((1, 28, 28), 62, [32, 64], 5, 512),
        LocalWork(0.01, 32),
        10,
    ),
    "W4": Workload(
        "3 convolutions 3x3, 16 clients, batch 32, 2 epochs",
        w4,
        lambda: plain_cnn([3, 32, 64, 64], 3, 32, 64, 10),
        lambda: ConvNet((3, 32, 32), 10, [32, 64, 64], 3, 64),
        LocalWork(0.01, 32, (2, 2)),
    ),
    "W5": Workload(
        "character LSTM 2 x 256, 10 clients, batch 10", w5, PlainLSTM, lstm, LocalWork(0.1, 10)
    ),
}


def tight_loop(w: Workload, data: FederatedDataset) -> Callable[[int], None]:
    """Return a function that runs a round of FedAvg with the same clients, as written carefully without a framework."""
    torch.manual_seed(0)
    device = data.x.device
    net = w.plain().to(device)
    params = list(net.parameters())
    start = [p.detach().clone() for p in params]
    rng, sampler = np.random.RandomState(0), sample_cohort(w.sampled)
    rows_of, counts, lr, batch = data.train.split(), data.train.counts, w.work.lr, w.work.batch_size

    def round_(number: int) -> None:
        ids = sampler(number, counts, 0)
        acc = [torch.zeros_like(t) for t in start]
        for k in ids:
            with torch.no_grad():
                torch._foreach_copy_(params, start)
            for _ in range(w.work.epochs[0]):
                order = torch.from_numpy(rng.permutation(rows_of[k])).to(device)
                for x, y in zip(
                    data.x[order].split(batch), data.y[order].split(batch), strict=True
                ):
                    grads = torch.autograd.grad(F.cross_entropy(net(x), y), params)
                    with torch.no_grad():
                        torch._foreach_add_(params, grads, alpha=-lr)
            with torch.no_grad():
                torch._foreach_add_(acc, params, alpha=float(counts[k] / counts[ids].sum()))
        for t, a in zip(start, acc, strict=True):
            t.copy_(a)
        synchronize(device)

    return round_


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def fed_rounds(
    algorithm: Algorithm,
    w: Workload,
    data: FederatedDataset,
    rounds: int,
    folder: Path,
    ranks: Ranks = ALONE,
    mode: str = "auto",
) -> Iterator[tuple[float, float]]:
    """Yield (seconds of training, seconds of recording) of the first ``rounds`` rounds of a longer run of fedbench."""
    with torch.device("meta"):
        task = Task(w.model(), data.x.device, torch.float32)
    config = replace(compose_run([f"engine.mode={mode}"]), eval_train_every=rounds + 1)
    stages = [Stage(algorithm, rounds + 1)]  # the last round of a run is measured in full
    engine = make_engine(task, data, w.work, config.engine, data.num_clients, ranks=ranks)
    start, sampler = task.init(generator(0, Purpose.INIT)), sample_cohort(w.sampled)
    prepared = PreparedRun(
        config=config,
        stages=stages,
        task=task,
        data=data,
        sample=None,
        work=w.work,
        engine=engine,
        w=start,
        sampler=sampler,
    )
    session = TrainingSession(prepared, Recorder(folder))
    snapshots = session.snapshots()
    session.record(next(snapshots))
    for _ in range(rounds):
        begun = time.perf_counter()
        snapshot = next(snapshots)
        synchronize(data.x.device)
        trained = time.perf_counter()
        session.record(snapshot)
        yield trained - begun, time.perf_counter() - trained


def arithmetic(w: Workload, data: FederatedDataset) -> tuple[int, float]:
    """Return the client-steps of a round and its floating-point operations."""
    net = w.plain().to(data.x.device)
    counts = data.train.counts[sample_cohort(w.sampled)(0, data.train.counts, 0)]
    batch = w.work.batch_size or 0
    x, y = data.x[:batch], data.y[:batch]
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(net(x), y).backward()
    flops = float(counter.get_total_flops())
    # the counter ignores the fused kernel: 3 passes, 8 H (in + H) per token
    if isinstance(net, PlainLSTM):
        flops = 3 * batch * 80 * sum(8 * 256 * (a + 256) for a in (8, 256)) + 6 * batch * 256 * 80
    epochs = w.work.epochs[0]
    return int(epochs * (-(-counts // batch)).sum()), flops * epochs * counts.sum() / batch


def matmul_rate(
    threads: int, device: torch.device = CPU, dtype: torch.dtype = torch.float32
) -> float:
    """Return the best rate of a large matrix product and of a convolution, operations per second on all cores."""
    size = 1024 if device.type == "cpu" else 8192
    a, image, kernel = (
        torch.randn(size, size),
        torch.randn(32, 64, 32, 32),
        torch.randn(64, 64, 3, 3),
    )
    a, image, kernel = (t.to(device, dtype) for t in (a, image, kernel))
    image = image.contiguous(memory_format=torch.channels_last)
    best = 0.0
    torch.set_num_threads(threads)
    for _ in range(10):
        for run, operations in (
            (lambda: a @ a, 2 * size**3),
            (lambda: F.conv2d(image, kernel, padding=1), 2 * 32 * 64 * 64 * 9 * 32 * 32),
        ):
            begun = time.perf_counter()
            run()
            synchronize(device)
            best = max(best, operations / (time.perf_counter() - begun))
    torch.set_num_threads(1)
    return best


def measure(
    w: Workload,
    rounds: int,
    names: list[str],
    rate: float,
    device: torch.device = CPU,
    mode: str = "auto",
) -> dict[str, float]:
    """Alternate rounds of the loop and of fedbench, and return seconds per round and ratios."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    data = w.data().to(device, torch.float32)
    loop = tight_loop(w, data)
    seconds: dict[str, list[float]] = {
        "loop": [],
        **{f"{n}{end}": [] for n in names for end in ("", RECORDED)},
    }
    with tempfile.TemporaryDirectory() as folder:
        feds = {
            n: fed_rounds(ALGORITHMS[n](SGD), w, data, rounds + 1, Path(folder) / n, mode=mode)
            for n in names
        }
        for number in range(rounds + 1):
            begun = time.perf_counter()
            loop(number)
            seconds["loop"].append(time.perf_counter() - begun)
            for name, fed in feds.items():
                train, record = next(fed)
                seconds[name].append(train)
                seconds[name + RECORDED].append(train + record)
    warm = {k: v[1:] for k, v in seconds.items()}  # the first round also warms caches
    best = {k: min(v) for k, v in warm.items()}
    steps, operations = arithmetic(w, data)
    others = [k for k in warm if k != "loop"]
    return {
        "client_steps": steps,
        "client_steps_per_second": steps / best["fedavg"],
        "gflop": operations / 1e9,
        "share_of_floor": operations / rate / best["fedavg"],
        "peak_memory_bytes": peak_memory_bytes(device),
        **{f"seconds_{k}": v for k, v in best.items()},
        **{f"ratio_{k}": best["loop"] / best[k] for k in others},
        **{f"ratio_{k}_median": median(warm["loop"]) / median(warm[k]) for k in others},
        **{f"cost{RECORDED}_{n}": best[n + RECORDED] / best[n] for n in names},
        **{
            f"cost{RECORDED}_{n}_median": median(warm[n + RECORDED]) / median(warm[n])
            for n in names
        },
    }


def both(results: dict[str, float], name: str) -> str:
    """Return the figure of the fastest rounds, and that of the medians in parentheses."""
    return f"{results[name]:.2f} ({results[f'{name}_median']:.2f})".rjust(17)


def main() -> None:
    """Measure the chosen workloads and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "workloads",
        nargs="*",
        metavar="WORKLOAD",
        help=f"workloads to run, from {', '.join(WORKLOADS)} (default: all)",
    )
    parser.add_argument(
        "--rounds", type=int, help="number of rounds (default: 30 for W1 and W2, 5 for the others)"
    )
    parser.add_argument(
        "--algorithms",
        default="fedavg,adafedadam",
        help=f"comma-separated, from {', '.join(ALGORITHMS)}",
    )
    parser.add_argument("--device", default="cpu", help="as in a run (default: cpu)")
    parser.add_argument("--mode", default="auto", help="engine.mode of a run (default: auto)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    args = parser.parse_args()
    names = args.algorithms.split(",")
    for given, known in ((args.workloads, WORKLOADS), (names, ALGORITHMS)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(known)}")
    names = list(dict.fromkeys(["fedavg", *names]))
    cores = torch.get_num_threads()
    device = device_of(args.device, "float32")
    rate = matmul_rate(cores, device)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{cores} threads"
    print(f"{where}, {rate / 1e9:.0f} GFLOP/s at best; ms per round; ratios to the loop; (medians)")
    results = {}
    for name in args.workloads or WORKLOADS:
        rounds = args.rounds or (30 if name in ("W1", "W2") else 5)
        r = results[name] = measure(WORKLOADS[name], rounds, names, rate, device, args.mode)
        print(
            f"{name} {WORKLOADS[name].about}: loop {1000 * r['seconds_loop']:.2f}, floor {r['share_of_floor']:.1%}, "
            f"{r['client_steps_per_second']:.0f} steps/s, {r['peak_memory_bytes'] / 2**20:.0f} M"
        )
        print(
            f"  {'':<11} {'train':>9} {'ratio':>17} {'recorded':>9} {'ratio':>17} {'recorded / train':>17}"
        )
        for method in names:
            cells = []
            for k in (method, method + RECORDED):
                cells += [f"{1000 * r[f'seconds_{k}']:9.2f}", both(r, f"ratio_{k}")]
            print(
                f"  {method:<11} {' '.join(cells)} {both(r, f'cost{RECORDED}_{method}')}",
                flush=True,
            )
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

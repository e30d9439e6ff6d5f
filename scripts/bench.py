#!/usr/bin/env python
"""Measure the speed of the simulator relative to a tight sequential PyTorch loop.

    python scripts/bench.py [WORKLOAD ...] [--rounds N] [--algorithms NAME,...] [--device D]
    [--mode M]

The loop runs on one thread without DataLoader or optimiser object. It copies the parameters of each
client into one model, gathers rows once per epoch, slices batches from them, and uses autograd.grad
with a fused foreach update. Rounds of the loop and of the simulator alternate, so that both see the
same load of the machine. Ratios compare the fastest rounds; those of the medians are in
parentheses. `train` is a round of the simulator with its shuffling; `recorded` adds the work of a
run after a round at its defaults: the evaluation of every client's test examples, diagnostics, the
line in rounds.jsonl, checkpoints. The evaluation of the training examples, which a run does in
every tenth round only, is left out. `floor` is the share of a round that the arithmetic would take
at the rate of the fastest matrix product on all cores, or on the GPU.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
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
from fedbench.core.optim import SGD
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
SEED = 931231  # of the random examples
ALGORITHMS: dict[str, Callable[[], Algorithm]] = {
    "fedavg": partial(fedavg, SGD),
    "fedadam": partial(fedadam, SGD),
    "scaffold": partial(scaffold, SGD),
    "fedprox": partial(fedprox, SGD, mu=0.1),
    "adafedadam": partial(adafedadam, SGD),
}


# ---- data


def split(examples: Examples) -> FederatedDataset:
    """Return clients with four fifths of their examples for training."""
    return assemble(
        examples,
        partition=None,
        clients=None,
        split=0.8,
        local_test="split",
        seed=0,
    )


def owned(
    x: np.ndarray,
    y: np.ndarray,
    classes: int,
    n: np.ndarray,
) -> FederatedDataset:
    """Return clients with ``n`` examples each, four fifths of them for training."""
    clients = np.arange(len(n))
    examples = Examples(
        x,
        y,
        classes,
        owner=np.repeat(clients, n),
        names=tuple(map(str, clients)),
    )
    return split(examples)


def images(
    clients: int,
    examples: int,
    shape: tuple[int, ...],
    classes: int,
) -> FederatedDataset:
    """Return clients with random images."""
    rng = np.random.RandomState(SEED)
    n = np.full(clients, examples)
    x = rng.randn(n.sum(), *shape).astype(np.float32)
    y = rng.randint(0, classes, n.sum())
    return owned(x, y, classes, n)


def w1() -> FederatedDataset:
    """Return LEAF synthetic, 100 clients, 8264 examples."""
    return split(leaf(clients=100))


def w2() -> FederatedDataset:
    """Return 200 clients, about 18400 examples of 784 values."""
    rng = np.random.RandomState(SEED)
    sizes = rng.lognormal(np.log(90) - 0.125, 0.5, 200)
    train = np.clip(sizes.astype(int), 10, 400)
    n = np.ceil(train * 1.25).astype(int)
    x = rng.rand(n.sum(), 784).astype(np.float32)
    y = rng.randint(0, 62, n.sum())
    return owned(x, y, 62, n)


def w5() -> FederatedDataset:
    """Return 10 clients, 64 sequences of 80 characters each."""
    rng = np.random.RandomState(SEED)
    n = np.full(10, 80)
    tokens = rng.randint(0, 80, (n.sum(), 80))
    x = tokens.astype(np.int64)
    y = rng.randint(0, 80, n.sum())
    return owned(x, y, 80, n)


# ---- models


class PlainLSTM(nn.Module):
    """The character LSTM in plain PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(80, 8)
        self.lstm = nn.LSTM(8, 256, 2, batch_first=True)
        self.out = nn.Linear(256, 80)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map tokens [B, 80] to logits [B, 80]."""
        states, _ = self.lstm(self.embedding(x))
        return self.out(states[:, -1])


def plain_mlp() -> nn.Module:
    """Return a perceptron with one hidden layer."""
    return nn.Sequential(
        nn.Linear(784, 128),
        nn.ReLU(),
        nn.Linear(128, 62),
    )


def plain_cnn(
    channels: Sequence[int],
    kernel: int,
    side: int,
    hidden: int,
    classes: int,
) -> nn.Module:
    """Return convolutions, ReLU and pooling in the usual order."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(channels):
        convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)
        layers += [convolution, nn.ReLU(), nn.MaxPool2d(2)]
        side //= 2
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(channels[-1] * side**2, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


# ---- workloads


@dataclass(frozen=True)
class Workload:
    """A data set, its model in plain PyTorch and in fedbench, and the work of a round."""

    about: str
    data: Callable[[], FederatedDataset]
    plain: Callable[[], nn.Module]
    model: Callable[[], nn.Module]
    work: LocalWork
    sampled: int | float = 1.0

    def cohort(self, data: FederatedDataset, number: int = 0) -> np.ndarray:
        """Return the clients of a round."""
        return sample_cohort(self.sampled)(number, data.train.counts, 0)


WORKLOADS = {
    "W1": Workload(
        about="linear 60-10, 100 clients, batch 10",
        data=w1,
        plain=partial(nn.Linear, 60, 10),
        model=partial(Linear, (60,), 10),
        work=LocalWork(0.01, 10),
    ),
    "W2": Workload(
        about="784-128-62, 200 clients, batch 10",
        data=w2,
        plain=plain_mlp,
        model=partial(MLP, (784,), 62, [128]),
        work=LocalWork(0.01, 10),
    ),
    "W3": Workload(
        about="2 convolutions 5x5, 10 of 100 clients, batch 32",
        data=partial(images, 100, 125, (1, 28, 28), 62),
        plain=partial(plain_cnn, [1, 32, 64], 5, 28, 512, 62),
        model=partial(ConvNet, (1, 28, 28), 62, [32, 64], 5, 512),
        work=LocalWork(0.01, 32),
        sampled=10,
    ),
    "W4": Workload(
        about="3 convolutions 3x3, 16 clients, batch 32, 2 epochs",
        data=partial(images, 16, 320, (3, 32, 32), 10),
        plain=partial(plain_cnn, [3, 32, 64, 64], 3, 32, 64, 10),
        model=partial(ConvNet, (3, 32, 32), 10, [32, 64, 64], 3, 64),
        work=LocalWork(0.01, 32, (2, 2)),
    ),
    "W5": Workload(
        about="character LSTM 2 x 256, 10 clients, batch 10",
        data=w5,
        plain=PlainLSTM,
        model=partial(
            LSTM,
            (80,),
            80,
            80,
            None,
            embedding=8,
            hidden=256,
            layers=2,
        ),
        work=LocalWork(0.1, 10),
    ),
}


# ---- rounds


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def tight_loop(w: Workload, data: FederatedDataset) -> Callable[[int], None]:
    """Return a function that runs a round of FedAvg with the same clients and no framework."""
    torch.manual_seed(0)
    device = data.x.device
    net = w.plain().to(device)
    params = list(net.parameters())
    start = [p.detach().clone() for p in params]
    rng = np.random.RandomState(0)
    rows_of = data.train.split()
    counts = data.train.counts

    def train(rows: np.ndarray) -> None:
        shuffled = torch.from_numpy(rng.permutation(rows))
        order = shuffled.to(device)
        xs = data.x[order].split(w.work.batch_size)
        ys = data.y[order].split(w.work.batch_size)
        for x, y in zip(xs, ys, strict=True):
            loss = F.cross_entropy(net(x), y)
            grads = torch.autograd.grad(loss, params)
            with torch.no_grad():
                torch._foreach_add_(params, grads, alpha=-w.work.lr)

    def train_round(number: int) -> None:
        ids = w.cohort(data, number)
        examples = counts[ids].sum()
        total = [torch.zeros_like(p) for p in start]
        for k in ids:
            with torch.no_grad():
                torch._foreach_copy_(params, start)
            for _ in range(w.work.epochs[0]):
                train(rows_of[k])
            share = float(counts[k] / examples)
            with torch.no_grad():
                torch._foreach_add_(total, params, alpha=share)
        torch._foreach_copy_(start, total)
        synchronize(device)

    return train_round


def fed_rounds(
    algorithm: Algorithm,
    w: Workload,
    data: FederatedDataset,
    rounds: int,
    folder: Path,
    ranks: Ranks = ALONE,
    mode: str = "auto",
) -> Iterator[tuple[float, float]]:
    """Yield the seconds of training and of recording of the first rounds of a longer run."""
    with torch.device("meta"):
        task = Task(w.model(), data.x.device, torch.float32)
    config = compose_run([f"engine.mode={mode}"])
    engine = make_engine(
        task,
        data,
        w.work,
        config.engine,
        data.num_clients,
        ranks=ranks,
    )
    prepared = PreparedRun(
        config=replace(config, eval_train_every=rounds + 1),
        # the last round of a run is measured in full
        stages=[Stage(algorithm, rounds + 1)],
        task=task,
        data=data,
        evaluated=None,
        work=w.work,
        engine=engine,
        w=task.init(generator(0, Purpose.INIT)),
        sampler=sample_cohort(w.sampled),
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
    batch = w.work.batch_size or 0
    x = data.x[:batch]
    y = data.y[:batch]
    with FlopCounterMode(display=False) as counter:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
    flops = float(counter.get_total_flops())
    # the counter ignores the fused kernel: 3 passes, 8 H (in + H) per token
    if isinstance(net, PlainLSTM):
        first_gates = 8 * 256 * (8 + 256)
        second_gates = 8 * 256 * (256 + 256)
        output = 2 * 256 * 80
        flops = 3 * batch * (80 * (first_gates + second_gates) + output)

    cohort = w.cohort(data)
    counts = data.train.counts[cohort]
    epochs = w.work.epochs[0]
    batches = -(-counts // batch)
    steps = int(epochs * batches.sum())
    return steps, flops * epochs * counts.sum() / batch


def matmul_rate(threads: int, device: torch.device) -> float:
    """Return the best rate of a large matrix product and of a convolution, in operations/s."""
    torch.set_num_threads(threads)
    size = 1024 if device.type == "cpu" else 8192
    matrix = torch.randn(size, size).to(device)
    image = torch.randn(32, 64, 32, 32)
    image = image.to(device, memory_format=torch.channels_last)
    kernel = torch.randn(64, 64, 3, 3).to(device)
    convolution = 2 * image.numel() * kernel[0].numel()
    candidates: list[tuple[Callable[[], object], int]] = [
        (lambda: matrix @ matrix, 2 * size**3),
        (lambda: F.conv2d(image, kernel, padding=1), convolution),
    ]
    best = 0.0
    for _ in range(10):
        for compute, operations in candidates:
            begun = time.perf_counter()
            compute()
            synchronize(device)
            seconds = time.perf_counter() - begun
            best = max(best, operations / seconds)
    torch.set_num_threads(1)
    return best


# ---- measurements


@dataclass(frozen=True)
class Seconds:
    """Seconds per round of a method, without and with recording."""

    train: list[float] = field(default_factory=list)
    recorded: list[float] = field(default_factory=list)


def measure(
    w: Workload,
    data: FederatedDataset,
    rounds: int,
    names: Sequence[str],
    mode: str,
) -> tuple[list[float], dict[str, Seconds]]:
    """Alternate rounds of the loop and of fedbench, and return the seconds per round of both."""
    loop = tight_loop(w, data)
    loop_seconds = []
    seconds = {name: Seconds() for name in names}
    with tempfile.TemporaryDirectory() as folder:
        simulators = {}
        for name in names:
            simulators[name] = fed_rounds(
                ALGORITHMS[name](),
                w,
                data,
                rounds + 1,
                Path(folder) / name,
                mode=mode,
            )
        for number in range(rounds + 1):
            begun = time.perf_counter()
            loop(number)
            looped = time.perf_counter() - begun
            if number:  # the first round also warms caches
                loop_seconds.append(looped)
            for name, simulator in simulators.items():
                train, record = next(simulator)
                if number:
                    seconds[name].train.append(train)
                    seconds[name].recorded.append(train + record)
    return loop_seconds, seconds


def ratio(seconds: Sequence[float], others: Sequence[float]) -> str:
    """Return the ratio of the fastest rounds, and that of the medians in parentheses."""
    fastest = min(seconds) / min(others)
    medians = median(seconds) / median(others)
    return f"{fastest:.2f} ({medians:.2f})"


def print_workload(
    name: str,
    rounds: int,
    names: Sequence[str],
    rate: float,
    device: torch.device,
    mode: str,
) -> None:
    """Measure a workload and print a row per method."""
    w = WORKLOADS[name]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    data = w.data().to(device, torch.float32)
    loop, seconds = measure(w, data, rounds, names, mode)
    steps, operations = arithmetic(w, data)
    fastest = min(seconds["fedavg"].train)
    floor = operations / rate / fastest
    memory = peak_memory_bytes(device) / 2**20
    print(
        f"{name} {w.about}: loop {1000 * min(loop):.2f}, floor {floor:.1%}, "
        f"{steps / fastest:.0f} steps/s, {memory:.0f} M"
    )
    row = "  {:<11} {:>9} {:>17} {:>9} {:>17} {:>17}"
    print(row.format("", "train", "ratio", "recorded", "ratio", "recorded / train"))
    for method, times in seconds.items():
        cells = (
            f"{1000 * min(times.train):.2f}",
            ratio(loop, times.train),
            f"{1000 * min(times.recorded):.2f}",
            ratio(loop, times.recorded),
            ratio(times.recorded, times.train),
        )
        print(row.format(method, *cells), flush=True)


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
        "--rounds",
        type=int,
        help="number of rounds (default: 30 for W1 and W2, 5 for the others)",
    )
    parser.add_argument(
        "--algorithms",
        default="fedavg,adafedadam",
        help=f"comma-separated, from {', '.join(ALGORITHMS)}",
    )
    parser.add_argument("--device", default="cpu", help="as in a run (default: cpu)")
    parser.add_argument("--mode", default="auto", help="engine.mode of a run (default: auto)")
    args = parser.parse_args()
    names = args.algorithms.split(",")
    for given, known in ((args.workloads, WORKLOADS), (names, ALGORITHMS)):
        unknown = sorted(set(given) - set(known))
        if unknown:
            parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}")

    names = list(dict.fromkeys(["fedavg", *names]))
    cores = torch.get_num_threads()
    device = device_of(args.device, "float32")
    rate = matmul_rate(cores, device)
    place = f"{cores} threads"
    if device.type == "cuda":
        place = torch.cuda.get_device_name(device)
    print(f"{place}, {rate / 1e9:.0f} GFLOP/s at best; ms per round; ratios to the loop; (medians)")
    for name in args.workloads or WORKLOADS:
        default = 30 if name in ("W1", "W2") else 5
        print_workload(
            name,
            args.rounds or default,
            names,
            rate,
            device,
            args.mode,
        )


if __name__ == "__main__":
    main()

"""Measure known numbers with a plain loop that shares only PyTorch and numpy with fedbench.

It reads the files of MNIST itself and has its own partitions, models, FedAvg and FedProx with one
torch.optim.SGD per client, so that rows of fedbench/papers/known.yaml can be checked against a
second implementation:

    python scripts/plain_loop.py mcmahan_iid --seeds 5 --data data
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class Setup(NamedTuple):
    """Partition, learning rate, and rounds at most; full batches are of 600 examples."""

    partition: str
    rate: float
    rounds: int
    cohort: int = 10
    batch: int = 10
    epochs: int = 1
    decay: float = 0


ROWS = {
    "mnist_power_law": Setup("power_law", 0.03, 200, decay=0.001),
    "mcmahan_iid": Setup("iid", 0.215, 200),
    "mcmahan_iid_1": Setup("iid", 0.1, 640, 1),
    "mcmahan_iid_20": Setup("iid", 0.215, 160, 20),
    "mcmahan_iid_50": Setup("iid", 0.215, 150, 50),
    "mcmahan_iid_100": Setup("iid", 0.215, 140, 100),
    "mcmahan_iid_full_1": Setup("iid", 1.0, 1500, 1, 600),
    "mcmahan_iid_full_10": Setup("iid", 0.464, 2000, 10, 600),
    "mcmahan_iid_full_20": Setup("iid", 0.464, 2000, 20, 600),
    "mcmahan_iid_epochs5": Setup("iid", 0.05, 200, epochs=5),
    "mcmahan_shards2": Setup("shards", 0.215, 1400),
    "mcmahan_shards2_1": Setup("shards", 0.0464, 6600, 1),
    "mcmahan_shards2_20": Setup("shards", 0.215, 500, 20),
    "mcmahan_shards2_50": Setup("shards", 0.215, 400, 50),
    "mcmahan_shards2_100": Setup("shards", 0.215, 400, 100),
    "mcmahan_shards2_full_1": Setup("shards", 0.215, 5000, 1, 600),
    "mcmahan_shards2_full_10": Setup("shards", 0.464, 1600, 10, 600),
    "mcmahan_shards2_full_20": Setup("shards", 0.464, 1600, 20, 600),
    "mcmahan_shards2_epochs5": Setup("shards", 0.05, 700, epochs=5),
    "niid_iid": Setup("iid", 0.01, 50, 10, 64, 10, 1e-5),
    "niid_labels2": Setup("labels2", 0.01, 50, 10, 64, 10, 1e-5),
    "niid_labels2_fedprox": Setup("labels2", 0.01, 50, 10, 64, 10, 1e-5),
    "niid_labels3": Setup("labels3", 0.01, 50, 10, 64, 10, 1e-5),
}
TARGET = 0.97
MU = 0.001  # of FedProx, as in the published runs with two labels
TRAINING = 60000  # the first images
CLASSES = 10


# ---- data


def mnist(folder):
    """Return images and labels, the 60000 training images first; pixels are from 0 to 1."""
    raw = Path(folder, "MNIST", "raw")
    images = []
    labels = []
    for part in ("train", "t10k"):
        pixels = np.fromfile(raw / f"{part}-images-idx3-ubyte", np.uint8)
        images.append(pixels[16:])
        digits = np.fromfile(raw / f"{part}-labels-idx1-ubyte", np.uint8)
        labels.append(digits[8:])
    x = np.concatenate(images).reshape(-1, 784) / np.float32(255)
    y = np.concatenate(labels).astype(int)
    return x, y


def power_law(y, rng):
    """Return the examples of 1000 clients with two digits each.

    A client has five examples of each of its digits; the others are shared by a power law.
    """
    count = 1000
    clients = [[] for _ in range(count)]
    for digit in range(CLASSES):
        holders = []
        for k in range(count):
            if digit in (k % CLASSES, (k + 1) % CLASSES):
                holders.append(k)
        pool = rng.permutation(np.flatnonzero(y == digit))
        weights = rng.lognormal(0, 2, len(holders))
        rest = len(pool) - 5 * len(holders)
        sizes = 5 + (weights / weights.sum() * rest).astype(int)
        shares = np.split(pool, np.cumsum(sizes))
        for k, share in zip(holders, shares, strict=False):  # some examples are left
            clients[k].extend(share)
    return [rng.permutation(client) for client in clients]


def by_labels(y, each, rng):
    """Return the examples of 10 clients with label k and random other labels.

    The clients that have a label share its examples evenly.
    """
    held = []
    for k in range(CLASSES):
        others = [label for label in range(CLASSES) if label != k]
        held.append([k, *rng.choice(others, each - 1, replace=False)])

    clients = [[] for _ in range(CLASSES)]
    for label in range(CLASSES):
        holders = [k for k in range(CLASSES) if label in held[k]]
        pool = rng.permutation(np.flatnonzero(y == label))
        shares = np.array_split(pool, len(holders))
        for k, share in zip(holders, shares, strict=True):
            clients[k].extend(share)
    return clients


def parts(partition, count, y, rng):
    """Return the training examples of each of ``count`` clients, and the test examples."""
    if (
        partition == "power_law"
    ):  # of all images; every client keeps a fifth of its own for the test
        train = []
        test = []
        for client in power_law(y, rng):
            fifth = len(client) // 5
            train.append(client[fifth:])
            test.append(client[:fifth])
        return train, np.concatenate(test)

    test = np.arange(TRAINING, len(y))
    y = y[:TRAINING]
    if partition.startswith("labels"):
        each = int(partition[-1])
        return by_labels(y, each, rng), test
    order = rng.permutation(TRAINING)
    if partition == "shards":  # two of 200 shards of 300 images, sorted by label
        shards = np.argsort(y, kind="stable").reshape(200, 300)
        order = shards[rng.permutation(200)]
    return order.reshape(count, -1), test


# ---- training


def network(benchmark):
    """Return a new model for flat images."""
    if benchmark == "mnist":
        return nn.Linear(784, 10)
    if benchmark == "mcmahan":
        return nn.Sequential(
            nn.Linear(784, 200),
            nn.ReLU(),
            nn.Linear(200, 200),
            nn.ReLU(),
            nn.Linear(200, 10),
        )
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def train_client(model, x, y, setup, momentum, mu):
    """Train the model with the SGD of one client; mu is the weight of FedProx's term."""
    start = parameters_to_vector(model.parameters()).detach()
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=setup.rate,
        momentum=momentum,
        weight_decay=setup.decay,
    )
    for _ in range(setup.epochs):
        order = torch.randperm(len(x))
        for batch in order.split(setup.batch):
            optimizer.zero_grad()
            loss = cross_entropy(model(x[batch]), y[batch])
            if mu:
                distance = parameters_to_vector(model.parameters()) - start
                loss = loss + mu / 2 * distance.square().sum()
            loss.backward()
            optimizer.step()


def run(name, seed, x, y):
    """Return the test accuracy of every round.

    For the rounds to a target, the last is the first that reaches it.
    """
    benchmark = name.split("_")[0]
    setup = ROWS[name]
    momentum = 0.9 if benchmark == "niid" else 0
    mu = MU if name.endswith("fedprox") else 0
    target = TARGET if benchmark == "mcmahan" else 1.1  # which none reaches
    count = 10 if benchmark == "niid" else 100

    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    clients, test = parts(setup.partition, count, y, rng)
    if benchmark == "mnist":
        x = (x - x.mean()) / x.std()
    x = torch.tensor(x)
    y = torch.tensor(y)

    model = network(benchmark)
    accuracies = []
    for _ in range(setup.rounds):
        start = parameters_to_vector(model.parameters()).detach()
        mean = torch.zeros_like(start)
        chosen = rng.choice(len(clients), setup.cohort, replace=False)
        total = sum(len(clients[k]) for k in chosen)
        for k in chosen:
            vector_to_parameters(start.clone(), model.parameters())
            rows = torch.tensor(clients[k])
            train_client(model, x[rows], y[rows], setup, momentum, mu)
            share = len(rows) / total
            mean += share * parameters_to_vector(model.parameters()).detach()
        vector_to_parameters(mean, model.parameters())

        with torch.no_grad():
            correct = model(x[test]).argmax(1) == y[test]
        accuracies.append(correct.double().mean().item())
        if accuracies[-1] >= target:
            break
    return accuracies


def summary(name, accuracies):
    """Return the numbers that the row of the paper prints."""
    if name == "mnist_power_law":
        return {
            "round100": 100 * accuracies[99],
            "rounds150to200": 100 * float(np.mean(accuracies[149:])),
        }
    if name.startswith("niid"):
        return {"best": 100 * max(accuracies)}
    reached = accuracies[-1] >= TARGET
    return {"rounds_to_97": len(accuracies) if reached else None}


def main():
    """Print the numbers of every seed."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=ROWS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", default="data", help="folder with MNIST/raw")
    args = parser.parse_args()
    torch.set_num_threads(1)
    x, y = mnist(args.data)
    for seed in range(args.seeds):
        accuracies = run(args.name, seed, x, y)
        numbers = summary(args.name, accuracies)
        print(args.name, "seed", seed, numbers, flush=True)


if __name__ == "__main__":
    main()

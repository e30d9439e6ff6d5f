"""Measure known numbers with a plain loop that shares only PyTorch and numpy with fedbench.

    python scripts/plain_loop.py mcmahan_iid --seeds 5 --data data

The loop is a second implementation against which rows of fedbench/papers/known.yaml can be checked.
It reads the files of MNIST itself and has its own partitions, models, FedAvg and FedProx, with one
torch.optim.SGD per client.
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
    """The setting of a row.

    Attributes:
        partition: The partition of the examples.
        rate: Learning rate.
        rounds: Largest number of rounds.
        cohort: Clients of a round.
        batch: Examples of a batch; 600 are all that a client has.
        epochs: Epochs of a round.
        decay: Weight decay.
        momentum: Momentum.
        mu: Weight of FedProx's term.
    """

    partition: str
    rate: float
    rounds: int
    cohort: int = 10
    batch: int = 10
    epochs: int = 1
    decay: float = 0
    momentum: float = 0
    mu: float = 0


FULL = 600  # examples of a client of McMahan et al.
NIID = Setup(
    "iid",
    0.01,
    50,
    batch=64,
    epochs=10,
    decay=1e-5,
    momentum=0.9,
)
LABELS2 = NIID._replace(partition="labels2")
ROWS = {
    "mnist_power_law": Setup("power_law", 0.03, 200, decay=0.001),
    "mcmahan_iid": Setup("iid", 0.215, 200),
    "mcmahan_iid_1": Setup("iid", 0.1, 640, 1),
    "mcmahan_iid_20": Setup("iid", 0.215, 160, 20),
    "mcmahan_iid_50": Setup("iid", 0.215, 150, 50),
    "mcmahan_iid_100": Setup("iid", 0.215, 140, 100),
    "mcmahan_iid_full_1": Setup("iid", 1.0, 1500, 1, FULL),
    "mcmahan_iid_full_10": Setup("iid", 0.464, 2000, 10, FULL),
    "mcmahan_iid_full_20": Setup("iid", 0.464, 2000, 20, FULL),
    "mcmahan_iid_epochs5": Setup("iid", 0.05, 200, epochs=5),
    "mcmahan_shards2": Setup("shards", 0.215, 1400),
    "mcmahan_shards2_1": Setup("shards", 0.0464, 6600, 1),
    "mcmahan_shards2_20": Setup("shards", 0.215, 500, 20),
    "mcmahan_shards2_50": Setup("shards", 0.215, 400, 50),
    "mcmahan_shards2_100": Setup("shards", 0.215, 400, 100),
    "mcmahan_shards2_full_1": Setup("shards", 0.215, 5000, 1, FULL),
    "mcmahan_shards2_full_10": Setup("shards", 0.464, 1600, 10, FULL),
    "mcmahan_shards2_full_20": Setup("shards", 0.464, 1600, 20, FULL),
    "mcmahan_shards2_epochs5": Setup("shards", 0.05, 700, epochs=5),
    "niid_iid": NIID,
    "niid_labels2": LABELS2,
    "niid_labels2_fedprox": LABELS2._replace(mu=0.001),  # as in the published runs
    "niid_labels3": NIID._replace(partition="labels3"),
}
TARGET = 0.97
TRAINING = 60000  # the first images
CLASSES = 10


# ---- data


def mnist(folder):
    """Return images and labels, with the 60000 training images first and pixels from 0 to 1."""
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
    first_digits = np.arange(count) % CLASSES
    second_digits = (first_digits + 1) % CLASSES
    for digit in range(CLASSES):
        holds = (first_digits == digit) | (second_digits == digit)
        holders = np.flatnonzero(holds)
        examples = np.flatnonzero(y == digit)
        pool = rng.permutation(examples)
        rest = len(pool) - 5 * len(holders)
        weights = rng.lognormal(0, 2, len(holders))
        weights /= weights.sum()
        sizes = 5 + (weights * rest).astype(int)
        ends = np.cumsum(sizes)
        shares = np.split(pool, ends)
        for k, share in zip(holders, shares, strict=False):  # some examples are left
            clients[k].extend(share)
    return [rng.permutation(client) for client in clients]


def by_labels(y, each, rng):
    """Return the examples of 10 clients with label k and random other labels.

    The clients that have a label share its examples evenly.
    """
    labels = range(CLASSES)
    held = []
    for k in labels:
        others = [label for label in labels if label != k]
        chosen = rng.choice(others, each - 1, replace=False)
        held.append([k, *chosen])

    clients = [[] for _ in labels]
    for label in labels:
        holders = [k for k in labels if label in held[k]]
        examples = np.flatnonzero(y == label)
        pool = rng.permutation(examples)
        shares = np.array_split(pool, len(holders))
        for k, share in zip(holders, shares, strict=True):
            clients[k].extend(share)
    return clients


def parts(partition, count, y, rng):
    """Return the training examples of each of ``count`` clients, and the test examples."""
    # all images are shared out; every client keeps a tenth of its own for the test
    if partition == "power_law":
        train = []
        test = []
        for client in power_law(y, rng):
            tenth = len(client) // 10
            train.append(client[tenth:])
            test.append(client[:tenth])
        return train, np.concatenate(test)

    test = np.arange(TRAINING, len(y))
    y = y[:TRAINING]
    if partition.startswith("labels"):
        each = int(partition[-1])
        return by_labels(y, each, rng), test
    order = rng.permutation(TRAINING)
    # a client has two of 200 shards of 300 images, sorted by label
    if partition == "shards":
        by_label = np.argsort(y, kind="stable")
        shards = by_label.reshape(200, 300)
        order = shards[rng.permutation(200)]
    return order.reshape(count, -1), test


# ---- training


def network(benchmark):
    """Return a new model for flat images."""
    if benchmark == "mnist":
        return nn.Sequential(nn.Linear(784, 10), nn.Sigmoid())  # as in the code of FLUTE
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


def vector(model):
    """Return the parameters of the model as a vector."""
    return parameters_to_vector(model.parameters())


def train_client(model, x, y, setup):
    """Train the model with the SGD of one client."""
    start = vector(model).detach()
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=setup.rate,
        momentum=setup.momentum,
        weight_decay=setup.decay,
    )
    for _ in range(setup.epochs):
        order = torch.randperm(len(x))
        for batch in order.split(setup.batch):
            optimizer.zero_grad()
            outputs = model(x[batch])
            loss = cross_entropy(outputs, y[batch])
            if setup.mu:
                distance = vector(model) - start
                loss = loss + setup.mu / 2 * distance.square().sum()
            loss.backward()
            optimizer.step()


def run(name, seed, x, y):
    """Return the test accuracy of every round.

    Rows that count the rounds to a target end with the first accuracy that reaches it.
    """
    benchmark = name.split("_")[0]
    setup = ROWS[name]
    target = TARGET if benchmark == "mcmahan" else 1.1  # never reached
    count = 10 if benchmark == "niid" else 100

    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    clients, test = parts(setup.partition, count, y, rng)
    if benchmark == "mnist":
        x = (x - x.mean(0)) / (x.std(0) + np.float32(0.001 / 255))  # of every pixel
    x = torch.tensor(x)
    y = torch.tensor(y)

    model = network(benchmark)
    accuracies = []
    for _ in range(setup.rounds):
        start = vector(model).detach()
        mean = torch.zeros_like(start)
        chosen = rng.choice(len(clients), setup.cohort, replace=False)
        total = sum(len(clients[k]) for k in chosen)
        for k in chosen:
            vector_to_parameters(start.clone(), model.parameters())
            rows = torch.tensor(clients[k])
            train_client(model, x[rows], y[rows], setup)
            share = len(rows) / total
            mean += share * vector(model).detach()
        vector_to_parameters(mean, model.parameters())

        with torch.no_grad():
            predicted = model(x[test]).argmax(1)
        correct = predicted == y[test]
        accuracy = correct.double().mean().item()
        accuracies.append(accuracy)
        if accuracy >= target:
            break
    return accuracies


def summary(name, accuracies):
    """Return the numbers of the paper's row."""
    if name == "mnist_power_law":
        late = float(np.mean(accuracies[149:]))
        return {
            "round100": 100 * accuracies[99],
            "rounds150to200": 100 * late,
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

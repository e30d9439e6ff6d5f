"""Measure known numbers with a plain loop that shares nothing with fedbench but PyTorch and numpy.

It reads the files of MNIST itself and has its own partitions, models, FedAvg and FedProx with one
torch.optim.SGD per client, so that rows of fedbench/papers/known.yaml can be checked against a
second implementation:

    python scripts/plain_loop.py mcmahan_iid --seeds 5 --data data --json plain.json
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

# Name of a row: partition, rate, weight decay, local epochs, most rounds, clients a round, examples
# of a batch.
ROWS = {
    "mnist_power_law": ("power_law", 0.03, 0.001, 1, 200, 10, 10),
    "mcmahan_iid": ("iid", 0.215, 0, 1, 200, 10, 10),
    "mcmahan_shards2": ("shards", 0.215, 0, 1, 1400, 10, 10),
    "mcmahan_iid_1": ("iid", 0.1, 0, 1, 640, 1, 10),
    "mcmahan_iid_20": ("iid", 0.215, 0, 1, 160, 20, 10),
    "mcmahan_iid_50": ("iid", 0.215, 0, 1, 150, 50, 10),
    "mcmahan_iid_100": ("iid", 0.215, 0, 1, 140, 100, 10),
    "mcmahan_shards2_1": ("shards", 0.0464, 0, 1, 6600, 1, 10),
    "mcmahan_shards2_20": ("shards", 0.215, 0, 1, 500, 20, 10),
    "mcmahan_shards2_50": ("shards", 0.215, 0, 1, 400, 50, 10),
    "mcmahan_shards2_100": ("shards", 0.215, 0, 1, 400, 100, 10),
    "mcmahan_iid_full_1": ("iid", 1.0, 0, 1, 1500, 1, 600),
    "mcmahan_iid_full_10": ("iid", 0.464, 0, 1, 2000, 10, 600),
    "mcmahan_iid_full_20": ("iid", 0.464, 0, 1, 2000, 20, 600),
    "mcmahan_shards2_full_1": ("shards", 0.215, 0, 1, 5000, 1, 600),
    "mcmahan_shards2_full_10": ("shards", 0.464, 0, 1, 1600, 10, 600),
    "mcmahan_shards2_full_20": ("shards", 0.464, 0, 1, 1600, 20, 600),
    "mcmahan_iid_epochs5": ("iid", 0.05, 0, 5, 200, 10, 10),
    "mcmahan_shards2_epochs5": ("shards", 0.05, 0, 5, 700, 10, 10),
    "niid_iid": ("iid", 0.01, 1e-5, 10, 50, 10, 64),
    "niid_labels2": ("labels2", 0.01, 1e-5, 10, 50, 10, 64),
    "niid_labels2_fedprox": ("labels2", 0.01, 1e-5, 10, 50, 10, 64),
    "niid_labels3": ("labels3", 0.01, 1e-5, 10, 50, 10, 64),
}
TARGET = 0.97
MU = 0.001  # of FedProx, as in the published runs with two labels


def mnist(folder):
    """Return images and labels, the 60000 training images first; pixels are from 0 to 1."""
    folder = Path(folder, "MNIST", "raw")
    images = [
        np.fromfile(folder / f"{part}-images-idx3-ubyte", np.uint8)[16:]
        for part in ("train", "t10k")
    ]
    labels = [
        np.fromfile(folder / f"{part}-labels-idx1-ubyte", np.uint8)[8:]
        for part in ("train", "t10k")
    ]
    return np.concatenate(images).reshape(-1, 784) / np.float32(255), np.concatenate(labels).astype(
        int
    )


def power_law(y, rng):
    """Return the examples of 1000 clients with two digits each: five of each digit, the rest of it by a power law."""
    clients = [[] for _ in range(1000)]
    for digit in range(10):
        holders = [k for k in range(1000) if digit in (k % 10, (k + 1) % 10)]
        pool = rng.permutation(np.flatnonzero(y == digit))
        shares = rng.lognormal(0, 2, len(holders))
        sizes = 5 + (shares / shares.sum() * (len(pool) - 5 * len(holders))).astype(int)
        for k, part in zip(holders, np.split(pool, np.cumsum(sizes)), strict=False):
            clients[k].extend(part)
    return [rng.permutation(client) for client in clients]


def labels(y, each, rng):
    """Return the examples of 10 clients: label k and random others, shared evenly by those that have them."""
    held = [
        [k, *rng.choice([c for c in range(10) if c != k], each - 1, replace=False)]
        for k in range(10)
    ]
    clients = [[] for _ in range(10)]
    for c in range(10):
        holders = [k for k in range(10) if c in held[k]]
        for k, part in zip(
            holders,
            np.array_split(rng.permutation(np.flatnonzero(y == c)), len(holders)),
            strict=True,
        ):
            clients[k].extend(part)
    return clients


def parts(partition, count, y, rng):
    """Return the training examples of each of ``count`` clients, and the test examples."""
    # of all 70000 images; every client keeps a fifth of its own for the test
    if partition == "power_law":
        clients = power_law(y, rng)
        return [c[len(c) // 5 :] for c in clients], np.concatenate(
            [c[: len(c) // 5] for c in clients]
        )
    if partition.startswith("labels"):
        return labels(y[:60000], int(partition[-1]), rng), np.arange(60000, 70000)
    order = rng.permutation(60000)
    if partition == "shards":  # two of 200 shards of 300 images, sorted by label
        order = np.argsort(y[:60000], kind="stable").reshape(200, 300)[rng.permutation(200)]
    return order.reshape(count, -1), np.arange(60000, 70000)


def network(benchmark):
    """Return a new model for flat images."""
    if benchmark == "mnist":
        return nn.Linear(784, 10)
    if benchmark == "mcmahan":
        return nn.Sequential(
            nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
        )
    convolutions = (
        nn.Conv2d(1, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )
    hidden = nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)), *convolutions, nn.Flatten(), *hidden, nn.Linear(84, 10)
    )


def run(name, seed, x, y):
    """Return the test accuracy of every round; for the rounds to a target, the last is the first that reaches it."""
    benchmark = name.split("_")[0]
    partition, rate, decay, epochs, rounds, per_round, batch_size = ROWS[name]
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    clients, test = parts(partition, 10 if benchmark == "niid" else 100, y, rng)
    momentum = 0.9 if benchmark == "niid" else 0
    if benchmark == "mnist":
        x = (x - x.mean()) / x.std()
    x, y, accuracies, model = torch.tensor(x), torch.tensor(y), [], network(benchmark)
    while len(accuracies) < rounds and (
        benchmark != "mcmahan" or max(accuracies, default=0) < TARGET
    ):
        start = parameters_to_vector(model.parameters()).detach()
        chosen = [
            torch.tensor(clients[k]) for k in rng.choice(len(clients), per_round, replace=False)
        ]
        mean = torch.zeros_like(start)
        for client in chosen:
            vector_to_parameters(start.clone(), model.parameters())
            optimizer = torch.optim.SGD(
                model.parameters(), lr=rate, momentum=momentum, weight_decay=decay
            )
            for _ in range(epochs):
                for batch in client[torch.randperm(len(client))].split(batch_size):
                    optimizer.zero_grad()
                    loss = cross_entropy(model(x[batch]), y[batch])
                    if name.endswith("fedprox"):
                        loss = (
                            loss
                            + MU
                            / 2
                            * (parameters_to_vector(model.parameters()) - start).square().sum()
                        )
                    loss.backward()
                    optimizer.step()
            share = len(client) / sum(len(c) for c in chosen)
            mean += share * parameters_to_vector(model.parameters()).detach()
        vector_to_parameters(mean, model.parameters())
        with torch.no_grad():
            accuracies.append((model(x[test]).argmax(1) == y[test]).double().mean().item())
    return accuracies


def main():
    """Print the numbers of every seed, and write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=ROWS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", default="data", help="folder with MNIST/raw")
    parser.add_argument("--json", help="file that the numbers are written to")
    args = parser.parse_args()
    torch.set_num_threads(1)
    x, y = mnist(args.data)
    numbers = []
    for seed in range(args.seeds):
        found = run(args.name, seed, x, y)
        if args.name == "mnist_power_law":
            numbers.append(
                {"round100": 100 * found[99], "rounds150to200": 100 * float(np.mean(found[149:]))}
            )
        elif args.name.startswith("niid"):
            numbers.append({"best": 100 * max(found)})
        else:
            numbers.append({"rounds_to_97": len(found) if found[-1] >= TARGET else None})
        print(args.name, "seed", seed, numbers[-1], flush=True)
        if args.json:
            Path(args.json).write_text(json.dumps({args.name: numbers}) + "\n")


if __name__ == "__main__":
    main()

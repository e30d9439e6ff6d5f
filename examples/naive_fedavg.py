"""FedAvg written from its definition: softmax regression in NumPy, one client after another.

It shares no code with fedbench. Read it to see how the method works; tests/test_examples.py shows
that fedbench computes the same model up to rounding.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Client = tuple[Array, Labels]  # examples x [n, D] and labels y [n]


def gradient(w: Array, x: Array, y: Labels, classes: int) -> Array:
    """Return the gradient of the mean cross-entropy.

    Args:
        w: The weight [K, D] and the bias [K] as one vector [K * D + K].
        x: Examples [n, D].
        y: Labels [n].
        classes: Number of classes K.
    """
    features = x.shape[1]
    weight = w[: classes * features].reshape(classes, features)
    bias = w[classes * features :]

    logits = x @ weight.T + bias
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)

    errors = probabilities
    errors[np.arange(len(y)), y] -= 1
    errors /= len(y)
    return np.concatenate([(errors.T @ x).ravel(), errors.sum(axis=0)])


def local_work(
    w: Array,
    client: Client,
    classes: int,
    lr: float,
    steps: int,
) -> Array:
    """Return a client's model after full-batch gradient steps from the global model."""
    x, y = client
    for _ in range(steps):
        w = w - lr * gradient(w, x, y, classes)
    return w


def fedavg(
    clients: list[Client],
    w: Array,
    classes: int,
    rounds: int,
    lr: float,
    steps: int,
) -> Array:
    """Return the global model after ``rounds`` of FedAvg (McMahan et al., 2017) with all clients.

    Args:
        clients: Examples and labels of each client.
        w: The initial model [K * D + K].
        classes: Number of classes K.
        rounds: Number of rounds.
        lr: Local learning rate.
        steps: Local steps per client and round.
    """
    sizes = np.array([len(y) for _, y in clients])
    p = sizes / sizes.sum()  # the weight of a client is its share of the examples

    for _ in range(rounds):
        average = np.zeros_like(w)
        for p_k, client in zip(p, clients, strict=True):
            w_k = local_work(w, client, classes, lr, steps)
            average += p_k * w_k
        w = average
    return w


def main() -> None:
    """Train on five clients with random examples, and print the model."""
    rng = np.random.default_rng(0)
    clients = []
    for k in range(5):
        size = 10 + k
        x = rng.normal(k, 1.0, (size, 4))
        y = rng.integers(0, 3, size)
        clients.append((x, y))

    w = fedavg(clients, np.zeros(3 * 4 + 3), classes=3, rounds=50, lr=0.1, steps=5)
    print(w.round(3))


if __name__ == "__main__":
    main()

"""FedAvg written from its definition: softmax regression in NumPy, one client after another.

Nothing is shared with fedbench. Read this to see what the method does; fedbench gives the same
model to rounding, as tests/test_examples.py shows.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Client = tuple[Array, NDArray[np.int64]]  # examples x [n, D] and labels y [n]


def gradient(w: Array, x: Array, y: NDArray[np.int64], classes: int) -> Array:
    """Return the gradient of the mean cross-entropy; ``w`` is the weight [K, D] and the bias [K] as one vector."""
    features = x.shape[1]
    weight, bias = w[: classes * features].reshape(classes, features), w[classes * features :]
    logits = x @ weight.T + bias
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    probabilities[np.arange(len(y)), y] -= 1
    errors = probabilities / len(y)
    return np.concatenate([(errors.T @ x).ravel(), errors.sum(axis=0)])


def local_work(w: Array, client: Client, classes: int, lr: float, steps: int) -> Array:
    """Return a client's model after full-batch gradient steps from the global model."""
    x, y = client
    for _ in range(steps):
        w = w - lr * gradient(w, x, y, classes)
    return w


def fedavg(
    clients: list[Client], w: Array, classes: int, rounds: int, lr: float, steps: int
) -> Array:
    """Return the global model after ``rounds`` of FedAvg (McMahan et al., 2017) with all clients.

    Args:
        clients: Examples and labels per client.
        w: The initial model, [K * D + K].
        classes: Number of classes K.
        rounds: Number of rounds.
        lr: Local learning rate.
        steps: Local steps per client and round.
    """
    sizes = np.array([len(y) for _, y in clients])
    p = sizes / sizes.sum()  # clients count in proportion to their examples
    for _ in range(rounds):
        models = [local_work(w, client, classes, lr, steps) for client in clients]
        w = sum((p_k * w_k for p_k, w_k in zip(p, models, strict=True)), np.zeros_like(w))
    return w


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    made = [(rng.normal(k, 1.0, (10 + k, 4)), rng.integers(0, 3, 10 + k)) for k in range(5)]
    print(fedavg(made, np.zeros(3 * 4 + 3), classes=3, rounds=50, lr=0.1, steps=5).round(3))

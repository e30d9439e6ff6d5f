"""Custom metrics: numbers computed from the accuracies and losses of the clients."""

import numpy as np


def gini(accuracy: np.ndarray) -> float:
    """Return the Gini coefficient of the accuracies [K]; 0 if all are equal.

    It is mean |a_i - a_j| / (2 mean a).
    """
    differences = np.abs(accuracy[:, None] - accuracy)
    average = max(accuracy.mean(), 1e-12)  # all accuracies may be 0
    return float(differences.mean() / (2 * average))


def cvar(loss: np.ndarray, weights: np.ndarray, *, share: float = 0.1) -> float:
    """Return the mean loss of the worst clients, the conditional value at risk.

    Args:
        loss: Mean loss of each client [K].
        weights: Test examples of each client [K].
        share: Share of all test examples that the worst clients hold.
    """
    worst_first = np.argsort(-loss)
    loss = loss[worst_first]
    weights = weights[worst_first]

    # the last client counts with a part of its examples
    examples_before = np.cumsum(weights) - weights
    counted = np.clip(share * weights.sum() - examples_before, 0, weights)
    return float((counted * loss).sum() / counted.sum())

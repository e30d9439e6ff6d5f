"""Metrics of one's own: numbers from the accuracies and losses of the clients."""

import numpy as np


def gini(accuracy: np.ndarray) -> float:
    """The Gini coefficient of the accuracies: mean |a_i - a_j| / (2 mean a), 0 if all are equal."""
    return float(np.abs(accuracy[:, None] - accuracy).mean() / (2 * max(accuracy.mean(), 1e-12)))


def cvar(loss: np.ndarray, weights: np.ndarray, *, share: float = 0.1) -> float:
    """The mean loss of the clients with the highest losses that hold a share of the test examples."""
    order = np.argsort(-loss)
    held = np.cumsum(weights[order])
    part = np.clip(share * held[-1] - (held - weights[order]), 0, weights[order])
    return float((part * loss[order]).sum() / part.sum())

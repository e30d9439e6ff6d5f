"""Accuracy and fairness of per-client arrays [N].

All accuracies are fractions in [0, 1] and the variance is of fractions; tables print percent and percent².
The caller leaves out clients without test examples.
"""

from __future__ import annotations

from math import ceil, floor, sqrt
from typing import Literal

import numpy as np

TAILS = (5, 10, 20, 30)  # percent


def tail(
    values: np.ndarray,
    percent: float,
    best: bool = False,
    weights: np.ndarray | None = None,
    rounding: Literal["floor", "ceil"] = "floor",
) -> float:
    """Return the mean of the lowest (or highest) max(1, floor(p N / 100)) values.

    The number is rounded down as in the code of q-FFL (Li et al., ICLR 2020), or up. ``weights`` are those of the mean
    inside the tail. Clients that are tied at its edge share the places that are left: all of them belong to the tail,
    each with the same fraction of its weight, so that the result does not depend on their order.
    """
    count = tail_size(len(values), percent, rounding)
    if weights is None:
        ranked = np.sort(values)
        return _mean(ranked[-count:] if best else ranked[:count])
    share = _shares(-values if best else values, count)
    return _weighted_mean(values, weights * share)


def _shares(values: np.ndarray, count: int) -> np.ndarray:
    """Return the share [N] with which each client belongs to the ``count`` lowest: 1 below the edge, 0 above it."""
    edge = np.partition(values, count - 1)[count - 1]
    below, tied = values < edge, values == edge
    return np.where(tied, (count - np.count_nonzero(below)) / np.count_nonzero(tied), below)


def tail_size(clients: int, percent: float, rounding: Literal["floor", "ceil"] = "floor") -> int:
    """Return the number of clients in a tail of ``percent`` percent: max(1, floor(p N / 100)), or rounded up."""
    share = percent * clients / 100
    # 0.29 * 100 is a little less than 29
    return max(1, floor(share + 1e-9) if rounding == "floor" else ceil(share - 1e-9))


def angle_degrees(values: np.ndarray) -> float:
    """Return the angle between the values and (1, ..., 1): arccos(Σ a / (√N ||a||)) = atan(STD / mean), in degrees.

    If all values are 0 there is no direction, and the angle is 90. (Fairness as in Li et al., ICLR 2020, Definition 2
    of its appendix.)
    """
    mean = _mean(values)
    return float(np.degrees(np.arctan2(_deviation(values), mean))) if mean > 0 else 90.0


def kl_uniform(values: np.ndarray, base: float = np.e) -> float:
    """Return KL(a/Σa || uniform) = Σ p ln(N p), by default in nats; 0 ln 0 is 0, and all values 0 give 0."""
    total = values.sum()
    if total <= 0:
        return 0.0
    p = values / total
    p = p[p > 0]
    return max(0.0, float((p * np.log(len(values) * p)).sum() / np.log(base)))


def accuracy_metrics(accuracy: np.ndarray, n_test: np.ndarray) -> dict[str, float]:
    """Return the accuracy columns of a round.

    Args:
        accuracy: Fraction of correct test examples of each client, [N].
        n_test: Number of test examples of each client, > 0, [N]; the weights of the ``_weighted`` columns.

    Standard deviation and variance are those of the population (ddof 0).
    """
    ranked = np.sort(accuracy)
    mean, std = _mean(accuracy), _deviation(accuracy)
    weighted = _weighted_mean(accuracy, n_test)
    return {
        "accuracy_mean": mean,
        "accuracy_std": std,
        "accuracy_variance": std**2,
        "accuracy_min": float(ranked[0]),
        "accuracy_max": float(ranked[-1]),
        **{f"accuracy_worst{p}": _mean(ranked[: tail_size(len(ranked), p)]) for p in TAILS},
        **{f"accuracy_best{p}": _mean(ranked[-tail_size(len(ranked), p) :]) for p in TAILS},
        "angle_degrees": angle_degrees(accuracy),
        "kl_uniform": kl_uniform(accuracy),
        "accuracy_mean_weighted": weighted,
        "accuracy_std_weighted": sqrt(_weighted_mean((accuracy - weighted) ** 2, n_test)),
        "accuracy_worst30_weighted": tail(accuracy, 30, weights=n_test),
    }


def _mean(values: np.ndarray) -> float:
    return float(np.add.reduce(values)) / len(values)  # as ``values.mean()``, which takes four times as long


def _weighted_mean(values: np.ndarray, weights: np.ndarray) -> float:
    return float(np.add.reduce(values * weights) / np.add.reduce(weights))


def _deviation(values: np.ndarray) -> float:
    """Return the population standard deviation."""
    centred = values - _mean(values)
    return sqrt(_mean(centred * centred))


def linear_cka(x: np.ndarray, y: np.ndarray) -> float:
    """Return the linear CKA of two matrices with the same number of rows (Kornblith et al., ICML 2019; FedCAda, Eq. 2).

    ‖Y'X‖²/(‖X'X‖ ‖Y'Y‖) in Frobenius norms, of matrices [n, a] and [n, b] after centring their columns. It is 1 for
    matrices that are equal up to scale, and NaN if one of them has no variance.
    """
    x, y = _centred(x), _centred(y)
    if min(x.shape[1], y.shape[1]) <= len(x):
        cross, own = np.sum((y.T @ x) ** 2), np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    else:  # the same numbers from the smaller Gram matrices
        gram_x, gram_y = x @ x.T, y @ y.T
        cross, own = np.sum(gram_x * gram_y), np.linalg.norm(gram_x) * np.linalg.norm(gram_y)
    return float(cross / own) if own > 0 else float("nan")


def _centred(m: np.ndarray) -> np.ndarray:
    """Return a matrix with centred columns and norm 1; NaN if all columns are constant, up to rounding."""
    m = np.asarray(m, float)
    largest = np.abs(m).max(initial=0.0)
    centred = m / largest if largest > 0 else m  # squares of tiny numbers would be 0
    centred = centred - centred.mean(0)
    size = np.linalg.norm(centred)
    return centred / size if size > 1e-12 * np.sqrt(m.size) else np.full_like(m, np.nan)

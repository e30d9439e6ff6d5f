"""Pareto fronts of methods by two metrics, and how sure they are over seeds."""

from __future__ import annotations

import numpy as np

_DRAWS = 2000


def on_front(x: np.ndarray, y: np.ndarray, sign_x: int = 1, sign_y: int = 1) -> np.ndarray:
    """Return which points are on the front: no other is at least as good in both metrics and better in one.

    Args:
        x: The first metric [..., M]; a point with NaN in either metric is not on the front and dominates none.
        y: The second metric [..., M].
        sign_x: 1 if higher is better, -1 if lower is.
        sign_y: Likewise for y.

    Returns:
        Booleans [..., M]; equal points are on the front together.
    """
    known = ~(np.isnan(x) | np.isnan(y))
    a, b = (np.where(known, s * v, -np.inf) for s, v in ((sign_x, x), (sign_y, y)))
    ax, bx = a[..., :, None], b[..., :, None]  # the point itself
    ay, by = a[..., None, :], b[..., None, :]  # every other point
    dominated = ((ay >= ax) & (by >= bx) & ((ay > ax) | (by > bx))).any(-1)
    front: np.ndarray = known & ~dominated
    return front


def front_shares(x: np.ndarray, y: np.ndarray, sign_x: int = 1, sign_y: int = 1) -> np.ndarray:
    """Return the share [M] of 2000 bootstrap samples of the seeds in which a method's means are on the front.

    Seeds are resampled for all methods together, since the runs of a seed share their partition. The draws are the same
    in every call.

    Args:
        x: The first metric [S, M] per seed; a method with NaN in a drawn seed is not on that sample's front.
        y: The second metric [S, M].
        sign_x: 1 if higher is better, -1 if lower is.
        sign_y: Likewise for y.
    """
    seeds = np.random.default_rng(0).integers(len(x), size=(_DRAWS, len(x)))
    counts = np.stack([(seeds == s).sum(1) for s in range(len(x))], 1)  # [draws, S]
    means = []
    for values in (x, y):
        missing = counts @ np.isnan(values).astype(float) > 0
        means.append(np.where(missing, np.nan, counts @ np.nan_to_num(values) / len(x)))
    shares: np.ndarray = on_front(means[0], means[1], sign_x, sign_y).mean(0)
    return shares

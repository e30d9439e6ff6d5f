"""Average ranks of methods over data sets (Demšar, JMLR 7, 2006)."""

import numpy as np
from numpy.typing import ArrayLike


def average_ranks(scores: ArrayLike) -> list[float]:
    """Return the average rank of K methods over B blocks, [K]; 1 is best.

    The seeds of one data set share its difficulty, are no independent samples of data sets, and are
    averaged before ranking (Demšar, Sec. 3.2: one score per data set, however often it was
    resampled).

    Args:
        scores: One row per block [B, K], higher is better; negative infinity for a failure. Equal
            scores share the mean of their ranks.
    """
    from scipy.stats import rankdata  # late: it takes a second

    ranks: list[float] = rankdata(-np.asarray(scores), axis=1).mean(axis=0).tolist()
    return ranks

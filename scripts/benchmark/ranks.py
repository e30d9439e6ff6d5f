"""Methods ranked over data sets, with Friedman's test (Demšar, JMLR 7, 2006).

Blocks are data sets. The seeds of one data set share its difficulty, are no independent samples of
data sets, and are averaged before ranking (Demšar, Sec. 3.2: one score per data set, however often
it was resampled).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Friedman:
    """Methods ranked in every block.

    Attributes:
        ranks: Average rank of each method over the blocks; 1 is the highest score, equal scores
            share their ranks.
        statistic: Friedman's chi-square, corrected for equal scores.
        p: p-value of the statistic, from the chi-square distribution with (number of methods - 1)
            degrees of freedom.
        critical_difference: Difference of average ranks above which Nemenyi's test at level 0.05 is
            significant.
    """

    ranks: tuple[float, ...]
    statistic: float
    p: float
    critical_difference: float


@dataclass(frozen=True)
class RankTest:
    """Average ranks of methods with their test.

    Attributes:
        methods: Names of the K methods.
        blocks: Number B of blocks.
        test: Average ranks, Friedman's test with its chi-square approximation, and Nemenyi's
            critical difference.
        f: The statistic of Iman and Davenport, less conservative for few blocks; infinite if all
            blocks agree.
        f_p: Its p-value by the F distribution with K - 1 and (K - 1)(B - 1) degrees of freedom.
    """

    methods: tuple[str, ...]
    blocks: int
    test: Friedman
    f: float
    f_p: float

    @property
    def ordered(self) -> list[tuple[str, float]]:
        """The methods with their average ranks, the best first; equal ones by name."""
        return sorted(
            zip(self.methods, self.test.ranks, strict=True), key=lambda pair: (pair[1], pair[0])
        )

    def level_with_best(self) -> list[str]:
        """Return the methods whose rank differs from the best one by less than the critical difference."""
        return [
            m
            for m, rank in self.ordered
            if rank - self.ordered[0][1] < self.test.critical_difference
        ]


def ranks_of(values: np.ndarray, sign: int) -> np.ndarray:
    """Return the ranks [B, K] of values [B, K] within each block: 1 is best, ties share the mean of their ranks.

    Args:
        values: One row per block; NaN is worse than every number, as the value of a run that
            diverged.
        sign: 1 if higher is better, -1 if lower is.
    """
    from scipy.stats import rankdata  # late: it takes a second

    ranks: np.ndarray = rankdata(np.where(np.isnan(values), np.inf, -sign * values), axis=1)
    return ranks


def rank_test(methods: Sequence[str], values: np.ndarray, sign: int) -> RankTest:
    """Rank methods within blocks and test whether their average ranks differ.

    Args:
        methods: Names of the K methods.
        values: One row per block [B, K]; NaN is worse than every number.
        sign: 1 if higher is better, -1 if lower is.

    Raises:
        ValueError: If there are fewer than 3 methods or 2 blocks, for which the test is not
            defined.
    """
    from scipy.stats import f as f_distribution

    blocks, count = values.shape
    test = friedman(-ranks_of(values, sign))
    rest = blocks * (count - 1) - test.statistic
    agree = rest <= 1e-9 * blocks * count  # chi-square is at its largest
    f = math.inf if agree else (blocks - 1) * test.statistic / rest
    p = float(f_distribution.sf(f, count - 1, (count - 1) * (blocks - 1)))
    return RankTest(tuple(methods), blocks, test, f, p)


def friedman(scores: np.ndarray | Sequence[Sequence[float]]) -> Friedman:
    """Rank methods in every block and test whether their average ranks differ.

    The test is that of Demsar (JMLR 2006, Sec. 3.2). The critical difference is q √(k(k+1) / 6N)
    for k methods and N blocks, where q is the 0.95 quantile of the studentised range of k values
    and infinitely many degrees of freedom, divided by √2. The chi-square p-value is an
    approximation, which is rough for few blocks.

    Args:
        scores: Scores [blocks, methods], higher is better; at least 2 blocks and 3 methods.
    """
    from scipy import stats  # late: it takes a second

    table = np.asarray(scores, dtype=float)
    blocks, methods = table.shape
    ranks = stats.rankdata(-table, axis=1).mean(axis=0)
    statistic = 0.0
    p = 1.0
    tied = bool((table == table[:, :1]).all())
    if not tied:  # scipy divides by zero where every block is one tie
        statistic, p = stats.friedmanchisquare(*table.T)
    quantile = stats.studentized_range.ppf(0.95, methods, np.inf)
    q = float(quantile) / math.sqrt(2)
    return Friedman(
        ranks=tuple(map(float, ranks)),
        statistic=float(statistic),
        p=float(p),
        critical_difference=q * math.sqrt(methods * (methods + 1) / (6 * blocks)),
    )

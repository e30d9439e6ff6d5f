"""Methods ranked over data sets, with Friedman's test (Demšar, JMLR 7, 2006).

Blocks are data sets. The seeds of one data set share its difficulty, are no independent samples of
data sets, and are averaged before ranking (Demšar, Sec. 3.2: one score per data set, however often
it was resampled).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.05  # of Nemenyi's test


@dataclass(frozen=True)
class RankTest:
    """Average ranks of methods with their test.

    Attributes:
        methods: Names of the K methods.
        blocks: Number B of blocks.
        ranks: Average rank of each method over the blocks; 1 is best, equal values share the mean
            of their ranks.
        statistic: Friedman's chi-square, corrected for equal values.
        p: Its p-value by the chi-square distribution with K - 1 degrees of freedom, an
            approximation that is rough for few blocks.
        critical_difference: Difference of average ranks above which Nemenyi's test at level 0.05 is
            significant: q √(K (K + 1) / 6B), where q is the 0.95 quantile of the studentised range
            of K values and infinitely many degrees of freedom, divided by √2.
        f: The statistic of Iman and Davenport, less conservative for few blocks; infinite if all
            blocks agree.
        f_p: Its p-value by the F distribution with K - 1 and (K - 1)(B - 1) degrees of freedom.
    """

    methods: tuple[str, ...]
    blocks: int
    ranks: tuple[float, ...]
    statistic: float
    p: float
    critical_difference: float
    f: float
    f_p: float

    @property
    def ordered(self) -> list[tuple[str, float]]:
        """The methods with their average ranks, the best first; equal ones by name."""
        pairs = zip(self.methods, self.ranks, strict=True)
        return sorted(pairs, key=lambda pair: (pair[1], pair[0]))

    def level_with_best(self) -> list[str]:
        """Return the methods whose ranks are within the critical difference of the best one."""
        best = min(self.ranks)
        level = []
        for method, rank in self.ordered:
            if rank - best < self.critical_difference:
                level.append(method)
        return level


def ranks_of(values: np.ndarray) -> np.ndarray:
    """Return the ranks [B, K] of values [B, K] within each block: 1 is best.

    Args:
        values: One row per block, higher is better; NaN is worse than every number, as the value of
            a run that diverged. Equal values share the mean of their ranks.
    """
    from scipy.stats import rankdata  # late: it takes a second

    costs = np.where(np.isnan(values), np.inf, -values)
    ranks: np.ndarray = rankdata(
        costs,
        axis=1,
    )
    return ranks


def rank_test(methods: Sequence[str], values: np.ndarray) -> RankTest:
    """Rank methods within blocks and test whether their average ranks differ.

    Args:
        methods: Names of the K >= 3 methods.
        values: One row per block [B >= 2, K], higher is better; NaN is worse than every number.
    """
    from scipy import stats  # late: it takes a second

    blocks, count = values.shape
    ranks = ranks_of(values)
    statistic = 0.0
    p = 1.0
    tied = ranks == ranks[:, :1]
    if not tied.all():  # scipy divides by zero where every block is one tie
        statistic, p = stats.friedmanchisquare(*ranks.T)

    quantile = stats.studentized_range.ppf(1 - LEVEL, count, np.inf)
    variance = count * (count + 1) / (6 * blocks)

    f = math.inf
    freedom = count - 1
    rest = blocks * freedom - statistic
    if rest > 1e-9 * blocks * count:  # else chi-square is at its largest
        f = (blocks - 1) * statistic / rest
    f_p = stats.f.sf(f, freedom, freedom * (blocks - 1))
    return RankTest(
        methods=tuple(methods),
        blocks=blocks,
        ranks=tuple(map(float, ranks.mean(0))),
        statistic=float(statistic),
        p=float(p),
        critical_difference=float(quantile) / math.sqrt(2) * math.sqrt(variance),
        f=f,
        f_p=float(f_p),
    )

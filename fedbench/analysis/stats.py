"""Do methods differ: intervals, the sign-flip test, Holm's adjustment, Friedman's and Nemenyi's tests.

Nothing here knows of runs or of files: arrays come in, numbers go out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import copysign, inf, sqrt
from statistics import mean, stdev

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

_ENUMERATED = 16  # pairs up to which all sign assignments are gone through
_DRAWS = 65536  # random sign assignments that are drawn above that
_CHUNK = 4096  # of them at a time, so that memory stays small
_ROUNDING = 1e-9  # sums that differ by less, as a share of the sum of absolute differences, are equal


@dataclass(frozen=True)
class Paired:
    """Differences over pairs, in their own unit.

    Attributes:
        n: number of pairs.
        mean: mean difference.
        low: lower end of the interval of the mean; None for fewer than two pairs.
        high: upper end.
        greater: p-value against a mean above 0.
        less: p-value against a mean below 0.
    """

    n: int
    mean: float
    low: float | None
    high: float | None
    greater: float
    less: float

    @property
    def two_sided(self) -> float:
        """p-value against a mean other than 0: twice the smaller of the two, at most 1."""
        return min(1.0, 2 * min(self.greater, self.less))


@dataclass(frozen=True)
class Friedman:
    """Methods ranked in every block.

    Attributes:
        ranks: average rank of each method over the blocks; 1 is the highest score, equal scores share their ranks.
        statistic: Friedman's chi-square, corrected for equal scores.
        p: its p-value from the chi-square distribution with one degree of freedom less than there are methods.
        critical_difference: average ranks further apart than this differ by Nemenyi's test at level 0.05.
    """

    ranks: tuple[float, ...]
    statistic: float
    p: float
    critical_difference: float


def interval(values: Iterable[float], level: float = 0.95) -> tuple[float, float] | None:
    """Return Student's t interval of the mean, or None for fewer than two values.

    Args:
        values: [n] in any unit, which is that of the interval too; equal values give an interval of no width.
        level: its confidence, in (0, 1).
    """
    numbers = [float(v) for v in values]
    if len(numbers) < 2:
        return None
    # statistics rounds once, at the end: equal values have exactly their mean and no spread
    center, spread = mean(numbers), stdev(numbers)
    half = float(stats.t.ppf((1 + level) / 2, len(numbers) - 1)) * spread / sqrt(len(numbers))
    return center - half, center + half


def paired(differences: Iterable[float], level: float = 0.95) -> Paired:
    """Return the mean of paired differences, its t interval and the p-values of the sign-flip test.

    If the two of a pair could as well be exchanged, every assignment of signs to the differences is equally likely:
    the p-value is the share of the 2^n assignments whose sum is at least (for ``less``: at most) the observed one,
    which is among them (Fisher, The Design of Experiments, 1935, Sec. 21). Above 16 pairs it is the share among 65536
    assignments from a fixed seed and the observed one (Phipson & Smyth, 2010), so that p is never 0.

    Args:
        differences: [n] finite, n >= 1.
        level: confidence of the interval, in (0, 1).

    Raises:
        ValueError: for no differences.
    """
    numbers = [float(d) for d in differences]
    if not numbers:
        raise ValueError("there are no pairs; the test needs at least one")
    low, high = interval(numbers, level) or (None, None)
    greater, less = _sign_flips(np.array(numbers))
    return Paired(len(numbers), mean(numbers), low, high, greater, less)


def with_lost(differences: Mapping[int, float], lost: Collection[int], won: Collection[int]) -> dict[int, float]:
    """Return differences completed by pairs of which one side has no number, since it diverged.

    That side counts as behind by as much as the widest of the differences (the worst-rank score of Lachin, 1999, on
    their scale), or by 1 where all are 0 or there are none.

    Args:
        differences: by pair, positive where the first side is ahead; finite.
        lost: pairs in which the first side has no number.
        won: pairs in which the second has none.
    """
    widest = max(map(abs, differences.values()), default=0.0) or 1.0
    return {**differences, **dict.fromkeys(sorted(lost), -widest), **dict.fromkeys(sorted(won), widest)}


def paired_with_lost(
    differences: Mapping[int, float], lost: Collection[int], won: Collection[int], sign: int = 1, level: float = 0.95
) -> Paired | None:
    """Return the statistics of paired differences in which a run that diverged is not left out but behind.

    To leave it out would favour the method that diverges where training is hard. Where pairs with such a run are all
    that differs, the mean is infinite and has no interval: there is no scale to say it on.

    Args:
        differences: By pair, first minus second; finite.
        lost: Pairs in which the first side has no number, as in ``with_lost``.
        won: Pairs in which the second has none.
        sign: 1 if higher is better, -1 if lower is.
        level: Confidence of the interval, in (0, 1).

    Returns:
        The statistics of first minus second; None without any pair.
    """
    ahead = {pair: sign * d for pair, d in differences.items()}
    counted = with_lost(ahead, lost, won)
    if not counted:
        return None
    found = paired([sign * d for d in counted.values()], level)
    if (lost or won) and found.mean and not any(ahead.values()):
        return replace(found, mean=copysign(inf, found.mean), low=None, high=None)
    return found


def _sign_flips(d: np.ndarray) -> tuple[float, float]:
    """Return the shares of sign assignments of d [n] with a sum at least, and at most, the observed one."""
    observed, slack = float(d.sum()), _ROUNDING * float(np.abs(d).sum())
    if len(d) <= _ENUMERATED:
        sums = np.zeros(1)
        for x in d:
            sums = np.concatenate([sums + x, sums - x])
        return float(np.mean(sums >= observed - slack)), float(np.mean(sums <= observed + slack))
    rng = np.random.default_rng(0)
    above = below = 1  # the observed one
    for _ in range(_DRAWS // _CHUNK):
        sums = rng.choice([-1.0, 1.0], (_CHUNK, len(d))) @ d
        above += int(np.count_nonzero(sums >= observed - slack))
        below += int(np.count_nonzero(sums <= observed + slack))
    return above / (_DRAWS + 1), below / (_DRAWS + 1)


def least_p(n: int) -> float:
    """Return the smallest one-sided p-value that ``paired`` can give with n pairs: 2^-n, or what its draws resolve."""
    return 2.0**-n if n <= _ENUMERATED else 1 / (_DRAWS + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted by Holm's step-down method (Holm, 1979), in the given order.

    Rejecting what is at most α keeps the probability of any wrong rejection at α, however the tests hang together.

    Args:
        p_values: [m] in [0, 1]; m may be 0.
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def friedman(scores: np.ndarray | Sequence[Sequence[float]]) -> Friedman:
    """Rank methods in every block and test whether their average ranks differ (Demsar, JMLR 2006, Sec. 3.2).

    The critical difference is q √(k(k+1) / 6N) for k methods and N blocks, q being the 0.95 quantile of the studentized
    range of k values and infinitely many degrees of freedom, over √2. The chi-square p-value is an approximation, and
    rough for few blocks.

    Args:
        scores: [blocks, methods], higher is better; at least 2 blocks and 3 methods, all finite.

    Raises:
        ValueError: for fewer, or for what is not a finite table.
    """
    table = np.asarray(scores, dtype=float)
    if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 3 or not np.isfinite(table).all():
        raise ValueError(f"scores must be finite, of at least 2 blocks and 3 methods, got the shape {table.shape}")
    blocks, methods = table.shape
    ranks = stats.rankdata(-table, axis=1).mean(axis=0)
    # scipy divides by zero where every block is one tie
    tied = bool((table == table[:, :1]).all())
    statistic, p = (0.0, 1.0) if tied else stats.friedmanchisquare(*table.T)
    q = float(stats.studentized_range.ppf(0.95, methods, np.inf)) / sqrt(2)
    difference = q * sqrt(methods * (methods + 1) / (6 * blocks))
    return Friedman(tuple(map(float, ranks)), float(statistic), float(p), difference)


def win_tie_loss(differences_per_block: Iterable[Paired], alpha: float) -> tuple[int, int, int]:
    """Count the blocks that are won, undecided and lost.

    Args:
        differences_per_block: one per block, positive where the first method is better.
        alpha: level in (0, 1) of the two-sided sign-flip test in a block, not adjusted for the number of blocks.
    """
    win = tie = loss = 0
    for d in differences_per_block:
        if d.two_sided > alpha:
            tie += 1
        elif d.greater < d.less:
            win += 1
        else:
            loss += 1
    return win, tie, loss

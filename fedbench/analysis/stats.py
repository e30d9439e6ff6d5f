"""Statistics of differences: intervals, sign-flip tests, Holm's adjustment, rank correlation.

The functions take arrays and return numbers; none of them uses runs or files.
"""

from collections.abc import (
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from math import (
    copysign,
    inf,
    isfinite,
    isnan,
    sqrt,
)
from statistics import mean, stdev
from typing import TypeVar

import numpy as np

K = TypeVar("K", bound=Hashable)  # what names a pair
ENUMERATED = 16  # number of pairs up to which all sign assignments are enumerated
DRAWS = 65536  # number of random sign assignments drawn for more pairs
# sums that differ by less, as a share of the sum of absolute differences, are equal
ROUNDING = 1e-9


@dataclass(frozen=True)
class Paired:
    """Statistics of paired differences, in the unit of the differences.

    Attributes:
        n: Number of pairs.
        mean: Mean difference.
        low: Lower end of the interval of the mean; None for fewer than two pairs.
        high: Upper end of the interval of the mean; None for fewer than two pairs.
        greater: p-value of the test that the mean is above 0.
        less: p-value of the test that the mean is below 0.
    """

    n: int
    mean: float
    low: float | None
    high: float | None
    greater: float
    less: float

    @property
    def two_sided(self) -> float:
        """p-value of the test that the mean is not 0: twice the smaller of the two, at most 1."""
        return min(1.0, 2 * min(self.greater, self.less))


def interval(
    values: Iterable[float],
    level: float = 0.95,
) -> tuple[float, float] | None:
    """Return Student's t interval of the mean, or None for fewer than two values.

    Args:
        values: Values [n] in any unit, which is also that of the interval; equal values give an
            interval of width 0.
        level: Confidence of the interval, in (0, 1).
    """
    numbers = [float(value) for value in values]
    n = len(numbers)
    if n < 2:
        return None
    from scipy.special import stdtrit  # late: a plan does without it

    # the statistics module rounds once, at the end: equal values have exactly their mean and a
    # spread of 0
    center = mean(numbers)
    spread = stdev(numbers)
    quantile = float(stdtrit(n - 1, (1 + level) / 2))
    half = quantile * spread / sqrt(n)
    return center - half, center + half


def paired(
    differences: Iterable[float],
    level: float = 0.95,
    *,
    scaled: bool = True,
) -> Paired:
    """Return the mean of paired differences, its t interval and the p-values of the sign-flip test.

    If the two sides of a pair are exchangeable, every assignment of signs to the differences is
    equally likely: the p-value is the share of the 2^n assignments whose sum is at least (for
    ``less``: at most) the observed one, which is among them (Fisher, The Design of Experiments,
    1935, Sec. 21). Above 16 pairs it is the share among 65536 assignments from a fixed seed and the
    observed one (Phipson & Smyth, 2010), so that p is never 0.

    Args:
        differences: Finite differences [n], n >= 1.
        level: Confidence of the interval, in (0, 1).
        scaled: Whether the differences have a scale (``has_scale``); without one, a mean other than
            0 is infinite and has no interval.
    """
    numbers = [float(d) for d in differences]
    center = mean(numbers)
    bounds = interval(numbers, level)
    if center and not scaled:
        center = copysign(inf, center)
        bounds = None
    low, high = bounds or (None, None)
    greater, less = _sign_flips(np.array(numbers))
    return Paired(
        len(numbers),
        center,
        low,
        high,
        greater,
        less,
    )


def with_diverged(differences: Mapping[K, float]) -> dict[K, float]:
    """Return paired differences with finite ones for pairs in which a side diverged.

    Leaving these out would favour the method that diverges where training is hard. It is behind by
    the largest absolute difference (the worst-rank score of Lachin, 1999, on the scale of the
    differences), or by 1 if the differences have no scale.

    Args:
        differences: Differences by pair: infinite if one side diverged, NaN if both did; the latter
            are left out.
    """
    finite = [abs(d) for d in differences.values() if isfinite(d)]
    widest = max(finite, default=0.0) or 1.0
    counted = {}
    for pair, difference in differences.items():
        if not isnan(difference):
            counted[pair] = max(-widest, min(widest, difference))
    return counted


def has_scale(differences: Mapping[K, float]) -> bool:
    """Return whether some pair of runs that did not diverge differs."""
    return any(d and isfinite(d) for d in differences.values())


def _sign_flips(d: np.ndarray) -> tuple[float, float]:
    """Return the shares of sign assignments of d [n] by their sums.

    The first is the share with a sum at least the observed one, the second with one at most.
    """
    n = len(d)
    if n <= ENUMERATED:
        signs = every_assignment(n)
    else:
        generator = np.random.default_rng(0)
        drawn = generator.choice([-1.0, 1.0], (DRAWS, n))
        observed_signs = np.ones((1, n))
        signs = np.concatenate([observed_signs, drawn])
    sums = signs @ d
    observed = d.sum()
    slack = ROUNDING * np.abs(d).sum()
    greater = np.mean(sums >= observed - slack)
    less = np.mean(sums <= observed + slack)
    return float(greater), float(less)


def every_assignment(n: int) -> np.ndarray:
    """Return every assignment of signs to n pairs [2^n, n], as 1 and -1.

    The first one changes no sign.
    """
    numbers = np.arange(2**n)[:, None]
    bits = numbers >> np.arange(n) & 1
    return (1 - 2 * bits).astype(np.int8)


def least_p(n: int) -> float:
    """Return the smallest one-sided p-value of ``paired`` for n pairs.

    It is 2^-n, or the resolution of the random draws.
    """
    return 2.0**-n if n <= ENUMERATED else 1 / (DRAWS + 1)


def least_blocks(tests: int, alpha: float) -> int | None:
    """Return the least number of pairs at which a one-sided p, times some tests, can be alpha.

    A two-sided test counts as two. A claim can hold with ``least_blocks(1, alpha)`` blocks, as
    every comparison is tested by itself; one of m comparisons is sure to refute it, by leads of one
    sign and whatever the others are, with ``least_blocks(m, alpha)``. None: no number is enough,
    since p is limited by the random draws above 16 pairs.
    """
    for n in range(1, ENUMERATED + 1):
        if tests * least_p(n) <= alpha:
            return n
    return None


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted by Holm's step-down method (Holm, 1979), in the given order.

    Rejecting the hypotheses with an adjusted p of at most α keeps the probability of any wrong
    rejection at α, however the tests depend on each other. There may be no p-values.
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    factors = np.arange(len(p), 0, -1)
    increasing = np.maximum.accumulate(factors * p[order])
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, increasing)
    return [float(value) for value in adjusted]


def kendall(values: Sequence[float]) -> float:
    """Return the rank correlation of values [n] with their order, in [-1, 1].

    It is tau-a (Kendall, 1938).

    It is the share of the pairs in which the later value is larger, minus the share in which it is
    smaller. Infinite values count as the largest or the smallest. n is at least 2.
    """
    _, ranks = np.unique(values, return_inverse=True)
    first, second = np.triu_indices(len(ranks), 1)
    signs = np.sign(ranks[second] - ranks[first])
    return float(np.mean(signs))

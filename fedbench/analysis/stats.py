"""Statistics of differences: intervals, sign-flip tests, Holm's adjustment, rank correlation.

The functions work on numbers alone and use neither runs nor files.
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

K = TypeVar("K", bound=Hashable)  # identifies a pair
ENUMERATED = 16  # maximum number of pairs for which all sign assignments are enumerated
DRAWS = 65536  # number of random sign assignments that are drawn for more pairs
# sums that differ by less than this share of the sum of absolute differences are equal
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
        """p-value for a mean other than 0: twice the smaller one-sided p-value, at most 1."""
        return min(1.0, 2 * min(self.greater, self.less))


def interval(
    values: Iterable[float],
    level: float = 0.95,
) -> tuple[float, float] | None:
    """Return Student's t interval of the mean, or None for fewer than two values.

    Args:
        values: Values [n]; the interval has the same unit. Equal values give an interval of width
            0.
        level: Confidence level of the interval, in (0, 1).
    """
    numbers = [float(value) for value in values]
    n = len(numbers)
    if n < 2:
        return None
    from scipy.special import stdtrit  # imported late: a plan does not need it

    # the statistics module rounds only once, at the end: for equal values the mean is exact and
    # the spread is 0
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
    equally likely: the p-value is the share of the 2^n assignments, including the observed one,
    whose sum is at least (for ``less``: at most) the observed sum (Fisher, The Design of
    Experiments, 1935, Sec. 21). For more than 16 pairs it is the share among the observed
    assignment and 65536 assignments drawn from a fixed seed (Phipson & Smyth, 2010), so p is never
    0.

    Args:
        differences: Finite differences [n], n >= 1.
        level: Confidence level of the interval, in (0, 1).
        scaled: Whether the differences have a scale (``has_scale``). Without a scale, a mean other
            than 0 is infinite and has no interval.
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
    """Return paired differences in which pairs with one diverged side have finite values.

    Leaving these pairs out would favour a method that diverges where training is hard. Instead, the
    diverged side is behind by the largest absolute difference (the worst-rank score of Lachin,
    1999, on the scale of the differences), or by 1 if the differences have no scale.

    Args:
        differences: Differences by pair: infinite if one side diverged, NaN if both sides diverged.
            NaN differences are left out.
    """
    finite = [abs(d) for d in differences.values() if isfinite(d)]
    widest = max(finite, default=0.0) or 1.0
    counted = {}
    for pair, difference in differences.items():
        if not isnan(difference):
            counted[pair] = max(-widest, min(widest, difference))
    return counted


def has_scale(differences: Mapping[K, float]) -> bool:
    """Return whether any pair without divergence has a difference other than 0."""
    return any(d and isfinite(d) for d in differences.values())


def _sign_flips(d: np.ndarray) -> tuple[float, float]:
    """Return the shares of sign assignments whose sums are at least and at most the observed sum.

    Args:
        d: The differences [n].
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
    """Return all assignments of signs to n pairs [2^n, n], as 1 and -1.

    The first assignment changes no sign.
    """
    numbers = np.arange(2**n)[:, None]
    bits = numbers >> np.arange(n) & 1
    return (1 - 2 * bits).astype(np.int8)


def least_p(n: int) -> float:
    """Return the smallest one-sided p-value of ``paired`` for n pairs.

    It is 2^-n, or for more than 16 pairs the resolution of the random draws.
    """
    return 2.0**-n if n <= ENUMERATED else 1 / (DRAWS + 1)


def least_blocks(tests: int, alpha: float) -> int | None:
    """Return the smallest number of pairs for which a one-sided p times ``tests`` can reach alpha.

    A two-sided test counts as two. A claim can hold with ``least_blocks(1, alpha)`` blocks, because
    each comparison is tested on its own. With ``least_blocks(m, alpha)`` blocks, one of m
    comparisons whose leads all have the same sign is sure to refute it, whatever the results of the
    others. The result is None if no number is enough, because the random draws limit p for more
    than 16 pairs.
    """
    for n in range(1, ENUMERATED + 1):
        if tests * least_p(n) <= alpha:
            return n
    return None


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted by Holm's step-down method (Holm, 1979), in the given order.

    Rejecting the hypotheses with an adjusted p of at most α limits the probability of any wrong
    rejection to α, however the tests depend on each other. The list may be empty.
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    factors = np.arange(len(p), 0, -1)
    increasing = np.maximum.accumulate(factors * p[order])
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, increasing)
    return [float(value) for value in adjusted]


def kendall(values: Sequence[float]) -> float:
    """Return the rank correlation (tau-a, Kendall, 1938) of values with their order, in [-1, 1].

    It is the share of the pairs in which the later value is larger, minus the share in which it is
    smaller.

    Args:
        values: Values [n], n >= 2. Infinite values count as the largest or the smallest.
    """
    _, ranks = np.unique(values, return_inverse=True)
    first, second = np.triu_indices(len(ranks), 1)
    signs = np.sign(ranks[second] - ranks[first])
    return float(np.mean(signs))

"""Sign-flip tests of several comparisons at a time: a step-down over joint sign flips (Westfall and Young, 1993).

The blocks are flipped as a whole: one assignment of signs turns the differences of all comparisons in a block, so that
the dependence between comparisons (of the same seeds, of the same baseline) is that of the data. Each comparison is
measured by its own sign-flip p-value under the assignment, and equal p-values by Σd / √Σd², the larger the more
extreme. docs/adr/0013 gives the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from fedbench.analysis.stats import CHUNK, DRAWS, ENUMERATED, ROUNDING

_TIE = 0.25  # share of a count by which Σd / √Σd² orders equal counts: less than half, so that counts go first


@dataclass(frozen=True)
class Leads:
    """Leads of one side over the other; the test is that their mean is above 0.

    Attributes:
        by_block: Finite leads by block.
    """

    by_block: Mapping[int, float]


@dataclass(frozen=True)
class Several:
    """A statement about several comparisons.

    Attributes:
        parts: What it consists of, at least one part.
        every: Whether all parts must be shown (the largest p-value counts) or one of them is enough (the smallest
            counts, times their number).
    """

    parts: tuple[Test, ...]
    every: bool


Test = Leads | Several


def adjusted(tests: Sequence[Test]) -> list[float]:
    """Return the p-values of tests, adjusted for their number by the step-down procedure, in the given order.

    Rejecting the tests with an adjusted p of at most α keeps the probability of any wrong rejection at α, if the leads
    of a block are as likely as their negatives where nothing is ahead. No adjusted p is above Holm's for tests of
    ``Leads`` (Westfall & Young, Resampling-based multiple testing, 1993, Sec. 2.6 and Algorithm 2.8). Up to 16
    blocks in all, every assignment of signs is enumerated, above it 65536 are drawn from a fixed seed and the observed
    one is added. The memory does not grow with the number of tests.
    """
    if not tests:
        return []
    flips = _Flips({block for test in tests for block in _blocks(test)})
    observed = [flips.observed(test) for test in tests]
    order = sorted(range(len(tests)), key=lambda i: observed[i])
    lowest = np.full(flips.number, np.inf)
    found = [0.0] * len(tests)
    for i in reversed(order):
        lowest = np.minimum(lowest, flips.ranks(tests[i]))
        found[i] = float(np.mean(lowest <= observed[i] + ROUNDING))
    highest = 0.0
    for i in order:
        highest = found[i] = max(highest, found[i])
    return found


def negated(test: Test) -> Test:
    """Return the test that the other side is ahead: where all parts had to be shown, one is enough, and vice versa."""
    if isinstance(test, Leads):
        return Leads({block: -lead for block, lead in test.by_block.items()})
    return Several(tuple(map(negated, test.parts)), not test.every)


def _blocks(test: Test) -> Iterable[int]:
    if isinstance(test, Leads):
        return test.by_block
    return [block for part in test.parts for block in _blocks(part)]


class _Flips:
    """Assignments of signs to blocks; the first one is the observed one, without a change of sign."""

    def __init__(self, blocks: set[int]) -> None:
        self._columns = {block: i for i, block in enumerate(sorted(blocks))}
        self._signs = _assignments(len(blocks))
        self.number = len(self._signs)

    def ranks(self, test: Test) -> np.ndarray:
        """Return how extreme a test is under each assignment [assignments]: lower is more extreme.

        For leads it is the number of assignments whose sum is at least as large. For several parts it is the most
        extreme of them, times their number where one is enough: where all must be shown, any single one may be the one
        that is not true, so that only this bound holds whichever it is.
        """
        if isinstance(test, Several):
            counts = np.rint(np.min([self.ranks(part) for part in test.parts], axis=0))
            bounded: np.ndarray = np.minimum(self.number, counts * (1 if test.every else len(test.parts))) - _TIE
            return bounded
        sums, slack = self._sums(test)
        counts = self.number - np.searchsorted(np.sort(sums), sums - slack, side="left")
        ranks: np.ndarray = counts - _TIE * sums / self._scale(test)
        return ranks

    def observed(self, test: Test) -> float:
        """Return how extreme a test is as observed, on the scale of ``ranks``."""
        if isinstance(test, Leads):
            sums, slack = self._sums(test)
            return float(np.count_nonzero(sums >= sums[0] - slack) - _TIE * sums[0] / self._scale(test))
        counts = [float(np.rint(self.observed(part))) for part in test.parts]
        combined = max(counts) if test.every else min(float(self.number), len(counts) * min(counts))
        return combined + _TIE

    def _sums(self, test: Leads) -> tuple[np.ndarray, float]:
        """Return the sums of leads under all assignments, and by how much equal sums may differ from rounding."""
        columns, leads = [self._columns[block] for block in test.by_block], np.array(list(test.by_block.values()))
        parts = (self._signs[at : at + CHUNK, columns].astype(float) for at in range(0, self.number, CHUNK))
        return np.concatenate([signs @ leads for signs in parts]), ROUNDING * float(np.abs(leads).sum())

    def _scale(self, test: Leads) -> float:
        """Return √(blocks Σd²), the largest sum that leads with this Σd² can have; 1 if all are 0."""
        return sqrt(len(self._columns) * sum(lead**2 for lead in test.by_block.values())) or 1.0


def _assignments(blocks: int) -> np.ndarray:
    """Return assignments of signs [assignments, blocks] as 1 and -1, the first one without a change of sign."""
    if blocks <= ENUMERATED:
        bits = np.arange(2**blocks)[:, None] >> np.arange(blocks) & 1
        return (1 - 2 * bits).astype(np.int8)
    drawn = np.random.default_rng(0).integers(0, 2, (DRAWS, blocks), dtype=np.int8)
    return np.concatenate([np.ones((1, blocks), np.int8), 1 - 2 * drawn])

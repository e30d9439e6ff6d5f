"""Sign-flip tests of several comparisons at a time: a step-down over joint sign flips (Westfall and Young, 1993).

The blocks are flipped as a whole: one assignment of signs turns the differences of all comparisons in a block, so that
the dependence between comparisons (of the same seeds, of the same baseline) is that of the data. Each comparison is
measured by its own sign-flip p-value under the assignment, and equal p-values by Σd / √Σd², the larger the more
extreme. docs/adr/0013 gives the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from fedbench.analysis.claims.comparison import Comparison
from fedbench.analysis.stats import CHUNK, DRAWS, ENUMERATED, ROUNDING

_TIE = 0.25  # share of a count by which Σd / √Σd² orders equal counts: less than half, so that counts go first


def adjusted(tests: Sequence[Comparison], *, ahead: bool = True) -> list[float]:
    """Return the p-values of comparisons, adjusted for their number by the step-down procedure, in the given order.

    Args:
        tests: The comparisons, all of them run.
        ahead: Whether the test is that the first side is ahead, or that it is behind: of several parts that must all be
            ahead, one that is behind is enough, and vice versa.

    Rejecting the tests with an adjusted p of at most α keeps the probability of any wrong rejection at α, if the leads
    of a block are as likely as their negatives where nothing is ahead. No adjusted p is above Holm's for tests of
    single comparisons (Westfall & Young, Resampling-based multiple testing, 1993, Sec. 2.6 and Algorithm 2.8). Up to 16
    blocks in all, every assignment of signs is enumerated, above it 65536 are drawn from a fixed seed and the observed
    one is added. The memory does not grow with the number of tests.
    """
    if not tests:
        return []
    flips = _Flips(tests, ahead)
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


class _Flips:
    """Assignments of signs to blocks; the first one is the observed one, without a change of sign.

    Args:
        tests: The comparisons.
        ahead: As for ``adjusted``.
    """

    def __init__(self, tests: Sequence[Comparison], ahead: bool) -> None:
        blocks = sorted({block for test in tests for block in test.every_block})
        self._columns = {block: i for i, block in enumerate(blocks)}
        self._signs = _assignments(len(blocks))
        self._ahead = ahead
        self.number = len(self._signs)

    def ranks(self, test: Comparison) -> np.ndarray:
        """Return how extreme a test is under each assignment [assignments]: lower is more extreme.

        For a single comparison it is the number of assignments whose sum is at least as large. For several parts it is
        the most extreme of them, times their number where one is enough: where all must be shown, any single one may be
        the one that is not true, so that only this bound holds whichever it is.
        """
        if parts := test.run_parts:
            counts = np.rint(np.min([self.ranks(part) for part in parts], axis=0))
            times = 1 if test.every == self._ahead else len(parts)
            bounded: np.ndarray = np.minimum(self.number, counts * times) - _TIE
            return bounded
        sums, slack = self._sums(test)
        counts = self.number - np.searchsorted(np.sort(sums), sums - slack, side="left")
        ranks: np.ndarray = counts - _TIE * sums / self._scale(test)
        return ranks

    def observed(self, test: Comparison) -> float:
        """Return how extreme a test is as observed, on the scale of ``ranks``."""
        if parts := test.run_parts:
            counts = [float(np.rint(self.observed(part))) for part in parts]
            every = test.every == self._ahead
            combined = max(counts) if every else min(float(self.number), len(counts) * min(counts))
            return combined + _TIE
        sums, slack = self._sums(test)
        return float(np.count_nonzero(sums >= sums[0] - slack) - _TIE * sums[0] / self._scale(test))

    def _sums(self, test: Comparison) -> tuple[np.ndarray, float]:
        """Return the sums of leads under all assignments, and by how much equal sums may differ from rounding."""
        columns = [self._columns[block] for block in test.differences]
        leads = np.array(list(test.differences.values())) * (1 if self._ahead else -1)
        parts = (self._signs[at : at + CHUNK, columns].astype(float) for at in range(0, self.number, CHUNK))
        return np.concatenate([signs @ leads for signs in parts]), ROUNDING * float(np.abs(leads).sum())

    def _scale(self, test: Comparison) -> float:
        """Return √(blocks Σd²), the largest sum that leads with this Σd² can have; 1 if all are 0."""
        return sqrt(len(self._columns) * sum(lead**2 for lead in test.differences.values())) or 1.0


def _assignments(blocks: int) -> np.ndarray:
    """Return assignments of signs [assignments, blocks] as 1 and -1, the first one without a change of sign."""
    if blocks <= ENUMERATED:
        bits = np.arange(2**blocks)[:, None] >> np.arange(blocks) & 1
        return (1 - 2 * bits).astype(np.int8)
    drawn = np.random.default_rng(0).integers(0, 2, (DRAWS, blocks), dtype=np.int8)
    return np.concatenate([np.ones((1, blocks), np.int8), 1 - 2 * drawn])

"""Simultaneous sign-flip tests of several comparisons: a step-down over joint sign flips.

The procedure is that of Westfall and Young (1993). Blocks are flipped as a whole: an assignment
gives the differences of all comparisons in a block the same sign change. This preserves the
dependence between comparisons (through common seeds and baselines) in the data. Under each
assignment, a comparison is measured by its own sign-flip p-value; ties are ordered by Σd / √Σd²,
where larger values are more extreme. docs/adr/0013 gives the reasons.
"""

from collections.abc import Sequence
from math import sqrt

import numpy as np

from fedbench.analysis.claims.comparison import Comparison
from fedbench.analysis.stats import (
    DRAWS,
    ENUMERATED,
    ROUNDING,
    every_assignment,
)

# weight of Σd / √Σd² in ordering equal counts: less than half, so that counts take precedence
_TIE = 0.25


def adjusted(tests: Sequence[Comparison], *, ahead: bool = True) -> list[float]:
    """Return the p-values of comparisons, adjusted for their number, in the given order.

    Args:
        tests: The comparisons; all of them must have been run.
        ahead: Whether to test that the first side is ahead, rather than behind. If being ahead
            requires all of several parts, being behind requires only one, and vice versa.

    Rejecting the tests with an adjusted p of at most α limits the probability of any wrong
    rejection to α, provided that under the null hypothesis the leads of a block are as likely as
    their negatives. For tests of single comparisons, no adjusted p exceeds Holm's (Westfall &
    Young, Resampling-based multiple testing, 1993, Sec. 2.6 and Algorithm 2.8). For up to 16 blocks
    in total, all assignments of signs are enumerated. For more blocks, 65536 assignments are drawn
    from a fixed seed and the observed one is added. Memory use does not grow with the number of
    tests.
    """
    if not tests:
        return []
    flips = _Flips(tests, ahead)
    observed = np.array([flips.observed(test) for test in tests])
    order = np.argsort(observed, kind="stable")
    lowest = np.full(flips.number, np.inf)
    p_values = np.empty(len(tests))
    for i in reversed(order):
        lowest = np.minimum(lowest, flips.ranks(tests[i]))
        as_extreme = lowest <= observed[i] + ROUNDING
        p_values[i] = np.mean(as_extreme)
    p_values[order] = np.maximum.accumulate(p_values[order])
    return [float(p) for p in p_values]


class _Flips:
    """Assignments of signs to blocks; the first is the observed one and changes no sign.

    Args:
        tests: The comparisons.
        ahead: As for ``adjusted``.
    """

    def __init__(
        self,
        tests: Sequence[Comparison],
        ahead: bool,
    ) -> None:
        blocks = sorted({block for test in tests for block in test.every_block})
        self._columns = {block: i for i, block in enumerate(blocks)}
        self._signs = _assignments(len(blocks))
        self._ahead = ahead
        self.number = len(self._signs)

    def ranks(self, test: Comparison) -> np.ndarray:
        """Return the rank of a test under each assignment [assignments]; lower is more extreme.

        The rank of a single comparison is the number of assignments that give at least as large a
        sum. The rank of several parts is that of the most extreme part, times the number of parts
        if one part is enough. If all parts must be shown, any part may be the only false one; this
        bound holds whichever part it is.
        """
        ranks: np.ndarray
        if test.parts:
            of_parts = [self.ranks(part) for part in test.parts]
            counts = np.rint(np.min(of_parts, axis=0))
            factor = test.factor(self._ahead)
            ranks = np.minimum(self.number, counts * factor) - _TIE
            return ranks

        leads = np.array(list(test.differences.values()))
        if not self._ahead:
            leads = -leads
        columns = [self._columns[block] for block in test.differences]
        sums = self._signs[:, columns] @ leads
        slack = ROUNDING * float(np.abs(leads).sum())  # rounding difference between equal sums
        smaller = np.searchsorted(np.sort(sums), sums - slack)
        # the largest possible sum of leads with this Σd²; 1 if all leads are 0
        scale = sqrt(len(self._columns) * float(np.sum(leads**2))) or 1.0
        ranks = self.number - smaller - _TIE * sums / scale
        return ranks

    def observed(self, test: Comparison) -> float:
        """Return the observed rank of a test, on the scale of ``ranks``."""
        if not test.parts:
            return float(self.ranks(test)[0])
        counts = [float(np.rint(self.observed(part))) for part in test.parts]
        decisive = max(counts) if test.every == self._ahead else min(counts)
        return min(self.number, decisive * test.factor(self._ahead)) + _TIE


def _assignments(blocks: int) -> np.ndarray:
    """Return all or randomly drawn assignments of signs to blocks [assignments, blocks]."""
    if blocks <= ENUMERATED:
        return every_assignment(blocks)
    unchanged = np.zeros((1, blocks), np.int8)
    generator = np.random.default_rng(0)
    drawn = generator.integers(
        0,
        2,
        (DRAWS, blocks),
        dtype=np.int8,
    )
    signs: np.ndarray = 1 - 2 * np.concatenate([unchanged, drawn])
    return signs

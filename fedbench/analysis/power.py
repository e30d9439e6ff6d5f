"""How many blocks (training seeds or splits of the data) would decide a claim, before anything is run.

For each comparison of a claim, the size of the difference is that of the paper's printed numbers, and its spread over
blocks is the standard deviation of the paired differences measured so far; without such runs it comes from the printed
±, as that of two independent samples. The question is how many blocks the one-sided sign-flip test needs to find such
a difference with a chance of 80 % (``blocks_needed``).

A claim holds if all its comparisons are significant, so that the comparison that needs most decides; if a printed
number is level or points against the claim, no number of blocks is enough as long as the printed differences are the
true ones. It fails if one is significant in the other direction after adjustment for their number m (here with level
α/m, which is Bonferroni's and not less than what the step-down procedure needs), so that the one that needs fewest
decides, if differences of the printed size point against the claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, stdev

from fedbench.analysis.claims.comparison import Comparison
from fedbench.analysis.claims.judge import comparisons_of
from fedbench.analysis.claims.verdict import ALPHA
from fedbench.analysis.matching import Evidence, MatchedRuns, Unit
from fedbench.papers.registry import Claim, Paper, PrintedMetric, Row

POWER = 0.8  # chance of a decision
_MOST = 10_000  # blocks; more are not worth a number
_NORMAL = NormalDist()
_ATTAINED = 30  # blocks from which the level that the test attains is that of the request
_STEPS, _END = 60, 7.5  # of the numerical integration: an even number of steps, and its upper end


@dataclass(frozen=True)
class Needed:
    """The number of blocks that would decide a claim.

    Attributes:
        holds: Blocks for ``holds`` if the differences are those printed; None if unknown or above 10,000, or never.
        fails: Blocks for ``fails`` if they are as large and against the claim; likewise.
        comparisons: Number of comparisons.
        measured: Comparisons whose spread was measured.
        printed: Comparisons whose spread is taken from the printed ±.
        rows: Rows of the paper whose numbers are compared.
        never: Whether the claim cannot hold if the differences are those printed: a lead that it takes is not above 0.
    """

    holds: int | None
    fails: int | None
    comparisons: int
    measured: int
    printed: int
    rows: tuple[Row, ...]
    never: bool = False

    @property
    def unknown(self) -> int:
        """Number of comparisons without a printed difference or a spread."""
        return self.comparisons - self.measured - self.printed


def needed(paper: Paper, claim: Claim, evidence: Evidence) -> Needed | None:
    """Return how many blocks would decide a claim, or None if it is not decided by comparisons.

    Args:
        paper: The paper.
        claim: The claim.
        evidence: The runs so far, which may be none.
    """
    asked = _Printed()
    printed = comparisons_of(paper, claim, asked)
    if not printed:
        return None
    raised = [comparisons_of(paper, claim, _Printed(side)) for side in range(asked.sides)]
    # without printed differences nothing is known, whatever the runs are
    known = any(c.differences or c.parts for c in printed)
    measured = comparisons_of(paper, claim, evidence) if known else printed
    pairs = [_pair(p, m, others) for p, m, *others in zip(printed, measured, *raised, strict=True)]
    leaves = [leaf for pair in pairs for leaf in pair.leaves]
    holds = [n for pair in pairs if (n := pair.holds(ALPHA)) is not None]
    fails = [n for pair in pairs if (n := pair.fails(ALPHA / len(pairs))) is not None]
    return Needed(
        _within(max(holds, default=None)),
        _within(min(fails, default=None)),
        len(leaves),
        sum(leaf.source == "runs" for leaf in leaves),
        sum(leaf.source == "print" for leaf in leaves),
        tuple(asked.rows),
        math.inf in holds,
    )


def compared(paper: Paper, claim: Claim) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Return the rows of the paper whose runs a claim compares, and the setup of each comparison.

    Args:
        paper: The paper.
        claim: The claim.

    Returns:
        The rows; and for each comparison the title of the setup that it belongs to, or of several.
    """
    asked = _Printed()
    comparisons = comparisons_of(paper, claim, asked)
    return tuple(asked.rows), tuple(c.group for c in comparisons)


def enough(comparisons: int) -> int:
    """Return the blocks with which a claim can both hold and be sure to fail: at least 5, and m 2^-n at most 0.05."""
    return max(math.ceil(-math.log2(ALPHA)), math.ceil(math.log2(comparisons / ALPHA) - 1e-12))


def _within(blocks: float | None) -> int | None:
    return None if blocks is None or blocks > _MOST else int(blocks)


# ---- differences and their spread


@dataclass(frozen=True)
class _Pair:
    """A comparison of printed numbers with the measured one: a single difference, or parts of which all or one count.

    Attributes:
        lead: Printed lead of the first side, in any unit; None if it is unknown.
        effect: Absolute printed difference in units of its spread; None if one of them is unknown.
        source: Source of the spread: ``runs``, ``print``, or empty if the effect is unknown.
    """

    lead: float | None = None
    effect: float | None = None
    source: str = ""
    parts: tuple[_Pair, ...] = ()
    every: bool = True

    @property
    def leaves(self) -> Iterator[_Pair]:
        """The single differences."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves

    def holds(self, alpha: float) -> float | None:
        """Return the blocks that show the difference, infinitely many if it is level or points the other way."""
        if not self.parts:
            return math.inf if self.lead is not None and self.lead <= 0 else self._shown(alpha)
        found = [part.holds(alpha if self.every else alpha / len(self.parts)) for part in self.parts]
        if self.every or None not in found:
            return _of_known(found, self.every)
        # a part without a number may be the one that is ahead
        return _of_known([None if n == math.inf else n for n in found], self.every)

    def fails(self, alpha: float) -> float | None:
        """Return the blocks that show a difference of this size against the statement."""
        if not self.parts:
            return self._shown(alpha)
        found = [part.fails(alpha / len(self.parts) if self.every else alpha) for part in self.parts]
        return _of_known(found, not self.every)

    def _shown(self, alpha: float) -> int | None:
        return None if self.effect is None else blocks_needed(self.effect, alpha)


def _of_known(blocks: Sequence[float | None], every: bool) -> float | None:
    known = [n for n in blocks if n is not None]
    return (max if every else min)(known, default=None)


def _pair(printed: Comparison, measured: Comparison, raised: Sequence[Comparison]) -> _Pair:
    if printed.parts:
        count = len(printed.parts)
        parts = zip(*(_parts(c, count) for c in (printed, measured, *raised)), strict=True)
        return _Pair(parts=tuple(_pair(p, m, others) for p, m, *others in parts), every=printed.every)
    difference, spread, source = printed.differences.get(0), _printed_spread(printed, raised), "print"
    if len(measured.differences) > 1:
        spread, source = stdev(measured.differences.values()), "runs"
    if difference is None or spread is None:
        return _Pair(difference)
    if not spread:
        return _Pair(difference, math.inf if difference else 0.0, source)
    return _Pair(difference, abs(difference) / spread, source)


def _parts(comparison: Comparison, count: int) -> Sequence[Comparison]:
    """Return the parts of a comparison; without any, none of them has numbers."""
    return comparison.parts or (Comparison(""),) * count


def _printed_spread(printed: Comparison, raised: Sequence[Comparison]) -> float | None:
    """Return the spread of a difference from the changes that the printed ± of each side makes."""
    if not raised or not all(0 in c.differences for c in (printed, *raised)):
        return None
    return math.sqrt(sum((c.differences[0] - printed.differences[0]) ** 2 for c in raised))


class _Printed(Evidence):
    """The printed numbers of a paper in place of runs, all with seed 0.

    Args:
        raised: The side of each comparison whose number is raised by its printed ±; numbers without ± are then missing.
            None for the numbers as printed.

    Attributes:
        rows: The rows that were asked for.
        sides: The largest number of rows that were asked for at a time, where any has a printed ±.
    """

    def __init__(self, raised: int | None = None) -> None:
        super().__init__([])
        self.raised = raised
        self.rows: list[Row] = []
        self.sides = 0

    def find(self, paper: Paper, row: Row) -> MatchedRuns:
        """Return the printed numbers of a row."""
        return self.comparable(paper, [row])[0]

    def comparable(self, paper: Paper, rows: Sequence[Row]) -> list[MatchedRuns]:
        """Return the printed numbers of rows."""
        self.rows += [row for row in rows if not any(row is known for known in self.rows)]
        if any(reported.std is not None for row in rows for reported in row.values.values()):
            self.sides = max(self.sides, len(rows))
        titles = [paper.setups[row.setup].title for row in rows]
        raised = [None if self.raised is None else self.raised == side for side in range(len(rows))]
        return [_PrintedRow({}, setup=t, row=row, raised=up) for t, row, up in zip(titles, rows, raised, strict=True)]


@dataclass(frozen=True)
class _PrintedRow(MatchedRuns):
    row: Row | None = None
    raised: bool | None = None

    def values(self, metric: PrintedMetric, which: str = "last") -> dict[Unit, float]:
        """Return the printed number of a metric."""
        reported = None if self.row is None else self.row.values.get(metric.id)
        if reported is None or (self.raised is not None and reported.std is None):
            return {}
        return {Unit(0, 0): reported.mean + (reported.std or 0.0 if self.raised else 0.0)}


# ---- the test


@cache
def blocks_needed(effect: float, alpha: float, power: float = POWER) -> int:
    """Return the smallest number of blocks at which the one-sided sign-flip test has a power; 10,001 if none has.

    The differences are normal with a mean of ``effect`` standard deviations. The power is exact while the test rejects
    for at most three of the 2^n assignments of signs (5 and 6 blocks at 5 %), and otherwise that of the t test at the
    level that the sign-flip test attains, ⌊α 2^n⌋ / 2^n, in the approximation of Guenther (1981).

    Args:
        effect: Mean difference in standard deviations, at least 0.
        alpha: Level of the test, in (0, 1).
        power: Chance of a rejection, in (0, 1).
    """
    if effect <= 0:
        return _MOST + 1
    first = max(1, math.ceil(-math.log2(alpha) - 1e-12))  # with fewer blocks, no p-value is small enough
    found = next((n for n in range(first, _ATTAINED) if _reaches(n, effect, alpha, power)), None)
    return found or min(_MOST + 1, max(first, _ATTAINED, math.ceil(_approximate(effect, alpha, power))))


def _reaches(n: int, effect: float, alpha: float, power: float) -> bool:
    rejected = math.floor(alpha * 2**n + 1e-9)
    if rejected <= 3:
        return exact_power(n, effect, rejected) >= power
    return n >= _approximate(effect, rejected / 2**n, power)


def _approximate(effect: float, level: float, power: float) -> float:
    one, two = _NORMAL.inv_cdf(1 - level), _NORMAL.inv_cdf(power)
    return ((one + two) / effect) ** 2 + one**2 / 2


def exact_power(n: int, effect: float, rejected: int) -> float:
    """Return the power of the sign-flip test of n normal differences that rejects for few assignments of signs.

    The assignment with the largest sum has no negative sign, the second one only that of the smallest absolute
    difference, and the third one only that of the second smallest. The test rejects if the observed signs are among the
    first ``rejected`` of these, 0 to 3.
    """
    if math.isinf(effect):
        return float(rejected > 0)
    above = _NORMAL.cdf(effect)  # that a difference is positive
    terms = [
        above**n,
        n * _integral(lambda x: _NORMAL.pdf(x + effect) * _NORMAL.cdf(effect - x) ** (n - 1)),
    ]
    if n > 1:
        terms.append(
            n
            * (n - 1)
            * _integral(
                lambda x: (
                    _NORMAL.pdf(x + effect) * (above - _NORMAL.cdf(effect - x)) * _NORMAL.cdf(effect - x) ** (n - 2)
                )
            )
        )
    return sum(terms[:rejected])


def _integral(function: Callable[[float], float]) -> float:
    """Return the integral of a function that vanishes from 7.5 on, from 0, by Simpson's rule."""
    width = _END / _STEPS
    weights = [1, *(4 if i % 2 else 2 for i in range(1, _STEPS)), 1]
    return width / 3 * math.fsum(w * function(i * width) for i, w in enumerate(weights))

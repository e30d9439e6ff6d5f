"""Comparisons of settings over their common blocks: training seeds, or splits of the data.

All p-values are one-sided.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import (
    asdict,
    dataclass,
    field,
    replace,
)
from itertools import chain
from typing import Literal, TypeVar

from fedbench.analysis.departures import PerUnit, Unit, by_block
from fedbench.analysis.matching import ALPHA, MatchedRuns
from fedbench.analysis.stats import has_scale, paired, with_diverged

T = TypeVar("T")
RATIO = "log ratio"  # unit of leads that are natural logarithms of ratios


@dataclass(frozen=True)
class Comparison:
    """A statement that one number is above another, tested over blocks.

    Attributes:
        label: Description of the comparison.
        mean: Mean lead of the first side; infinite if only diverged runs make a difference; None if
            a side has not been run.
        greater: p-value of the test that the first side is ahead; None if a side has not been run.
        less: p-value of the test that the first side is behind; None if a side has not been run.
        n: Number of blocks.
        reduced: Departures of the sides' settings from the paper's; empty if there are none.
        retuned: Whether values of a row were found by a search with fedbench.
        untuned: Whether some rows were tuned with fedbench and others were not.
        uneven: Whether the sides are reduced in different ways and thus cannot be compared.
        group: Title of the setup, or titles of both setups.
        blocks: Kind of the blocks, ``seed`` or ``split``.
        differences: Lead of the first side by block, including diverged runs.
        low: Lower end of the 95 % interval of the mean; None for fewer than two blocks.
        high: Upper end of the 95 % interval of the mean; None for fewer than two blocks.
        for_p: p-value of the test that the first side is ahead, adjusted for the claim's
            comparisons; None if the comparison has not been judged or has not been run.
        against_p: The same for the first side being behind.
        parts: Partial comparisons; the comparison takes its numbers from the decisive part.
        every: Whether all parts must be shown; otherwise one is enough.
        unit: Unit of the leads; empty for plain numbers, or if the parts have different units.
        alpha: Level of the tests.
    """

    label: str
    mean: float | None = None
    greater: float | None = None
    less: float | None = None
    n: int = 0
    reduced: tuple[str, ...] = ()
    retuned: bool = False
    untuned: bool = False
    uneven: bool = False
    group: str = ""
    blocks: Literal["seed", "split"] = "seed"
    differences: Mapping[int, float] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    for_p: float | None = None
    against_p: float | None = None
    parts: tuple[Comparison, ...] = ()
    every: bool = True
    unit: str = ""
    alpha: float = ALPHA

    @property
    def complete(self) -> bool:
        """Whether the comparison and all its parts have been run; only then does it count."""
        return self.mean is not None and all(part.complete for part in self.parts)

    @property
    def state(self) -> Literal["shown", "refuted", "open", "not run"]:
        """Result according to the adjusted p-values."""
        if self.for_p is None or self.against_p is None:
            return "not run"
        if self.for_p <= self.alpha:
            return "shown"
        return "refuted" if self.against_p <= self.alpha else "open"

    def blank(self) -> Comparison:
        """Return the comparison without numbers, as if it had not been run."""
        return Comparison(
            self.label,
            uneven=self.uneven,
            group=self.group,
            unit=self.unit,
            alpha=self.alpha,
        )

    @property
    def every_block(self) -> set[int]:
        """The blocks of the differences, including those of the parts."""
        blocks = set(self.differences)
        for part in self.parts:
            blocks |= part.every_block
        return blocks

    @property
    def fewest(self) -> int:
        """Number of blocks (the smallest number over all parts); 0 if a part has not been run."""
        return min((part.fewest for part in self.parts), default=self.n)

    def factor(self, ahead: bool) -> int:
        """Return the factor for the most extreme part: the number of parts if one is enough.

        Args:
            ahead: Whether the test is for being ahead rather than behind.
        """
        return 1 if self.every == ahead else len(self.parts)

    def chances(self, ahead: bool) -> int:
        """Return the factor by which the smallest attainable p-value is multiplied.

        Args:
            ahead: Whether the test is for being ahead rather than behind.
        """
        of_parts = [part.chances(ahead) for part in self.parts]
        most = max(of_parts, default=1)
        return most * max(1, self.factor(ahead))

    @property
    def strength(self) -> float:
        """Σd / √Σd² of the differences d, used to order equal p-values; 0 if all d are 0."""
        differences = self.differences.values()
        scale = math.hypot(*differences) or 1.0
        return sum(differences) / scale


# ---- numbers by unit


def aligned(*numbers: Mapping[Unit, T]) -> dict[Unit, list[T]]:
    """Return the numbers of each unit that all mappings contain, in order of the units."""
    units = set(numbers[0]).intersection(*numbers[1:])
    return {unit: [by_unit[unit] for by_unit in numbers] for unit in sorted(units)}


def leads(
    a: PerUnit,
    b: PerUnit,
    sign: float,
) -> PerUnit:
    """Return sign * (a - b) for the units that both contain."""
    both = aligned(a, b)
    ahead = {}
    for unit, (one, two) in both.items():
        ahead[unit] = sign * (one - two)
    return ahead


def scaled(
    numbers: PerUnit,
    factor: float,
    shift: float = 0.0,
) -> PerUnit:
    """Return factor * number + shift per unit."""
    return {unit: factor * number + shift for unit, number in numbers.items()}


def logs(rounds: PerUnit, share: float = 1.0) -> PerUnit:
    """Return ln(share · (1 + r)) of numbers of rounds r >= 0.

    Ratios of rounds are less skewed than differences. The sum counts the evaluation of the initial
    model as a round.
    """
    logarithms = {}
    for unit, number in rounds.items():
        logarithms[unit] = math.log(share * (1 + number))
    return logarithms


# ---- comparisons of runs


def contest(
    label: str,
    a: PerUnit,
    b: PerUnit,
    sign: float,
    one: MatchedRuns,
    two: MatchedRuns,
    *,
    margin: float = 0.0,
) -> Comparison:
    """Return the comparison of two methods; diverged runs count as behind (``with_diverged``).

    Units for which both methods diverged are left out.

    Args:
        label: Description of the comparison.
        a: Numbers of the first method by unit.
        b: Numbers of the second method by unit.
        sign: 1 if higher is better, -1 if lower is better.
        one: Runs of the first method.
        two: Runs of the second method.
        margin: Non-inferiority margin in the unit of the numbers: the first method may be behind by
            less than this. 0 if it must be ahead.
    """
    differences = scaled(
        leads(a, b, sign),
        1.0,
        margin,
    )
    lost = one.diverged & b.keys()
    won = two.diverged & a.keys()
    both = one.diverged & two.diverged
    if not (lost or won or both):
        return tested(label, differences, (one, two))

    sides = []
    if one.diverged:
        sides.append(f"the first with {_seeds(one.diverged)}")
    if two.diverged:
        sides.append(f"the second with {_seeds(two.diverged)}")
    label = f"{label} (diverged, so counted as behind: {'; '.join(sides)})"
    differences |= dict.fromkeys(lost, -math.inf)
    differences |= dict.fromkeys(won, math.inf)
    if all(map(math.isnan, differences.values())):
        return _undecided(label, (one, two))
    return tested(label, differences, (one, two))


def above(
    label: str,
    differences: PerUnit,
    runs: Sequence[MatchedRuns],
) -> Comparison:
    """Compare differences, one per unit, with 0, and return the comparison.

    If one of the underlying runs diverged, the comparison is undecided.
    """
    lost = set().union(*(side.diverged for side in runs))
    ended = all(side.runs or side.diverged or differences for side in runs)
    if lost and ended:
        label = f"{label} (undecided: a run diverged with {_seeds(lost)})"
        return _undecided(label, runs, {*differences, *lost})
    return tested(label, differences, runs)


def tested(
    label: str,
    differences: PerUnit,
    runs: Sequence[MatchedRuns],
) -> Comparison:
    """Compare differences computed from ``runs`` with 0, and return the comparison.

    A difference is infinite if a run diverged (``with_diverged``). Units whose difference is NaN,
    because it could not be computed, are left out.
    """
    blocks = by_block(with_diverged(differences), _by_split(runs))
    if not blocks:
        return Comparison(label, group=_group(runs))
    comparison = _undecided(label, runs)
    if comparison.uneven:
        return comparison
    test = paired(blocks.values(), scaled=has_scale(differences))
    return replace(
        comparison,
        **asdict(test),
        differences=blocks,
    )


def _by_split(runs: Sequence[MatchedRuns]) -> bool:
    return any(side.reading.splits == "drawn" for side in runs)


def _undecided(
    label: str,
    runs: Sequence[MatchedRuns],
    units: Collection[Unit] = (),
) -> Comparison:
    """Return an undecided comparison of runs, or one that marks them as not comparable.

    Args:
        label: Description of the comparison.
        runs: The runs.
        units: The units of the runs, which are counted as blocks.
    """
    by_split = _by_split(runs)
    group = _group(runs)
    if any(side.cuts != runs[0].cuts for side in runs):
        return Comparison(label, uneven=True, group=group)
    departures = chain.from_iterable(side.departs for side in runs)
    searched = {side.searched for side in runs}
    return Comparison(
        label,
        mean=0.0,
        greater=1.0,
        less=1.0,
        n=len(by_block(dict.fromkeys(units, 0.0), by_split)),
        blocks="split" if by_split else "seed",
        reduced=tuple(dict.fromkeys(departures)),
        retuned=True in searched,
        untuned=len(searched) > 1,
        group=group,
    )


def _seeds(units: Collection[Unit]) -> str:
    seeds = sorted({unit.seed for unit in units})
    return f"seed {', '.join(map(str, seeds))}"


def _group(runs: Sequence[MatchedRuns]) -> str:
    setups = dict.fromkeys(side.setup for side in runs)
    return " and ".join(filter(None, setups))


# ---- comparisons of several parts


def joined(
    label: str,
    parts: Sequence[Comparison],
    every: bool,
) -> Comparison:
    """Return a comparison of several parts, of which all, or only one, must be shown.

    If all parts must be shown, the p-value for being ahead is the largest of the parts
    (intersection-union), and the p-value for being behind is the smallest times the number of parts
    (Bonferroni); the other numbers are those of the weakest part. If one part is enough, the
    p-value for being ahead is the smallest times the number of parts, including missing ones, and
    the p-value for being behind is the largest, once all parts have been run; the other numbers are
    those of the best part. Parts with equal p-values are ordered by ``strength``.
    """
    groups = dict.fromkeys(part.group for part in parts)
    group = " and ".join(filter(None, groups))
    run = [part for part in parts if part.mean is not None]
    if not run or (every and len(run) < len(parts)):
        uneven = any(part.uneven for part in parts)
        return Comparison(label, uneven=uneven, group=group)

    ahead = [part.greater or 0.0 for part in run]
    behind = [part.less or 0.0 for part in run]
    best_first = sorted(run, key=lambda part: (part.greater or 0.0, -part.strength))
    if every:
        greater = max(ahead)
        less = min(1.0, len(parts) * min(behind))
        decisive = best_first[-1]
    else:
        decisive = best_first[0]
        greater = min(1.0, len(parts) * min(ahead))
        less = max(behind) if len(run) == len(parts) else 1.0
        label = f"{label} ({decisive.label})"
    units = {part.unit for part in parts}
    departures = chain.from_iterable(part.reduced for part in run)
    return replace(
        decisive,
        label=label,
        greater=greater,
        less=less,
        reduced=tuple(dict.fromkeys(departures)),
        retuned=any(part.retuned for part in run),
        untuned=any(part.untuned for part in run),
        group=group,
        parts=tuple(parts),
        every=every,
        unit=decisive.unit if len(units) == 1 else "",
    )

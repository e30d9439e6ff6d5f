"""Comparisons of one setting with another over the units that both have."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Literal

from fedbench.analysis.departures import Unit
from fedbench.analysis.matching import MatchedRuns
from fedbench.analysis.stats import paired, with_diverged, without_scale
from fedbench.analysis.stepdown import Leads, Several, Test, negated


@dataclass(frozen=True)
class Comparison:
    """A statement that one number is above another, tested over blocks: training seeds, or splits of the data.

    Attributes:
        label: Description of the comparison.
        mean: Mean lead of the first side; infinite if only runs that diverged make a difference; None if a side has
            not been run.
        greater: p-value of the test that the first side is ahead.
        less: p-value of the test that the first side is behind.
        n: Number of blocks.
        reduced: Whether a side was obtained under a setting other than the paper's.
        complete: False if some of its parts have not been run, so that it does not count yet.
        uneven: Whether the sides are reduced in different ways, so that they cannot be compared.
        group: Title of the setup that it belongs to, or of both.
        blocks: What the blocks are, ``seed`` or ``split``.
        differences: Lead of the first side by block; runs that diverged are counted. Empty if it has parts.
        low: Lower end of the 95 % interval of the mean; None for fewer than two blocks.
        high: Upper end of the 95 % interval of the mean; None for fewer than two blocks.
        against_p: p-value that the first side is behind, adjusted for the claim's comparisons; None until it is judged.
        parts: Comparisons that it consists of; ``label`` to ``high`` are those of the part that counts.
        every: Whether all parts must be shown, or one is enough.
        unit: Unit of the leads; empty for plain numbers, or if the parts have several.
    """

    label: str
    mean: float | None = None
    greater: float | None = None
    less: float | None = None
    n: int = 0
    reduced: bool = False
    complete: bool = True
    uneven: bool = False
    group: str = ""
    blocks: Literal["seed", "split"] = "seed"
    differences: Mapping[int, float] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    against_p: float | None = None
    parts: tuple[Comparison, ...] = ()
    every: bool = True
    unit: str = ""

    @property
    def test(self) -> Test:
        """The test that the first side is ahead; of several parts, those that have been run count."""
        if self.parts:
            return Several(tuple(part.test for part in self.parts if part.greater is not None), self.every)
        return Leads(self.differences)

    @property
    def opposite(self) -> Test:
        """The test that the first side is behind."""
        return negated(self.test)

    @property
    def fewest(self) -> int:
        """Number of blocks, of several parts that of the one with fewest; 0 if something has not been run."""
        return min((part.fewest for part in self.parts), default=self.n)

    @property
    def strength(self) -> float:
        """Σd / √Σd² of the differences d, by which equal p-values are ordered; of several parts, that which counts."""
        if self.parts:
            return (min if self.every else max)(part.strength for part in self.parts)
        scale = math.hypot(*self.differences.values())
        return sum(self.differences.values()) / scale if scale else 0.0

    def text(self) -> str:
        """Return the comparison as text."""
        if self.mean is None or not self.n:
            return self.label
        side = "ahead" if self.mean > 0 else "behind" if self.mean < 0 else "equal"
        by = " by" if self.mean else ","
        amount = f"{by} {self.amount(abs(self.mean), '')} on average" if math.isfinite(self.mean) else ""
        return f"{self.label}: {side}{amount} over {self.n} {self.blocks}{'s' if self.n > 1 else ''}"

    def interval_text(self) -> str:
        """Return the interval of the mean as text; empty if there is none."""
        if self.low is None or self.high is None:
            return ""
        return f"95 % interval {self.low:.4g} to {self.amount(self.high, '')}"

    def amount(self, lead: float, sign: str = "+") -> str:
        """Return a lead with its unit as text."""
        return f"{lead:{sign}.4g}{f' {self.unit}' if self.unit else ''}"


def compared(
    label: str, a: Mapping[Unit, float], b: Mapping[Unit, float], sign: float, found: Sequence[MatchedRuns]
) -> Comparison:
    """Return the comparison of two settings over their common units; a is ahead where sign * (a - b) > 0."""
    return above(label, _leads(a, b, sign), found)


def contest(
    label: str,
    a: Mapping[Unit, float],
    b: Mapping[Unit, float],
    sign: float,
    one: MatchedRuns,
    two: MatchedRuns,
    *,
    margin: float = 0.0,
) -> Comparison:
    """Return the comparison of two methods in which a run that diverged counts as behind (``with_diverged``).

    A unit for which both diverged is left out.

    Args:
        label: Description of the comparison.
        a: Numbers of the first method by unit.
        b: Numbers of the second method by unit.
        sign: 1 if higher is better, -1 if lower is better.
        one: Runs of the first method.
        two: Runs of the second method.
        margin: How far the first method may be behind and still support the statement (non-inferiority), in the unit
            of the numbers; 0 if it must be ahead.
    """
    differences = {unit: lead + margin for unit, lead in _leads(a, b, sign).items()}
    lost, won = one.diverged & b.keys(), two.diverged & a.keys()
    if not (lost or won or one.diverged & two.diverged):
        return _tested(label, differences, (one, two))
    words = [f"the {side} with {_seeds(f.diverged)}" for side, f in (("first", one), ("second", two)) if f.diverged]
    label = f"{label} (diverged, so counted as behind: {'; '.join(words)})"
    if not (lost or won or any(map(math.isfinite, differences.values()))):
        return _open(label, (one, two))
    return _tested(label, differences, (one, two), lost, won)


def _leads(a: Mapping[Unit, float], b: Mapping[Unit, float], sign: float) -> dict[Unit, float]:
    return {unit: sign * (a[unit] - b[unit]) for unit in sorted(a.keys() & b.keys())}


def above(label: str, differences: Mapping[Unit, float], found: Sequence[MatchedRuns]) -> Comparison:
    """Return the comparison of differences, one per unit, with 0; ``found`` contains their runs.

    If one of these runs diverged, the others alone do not decide the comparison.
    """
    lost = set().union(*(f.diverged for f in found))
    if not lost or not all(f.runs or f.diverged or differences for f in found):
        return _tested(label, differences, found)
    return _open(f"{label} (undecided: a run diverged with {_seeds(lost)})", found)


def settled(label: str, differences: Mapping[Unit, float], found: Sequence[MatchedRuns]) -> Comparison:
    """Return the comparison of differences with 0 that take runs that diverged into account already."""
    return _tested(label, differences, found)


def _open(label: str, found: Sequence[MatchedRuns]) -> Comparison:
    """Return a comparison that has been run and is undecided."""
    if any(f.cuts != found[0].cuts for f in found):
        return Comparison(label, uneven=True, group=_group(found))
    return Comparison(label, 0.0, 1.0, 1.0, 0, any(f.reduced for f in found), group=_group(found))


def _seeds(units: Collection[Unit]) -> str:
    return f"seed {', '.join(map(str, sorted({u.seed for u in units})))}"


def _group(found: Sequence[MatchedRuns]) -> str:
    return " and ".join(dict.fromkeys(f.setup for f in found if f.setup))


def _tested(
    label: str,
    differences: Mapping[Unit, float],
    found: Sequence[MatchedRuns],
    lost: Collection[Unit] = (),
    won: Collection[Unit] = (),
) -> Comparison:
    known = {unit: d for unit, d in differences.items() if math.isfinite(d)}
    by_split = any(f.reading.splits == "drawn" for f in found)
    leads = _by_block(with_diverged(known, lost, won), by_split)
    if not leads:
        return Comparison(label, group=_group(found))
    if any(f.cuts != found[0].cuts for f in found):
        return Comparison(label, uneven=True, group=_group(found))
    p = paired(leads.values())
    if (lost or won) and not any(known.values()):
        p = without_scale(p)
    return Comparison(
        label,
        p.mean,
        p.greater,
        p.less,
        p.n,
        any(f.reduced for f in found),
        group=_group(found),
        blocks="split" if by_split else "seed",
        differences=leads,
        low=p.low,
        high=p.high,
    )


def _by_block(differences: Mapping[Unit, float], by_split: bool) -> dict[int, float]:
    """Return differences by training seed, or the mean difference over the training seeds of each split.

    Runs of one split share its luck, so that only the split as a whole may be flipped.
    """
    members: dict[int, list[float]] = {}
    for unit, difference in sorted(differences.items()):
        members.setdefault(unit.split if by_split else unit.seed, []).append(difference)
    return {block: mean(values) for block, values in members.items()}


def worst_of(label: str, parts: Sequence[Comparison]) -> Comparison:
    """Return a comparison that holds only if all its parts hold, and fails if any of them fails.

    It is ahead with the largest p-value of its parts (intersection-union) and behind with the smallest one times their
    number (Bonferroni); its other numbers are those of the weakest part.
    """
    if not parts or any(p.greater is None or p.less is None for p in parts):
        return Comparison(label, uneven=any(p.uneven for p in parts), group=_common_group(parts))
    weakest = max(parts, key=lambda p: p.greater or 0.0)
    less = min(1.0, len(parts) * min(p.less or 0.0 for p in parts))
    return _of_parts(label, weakest, weakest.greater, less, parts, every=True)


def best_of(label: str, parts: Sequence[Comparison]) -> Comparison:
    """Return a comparison that holds if any of its parts holds, and fails only if all of them fail.

    It is ahead with the smallest p-value of its parts times their number (Bonferroni), missing parts included, and
    behind with the largest one (intersection-union); its other numbers are those of the best part.
    """
    run = [p for p in parts if p.greater is not None and p.less is not None]
    if not run:
        return Comparison(label, uneven=any(p.uneven for p in parts), group=_common_group(parts))
    best = min(run, key=lambda p: p.greater or 0.0)
    greater = min(1.0, len(parts) * (best.greater or 0.0))
    complete = len(run) == len(parts)
    less = max(p.less or 0.0 for p in run) if complete else 1.0
    return _of_parts(f"{label} ({best.label})", best, greater, less, parts, every=False, complete=complete)


def _of_parts(
    label: str,
    shown: Comparison,
    greater: float | None,
    less: float,
    parts: Sequence[Comparison],
    every: bool,
    complete: bool = True,
) -> Comparison:
    return Comparison(
        label,
        shown.mean,
        greater,
        less,
        shown.n,
        any(p.reduced for p in parts if p.greater is not None),
        complete,
        group=_common_group(parts),
        blocks=shown.blocks,
        low=shown.low,
        high=shown.high,
        parts=tuple(parts),
        every=every,
        unit=units.pop() if len(units := {p.unit for p in parts}) == 1 else "",
    )


def _common_group(parts: Sequence[Comparison]) -> str:
    return " and ".join(dict.fromkeys(p.group for p in parts if p.group))

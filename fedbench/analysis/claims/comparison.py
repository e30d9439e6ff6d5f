"""Comparisons of settings over the blocks that both have: training seeds, or splits of the data. p is one-sided."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Literal

from fedbench.analysis.departures import Unit
from fedbench.analysis.matching import MatchedRuns
from fedbench.analysis.stats import paired, with_diverged, without_scale

ALPHA = 0.05


@dataclass(frozen=True)
class Comparison:
    """A statement that one number is above another, tested over blocks: training seeds, or splits of the data.

    Attributes:
        label: Description of the comparison.
        mean: Mean lead of the first side; infinite if only runs that diverged make a difference; None if a side has
            not been run.
        greater: p-value of the test that the first side is ahead; None if a side has not been run.
        less: p-value of the test that the first side is behind; None if a side has not been run.
        n: Number of blocks.
        reduced: In what the settings of its sides differ from the paper's; empty if they are the paper's.
        untuned: Whether the values of some rows were searched here, and those of others not.
        uneven: Whether the sides are reduced in different ways, so that they cannot be compared.
        group: Title of the setup that it belongs to, or of both.
        blocks: What the blocks are, ``seed`` or ``split``.
        differences: Lead of the first side by block; runs that diverged are counted. Empty if it has parts.
        low: Lower end of the 95 % interval of the mean; None for fewer than two blocks.
        high: Upper end of the 95 % interval of the mean; None for fewer than two blocks.
        for_p: p-value that the first side is ahead, adjusted for the claim's comparisons; None until it is judged, and
            for one that has not been run.
        against_p: p-value that it is behind, likewise.
        parts: Comparisons that it consists of; ``mean`` to ``high`` are those of the part that counts.
        every: Whether all parts must be shown, or one is enough.
        unit: Unit of the leads; empty for plain numbers, or if the parts have several.
    """

    label: str
    mean: float | None = None
    greater: float | None = None
    less: float | None = None
    n: int = 0
    reduced: tuple[str, ...] = ()
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

    @property
    def complete(self) -> bool:
        """Whether it has been run, in all of its parts; it does not count before, whichever way the others point."""
        return self.mean is not None and all(part.complete for part in self.parts)

    @property
    def state(self) -> Literal["shown", "refuted", "open", "not run"]:
        """What its adjusted p-values come to."""
        if self.for_p is None or self.against_p is None:
            return "not run"
        return "shown" if self.for_p <= ALPHA else "refuted" if self.against_p <= ALPHA else "open"

    def blank(self) -> Comparison:
        """Return it without its numbers, as one that has not been run."""
        return Comparison(self.label, uneven=self.uneven, group=self.group, unit=self.unit)

    @property
    def run_parts(self) -> list[Comparison]:
        """The parts that have been run, which are those that count; none if it is a single comparison."""
        return [part for part in self.parts if part.mean is not None]

    @property
    def every_block(self) -> set[int]:
        """The blocks of its differences, and of those of its parts."""
        return set(self.differences).union(*(part.every_block for part in self.run_parts))

    @property
    def fewest(self) -> int:
        """Number of blocks, of several parts that of the one with fewest; 0 if something has not been run."""
        return min((part.fewest for part in self.parts), default=self.n)

    def chances(self, ahead: bool) -> int:
        """Return by how many of its parts the least p-value is multiplied, for it to be ahead or else behind."""
        if not self.parts:
            return 1
        most = max(part.chances(ahead) for part in self.parts)
        return most if self.every == ahead else len(self.parts) * most

    @property
    def strength(self) -> float:
        """Σd / √Σd² of the differences d, by which equal p-values are ordered; of several parts, that which counts."""
        if self.parts:
            return (min if self.every else max)(part.strength for part in self.parts)
        scale = math.hypot(*self.differences.values())
        return sum(self.differences.values()) / scale if scale else 0.0


# ---- of two settings


def leads(a: Mapping[Unit, float], b: Mapping[Unit, float], sign: float) -> dict[Unit, float]:
    """Return sign * (a - b) over the units of both."""
    return {unit: sign * (a[unit] - b[unit]) for unit in sorted(a.keys() & b.keys())}


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
        a: Numbers of the first method by unit; ``one`` has its runs.
        b: Numbers of the second method by unit; ``two`` has its runs.
        sign: 1 if higher is better, -1 if lower is better.
        one: Runs of the first method.
        two: Runs of the second method.
        margin: How far the first method may be behind and still support the statement (non-inferiority), in the unit
            of the numbers; 0 if it must be ahead.
    """
    differences = {unit: lead + margin for unit, lead in leads(a, b, sign).items()}
    lost, won = one.diverged & b.keys(), two.diverged & a.keys()
    if not (lost or won or one.diverged & two.diverged):
        return tested(label, differences, (one, two))
    words = [f"the {side} with {_seeds(f.diverged)}" for side, f in (("first", one), ("second", two)) if f.diverged]
    label = f"{label} (diverged, so counted as behind: {'; '.join(words)})"
    if not (lost or won or any(map(math.isfinite, differences.values()))):
        return _undecided(label, (one, two))
    return tested(label, differences, (one, two), lost, won)


def above(label: str, differences: Mapping[Unit, float], found: Sequence[MatchedRuns]) -> Comparison:
    """Return the comparison of differences, one per unit, with 0; ``found`` contains their runs.

    If one of these runs diverged, the others alone do not decide the comparison.
    """
    lost = set().union(*(f.diverged for f in found))
    if not lost or not all(f.runs or f.diverged or differences for f in found):
        return tested(label, differences, found)
    return _undecided(f"{label} (undecided: a run diverged with {_seeds(lost)})", found)


def tested(
    label: str,
    differences: Mapping[Unit, float],
    found: Sequence[MatchedRuns],
    lost: Collection[Unit] = (),
    won: Collection[Unit] = (),
) -> Comparison:
    """Return the comparison of differences with 0; those that are not finite are left out.

    Args:
        label: Description of the comparison.
        differences: Differences by unit.
        found: The runs behind them.
        lost: Units in which the first side diverged, which counts as behind.
        won: Units in which the second side diverged.
    """
    known = {unit: d for unit, d in differences.items() if math.isfinite(d)}
    by_split = any(f.reading.splits == "drawn" for f in found)
    by_block = _by_block(with_diverged(known, lost, won), by_split)
    if not by_block or _uneven(found):
        return Comparison(label, uneven=bool(by_block), group=_group(found))
    p = paired(by_block.values())
    if (lost or won) and not any(known.values()):
        p = without_scale(p)
    return Comparison(
        label,
        p.mean,
        p.greater,
        p.less,
        p.n,
        reduced=_departures(found),
        untuned=_untuned(found),
        group=_group(found),
        blocks="split" if by_split else "seed",
        differences=by_block,
        low=p.low,
        high=p.high,
    )


def _undecided(label: str, found: Sequence[MatchedRuns]) -> Comparison:
    if _uneven(found):
        return Comparison(label, uneven=True, group=_group(found))
    return Comparison(label, 0.0, 1.0, 1.0, 0, _departures(found), untuned=_untuned(found), group=_group(found))


def _uneven(found: Sequence[MatchedRuns]) -> bool:
    return any(f.cuts != found[0].cuts for f in found)


def _departures(found: Sequence[MatchedRuns]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for f in found for text in f.departs))


def _untuned(found: Sequence[MatchedRuns]) -> bool:
    """Return whether the values of some rows were searched here, and those of others not."""
    return len({f.searched for f in found}) > 1


def _seeds(units: Collection[Unit]) -> str:
    return f"seed {', '.join(map(str, sorted({u.seed for u in units})))}"


def _group(found: Sequence[MatchedRuns]) -> str:
    return " and ".join(dict.fromkeys(f.setup for f in found if f.setup))


def _by_block(differences: Mapping[Unit, float], by_split: bool) -> dict[int, float]:
    """Return differences by training seed, or the mean difference over the training seeds of each split.

    Runs of one split share its luck, so that only the split as a whole may be flipped.
    """
    members: dict[int, list[float]] = {}
    for unit, difference in sorted(differences.items()):
        members.setdefault(unit.split if by_split else unit.seed, []).append(difference)
    return {block: mean(values) for block, values in members.items()}


def between(
    label: str,
    values: Mapping[Unit, float],
    low: float,
    high: float,
    found: MatchedRuns,
    missed: Collection[Unit] = (),
) -> Comparison:
    """Return the comparison of two parts: a number is above the lower end of a band, and below its upper end.

    Two one-sided tests show equivalence within the band, and one of them that it is outside: a number is always on the
    right side of one end, so that they are no comparisons of their own. A run that diverged counts as outside at both
    ends, and so does a unit of ``missed``.
    """
    ends = []
    for word, bound, sign in (("at least", low, 1.0), ("at most", high, -1.0)):
        room = {u: sign * (value - bound) for u, value in values.items()}
        ends.append(tested(f"{label} {word} {bound:g}", room, [found], lost={*missed, *found.diverged}))
    return joined(f"{label} from {low:g} to {high:g}", ends, every=True)


def joined(label: str, parts: Sequence[Comparison], every: bool) -> Comparison:
    """Return a comparison that consists of others, all of which must be shown, or one of which is enough.

    If all must be shown, it is ahead with the largest p-value of its parts (intersection-union) and behind with the
    smallest one times their number (Bonferroni); its other numbers are those of the weakest part. If one is enough, it
    is ahead with the smallest p-value times their number, missing parts included, and behind with the largest one, once
    all have been run; its other numbers are those of the best part.
    """
    group = " and ".join(dict.fromkeys(p.group for p in parts if p.group))
    run = [p for p in parts if p.mean is not None]
    if not run or (every and len(run) < len(parts)):
        return Comparison(label, uneven=any(p.uneven for p in parts), group=group)
    ahead, behind = [p.greater or 0.0 for p in run], [p.less or 0.0 for p in run]
    if every:
        greater, less = max(ahead), min(1.0, len(parts) * min(behind))
    else:
        greater, less = min(1.0, len(parts) * min(ahead)), max(behind) if len(run) == len(parts) else 1.0
    shown = run[ahead.index(max(ahead) if every else min(ahead))]
    units = {p.unit for p in parts}
    return Comparison(
        label if every else f"{label} ({shown.label})",
        shown.mean,
        greater,
        less,
        shown.n,
        reduced=tuple(dict.fromkeys(text for p in run for text in p.reduced)),
        untuned=any(p.untuned for p in run),
        group=group,
        blocks=shown.blocks,
        low=shown.low,
        high=shown.high,
        parts=tuple(parts),
        every=every,
        unit=units.pop() if len(units) == 1 else "",
    )

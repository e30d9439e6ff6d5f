"""Comparisons of one setting with another over the units that both have."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from fedbench.analysis.matching import MatchedRuns, Unit
from fedbench.analysis.stats import paired_with_diverged


@dataclass(frozen=True)
class Comparison:
    """A statement that one number is above another, tested over seeds.

    Attributes:
        label: Description of the comparison.
        mean: Mean lead of the first side; infinite if only runs that diverged make a difference; None if a side has
            not been run.
        greater: p-value of the test that the first side is ahead.
        less: p-value of the test that the first side is behind.
        n: Number of blocks.
        reduced: Whether a side was obtained under a setting other than the paper's.
        complete: False if missing parts could still support the statement, so that it cannot be refuted yet.
        uneven: Whether the sides are reduced in different ways, so that they cannot be compared.
        never_behind: Whether the first side is ahead or level for every seed.
        group: Title of the setup that it belongs to, or of both.
        differences: Lead of the first side by block; runs that diverged are counted.
        low: Lower end of the 95 % interval of the mean; None for fewer than two blocks.
        high: Upper end of the 95 % interval of the mean; None for fewer than two blocks.
        for_p: p-value that the first side is ahead, adjusted for the claim's comparisons; None until it is judged.
        against_p: p-value that the first side is behind, adjusted likewise.
    """

    label: str
    mean: float | None = None
    greater: float | None = None
    less: float | None = None
    n: int = 0
    reduced: bool = False
    complete: bool = True
    uneven: bool = False
    never_behind: bool = False
    group: str = ""
    differences: Mapping[int, float] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    for_p: float | None = None
    against_p: float | None = None

    def text(self) -> str:
        """Return the comparison as text."""
        if self.mean is None or not self.n:
            return self.label
        side = "ahead" if self.mean > 0 else "behind" if self.mean < 0 else "equal"
        by = " by" if self.mean else ","
        amount = f"{by} {abs(self.mean):.4g} on average" if math.isfinite(self.mean) else ""
        return f"{self.label}: {side}{amount} over {self.n} seed{'s' if self.n > 1 else ''}"


def compared(
    label: str, a: Mapping[Unit, float], b: Mapping[Unit, float], sign: float, found: Sequence[MatchedRuns]
) -> Comparison:
    """Return the comparison of two settings over their common units; a is ahead where sign * (a - b) > 0."""
    return above(label, {s: sign * (a[s] - b[s]) for s in sorted(a.keys() & b.keys())}, found)


def contest(
    label: str, a: Mapping[Unit, float], b: Mapping[Unit, float], sign: float, one: MatchedRuns, two: MatchedRuns
) -> Comparison:
    """Return the comparison of two methods in which a run that diverged counts as behind (``paired_with_diverged``).

    A unit for which both diverged is left out. The arguments are the numbers of both methods by unit, 1 or -1 if higher
    or lower is better, and the runs of both.
    """
    differences = {s: sign * (a[s] - b[s]) for s in sorted(a.keys() & b.keys())}
    lost, won = one.diverged & b.keys(), two.diverged & a.keys()
    if not (lost or won or one.diverged & two.diverged):
        return _tested(label, differences, (one, two))
    words = [f"the {side} with {_seeds(f.diverged)}" for side, f in (("first", one), ("second", two)) if f.diverged]
    label = f"{label} (diverged, so counted as behind: {'; '.join(words)})"
    if not (lost or won or any(map(math.isfinite, differences.values()))):
        return _open(label, (one, two))
    return _tested(label, differences, (one, two), lost, won)


def above(label: str, differences: Mapping[Unit, float], found: Sequence[MatchedRuns]) -> Comparison:
    """Return the comparison of differences, one per unit, with 0; ``found`` contains their runs.

    If one of these runs diverged, the others alone do not decide the comparison.
    """
    lost = set().union(*(f.diverged for f in found))
    if not lost or not all(f.runs or f.diverged or differences for f in found):
        return _tested(label, differences, found)
    return _open(f"{label} (undecided: a run diverged with {_seeds(lost)})", found)


def _open(label: str, found: Sequence[MatchedRuns]) -> Comparison:
    """Return a comparison that has been run and is undecided."""
    if any(f.cuts != found[0].cuts for f in found):
        return Comparison(label, uneven=True)
    return Comparison(label, 0.0, 1.0, 1.0, 0, any(f.reduced for f in found))


def _seeds(units: Collection[Unit]) -> str:
    return f"seed {', '.join(map(str, sorted({u.seed for u in units})))}"


def _tested(
    label: str,
    differences: Mapping[Unit, float],
    found: Sequence[MatchedRuns],
    lost: Collection[Unit] = (),
    won: Collection[Unit] = (),
) -> Comparison:
    known = {seed: d for seed, d in differences.items() if math.isfinite(d)}
    p = paired_with_diverged(known, lost, won)
    if p is None:
        return Comparison(label)
    if any(f.cuts != found[0].cuts for f in found):
        return Comparison(label, uneven=True)
    never_behind = not lost and all(d >= 0 for d in known.values())
    return Comparison(label, p.mean, p.greater, p.less, p.n, any(f.reduced for f in found), never_behind=never_behind)


def worst_of(label: str, parts: Sequence[Comparison]) -> Comparison:
    """Return a comparison that holds only if all its parts hold (intersection-union) and fails if any of them fails."""
    if not parts or any(p.greater is None or p.less is None for p in parts):
        return Comparison(label, uneven=any(p.uneven for p in parts))
    weakest = max(parts, key=lambda p: p.greater or 0.0)
    less = min(1.0, len(parts) * min(p.less or 0.0 for p in parts))
    return Comparison(label, weakest.mean, weakest.greater, less, weakest.n, any(p.reduced for p in parts))


def best_of(label: str, parts: Sequence[Comparison]) -> Comparison:
    """Return a comparison that holds if any of its parts holds (Bonferroni), and fails only if all of them fail."""
    run = [p for p in parts if p.greater is not None and p.less is not None]
    if not run:
        return Comparison(label, uneven=any(p.uneven for p in parts))
    best = min(run, key=lambda p: p.greater or 0.0)
    greater = min(1.0, len(parts) * (best.greater or 0.0))
    complete = len(run) == len(parts)
    less = max(p.less or 0.0 for p in run) if complete else 1.0
    reduced = any(p.reduced for p in run)
    return Comparison(f"{label} ({best.label})", best.mean, greater, less, best.n, reduced, complete)

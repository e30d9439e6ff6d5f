"""One setting against another over the seeds that both have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedbench.stats import Paired, paired


@dataclass(frozen=True)
class Comparison:
    """A statement that one number is above another, tested over seeds.

    Attributes:
        label: what is compared.
        mean: how far it is ahead on average; None if a side has not been run.
        greater: p-value against it being ahead.
        less: p-value against it being behind.
        n: pairs of seeds.
        reduced: whether a side was obtained under anything but the paper's setting.
    """

    label: str
    mean: float | None = None
    greater: float | None = None
    less: float | None = None
    n: int = 0
    reduced: bool = False

    @classmethod
    def of(cls, label: str, p: Paired, reduced: bool) -> Comparison:
        """Return the comparison that paired differences make; positive ones are for it."""
        return cls(label, p.mean, p.greater, p.less, p.n, reduced)

    def text(self) -> str:
        """Return it in words."""
        if self.mean is None:
            return self.label
        side = "ahead by" if self.mean > 0 else "behind by" if self.mean < 0 else "equal,"
        return f"{self.label}: {side} {abs(self.mean):.4g} on average over {self.n} seeds"


def compared(label: str, a: Mapping[int, float], b: Mapping[int, float], sign: float, reduced: bool) -> Comparison:
    """Return the comparison of two settings by the seeds that both have; for it where sign * (a - b) > 0."""
    return above(label, {s: sign * (a[s] - b[s]) for s in sorted(a.keys() & b.keys())}, reduced)


def above(label: str, differences: Mapping[int, float], reduced: bool) -> Comparison:
    """Return the comparison of differences, one per seed, with 0."""
    if not differences:
        return Comparison(label)
    return Comparison.of(label, paired(list(differences.values())), reduced)


def worst_of(label: str, parts: Sequence[Comparison]) -> Comparison:
    """Return a comparison that stands only if all its parts do (intersection-union), and is refuted by any of them."""
    if not parts or any(p.greater is None or p.less is None for p in parts):
        return Comparison(label)
    weakest = max(parts, key=lambda p: p.greater or 0.0)
    less = min(1.0, len(parts) * min(p.less or 0.0 for p in parts))
    return Comparison(label, weakest.mean, weakest.greater, less, weakest.n, any(p.reduced for p in parts))


def best_of(label: str, parts: Sequence[Comparison]) -> Comparison:
    """Return a comparison that stands if any of its parts does (Bonferroni), and is refuted only if all are."""
    if not parts or any(p.greater is None or p.less is None for p in parts):
        return Comparison(label)
    best = min(parts, key=lambda p: p.greater or 0.0)
    greater = min(1.0, len(parts) * (best.greater or 0.0))
    less = max(p.less or 0.0 for p in parts)
    return Comparison(label, best.mean, greater, less, best.n, any(p.reduced for p in parts))

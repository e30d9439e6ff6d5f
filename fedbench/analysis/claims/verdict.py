"""The verdict on comparisons that must all be shown.

A claim is a set of comparisons. It holds if each of them is significant by itself: where all must be shown, testing
each at level α keeps the level of the whole (intersection-union test; Berger, 1982). It fails if at least one is
significant the other way after adjustment for their number (``adjusted``). All p-values are one-sided. Anything else is
undecided, or partly measured if comparisons have not been run. docs/adr/0013 gives the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from fedbench.analysis.claims.comparison import Comparison
from fedbench.analysis.stepdown import adjusted, least_blocks, negated

ALPHA = 0.05
TO_HOLD = least_blocks(1, ALPHA)  # blocks with which a claim can hold, however many comparisons it has


@dataclass(frozen=True)
class Counts:
    """Numbers of comparisons of a claim: all, those that count as run, and those ahead or behind, each by itself."""

    total: int = 0
    run: int = 0
    ahead: int = 0
    behind: int = 0
    significantly_ahead: int = 0
    significantly_behind: int = 0


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim.

    Attributes:
        verdict: One of ``holds``, ``fails``, ``undecided``, ``partly measured``, ``not run`` and ``not testable``.
        evidence: The reason for a verdict without comparisons, in one line.
        reduced: Whether a number behind it was obtained under a setting other than the paper's.
        basis: Source of the verdict: ``runs``, ``proof`` (a test of the code) or ``print`` (the paper's own numbers).
        comparisons: All comparisons, run or not, with their adjusted p-values.
        by_group: Verdict on the comparisons of each setup, by its title; empty if there is only one.
        barred: The verdict that the comparisons come to, if runs at reduced settings cannot give it on this claim.
    """

    verdict: str
    evidence: str = ""
    reduced: bool = False
    basis: str = "runs"
    comparisons: tuple[Comparison, ...] = ()
    by_group: Mapping[str, Verdict] = field(default_factory=dict)
    barred: str = ""

    @property
    def run(self) -> list[Comparison]:
        """The comparisons that count as run."""
        return [c for c in self.comparisons if c.against_p is not None]

    @cached_property
    def counts(self) -> Counts:
        """Numbers of comparisons."""
        means = [c.mean or 0.0 for c in self.run]
        return Counts(
            len(self.comparisons),
            len(means),
            sum(mean > 0 for mean in means),
            sum(mean < 0 for mean in means),
            sum((c.greater or 0.0) <= ALPHA for c in self.run),
            sum((c.less or 0.0) <= ALPHA for c in self.run),
        )

    @property
    def worst(self) -> Comparison | None:
        """The comparison that is most against the claim, or is shown the least if it holds; None if none was run."""
        shown = "holds" in (self.verdict, self.barred)
        return min(self.run, key=_least_shown if shown else _most_against, default=None)

    @property
    def lacking(self) -> tuple[str, int] | None:
        """The outcome that the blocks did not allow, ``hold``, or not for sure, ``fail``, and how many it takes.

        A claim is sure to fail if a comparison of one sign refutes it, whatever the others are (``least_blocks``). None
        if both could be.
        """
        if self.verdict not in ("holds", "undecided") or not self.comparisons:
            return None
        fewest, needed = min(c.fewest for c in self.comparisons), least_blocks(len(self.comparisons), ALPHA)
        if fewest >= needed:
            return None
        return ("hold", TO_HOLD) if fewest < TO_HOLD else ("fail", needed)


def decide(comparisons: Sequence[Comparison]) -> Verdict:
    """Return the verdict on comparisons that must all be significant, and that on the comparisons of each setup."""
    if not comparisons:
        return Verdict("not testable", "the claim names nothing to compare")
    titles = dict.fromkeys(c.group for c in comparisons)
    groups = {title: _decided([c for c in comparisons if c.group == title]) for title in titles}
    return replace(_decided(comparisons), by_group=groups if len(groups) > 1 else {})


def _decided(comparisons: Sequence[Comparison]) -> Verdict:
    """Return the verdict on comparisons, with adjusted p-values where they count as run."""
    judged = list(comparisons)
    run = [i for i, c in enumerate(comparisons) if c.mean is not None and c.complete]
    for i, against_p in zip(run, adjusted([negated(comparisons[i].test) for i in run]), strict=True):
        judged[i] = replace(judged[i], against_p=against_p)
    counted = [judged[i] for i in run]
    if any((c.against_p or 0.0) <= ALPHA for c in counted):
        word = "fails"
    elif len(run) < len(judged):
        word = "partly measured" if any(c.mean is not None for c in judged) else "not run"
    else:
        word = "holds" if all((c.greater or 0.0) <= ALPHA for c in counted) else "undecided"
    return Verdict(word, reduced=any(c.reduced for c in counted), comparisons=tuple(judged))


def _least_shown(c: Comparison) -> tuple[float, float]:
    return -(c.greater or 0.0), c.strength


def _most_against(c: Comparison) -> tuple[float, float, float, float]:
    return (c.against_p or 0.0), (c.less or 0.0), -(c.greater or 0.0), c.strength

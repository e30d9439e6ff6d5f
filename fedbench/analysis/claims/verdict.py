"""The verdict on comparisons that must all be shown: one procedure for every claim of every paper.

A comparison is *shown* if its p-value is at most 5 %, *refuted* if that of the opposite is, and
*open* otherwise; both are adjusted alike for the number of comparisons (``adjusted``). A claim
*holds* if all p-values are at most 5 % as they are: where all must be shown, none needs an
adjustment. docs/reproduction.md has the words of a verdict on one page, and docs/adr/0013 the
reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fedbench.analysis.claims.comparison import ALPHA, Comparison
from fedbench.analysis.stats import least_blocks, least_p
from fedbench.analysis.stepdown import adjusted

DECIDED = ("holds", "fails", "mixed", "undecided")


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, or on the comparisons of one of its setups.

    Attributes:
        word: ``holds``, ``fails``, ``mixed``, ``undecided``, ``not run`` or ``not testable``.
        evidence: The reason for a verdict without comparisons, in one line.
        basis: What it rests on: ``runs``, ``test`` (a test of the code) or ``print`` (the paper's
            own numbers).
        comparisons: All comparisons; those that have not been run at the paper's setting have no
            numbers.
        scaled: The scaled-down check: the same procedure on all comparisons, if runs at reduced
            settings are behind some of them; it is never counted as a verdict.
        by_group: Verdict on the comparisons of each setup, by its title; empty if there is only
            one.
    """

    word: str
    evidence: str = ""
    basis: str = "runs"
    comparisons: tuple[Comparison, ...] = ()
    scaled: Verdict | None = None
    by_group: Mapping[str, Verdict] = field(default_factory=dict)

    @property
    def outcome(self) -> Verdict:
        """The verdict at the paper's settings, or the scaled-down check if only that was run."""
        return self.scaled if self.scaled is not None and self.word == "not run" else self

    @property
    def run(self) -> list[Comparison]:
        """The comparisons that have been run."""
        return [c for c in self.comparisons if c.complete]

    def count(self, state: str) -> int:
        """Return how many comparisons are ``shown``, ``refuted``, ``open`` or ``not run``."""
        return sum(c.state == state for c in self.comparisons)

    @property
    def untuned(self) -> bool:
        """Whether rows with values searched here are compared with rows whose values were not."""
        return any(c.untuned for c in self.comparisons)

    @property
    def lacking(self) -> tuple[str, Comparison, int | None] | None:
        """The outcome that the blocks did not allow, where, and how many allow it; else None.

        The outcome is ``hold`` or ``fail``.

        A claim can hold if each comparison can be shown, and is sure to fail by a comparison of one
        sign, whatever the others are (``least_blocks``). It does not matter which word has been decided.
        """
        if self.word not in DECIDED or not self.comparisons:
            return None
        least = min(self.comparisons, key=lambda c: c.fewest)
        all_behind = sum(c.chances(ahead=False) for c in self.comparisons)
        tests = [("hold", c, c.chances(ahead=True)) for c in self.comparisons]
        tests.append(("fail", least, all_behind))
        for outcome, comparison, chances in tests:
            if chances * least_p(comparison.fewest) > ALPHA:
                return outcome, comparison, least_blocks(chances, ALPHA)
        return None

    @property
    def counts(self) -> bool:
        """Whether it is counted: decided by runs that could have come out either way."""
        return self.basis == "runs" and self.word in DECIDED and self.lacking is None

    @property
    def worst(self) -> Comparison | None:
        """The comparison that is most against the claim, or is shown the least; None without any."""
        return min(self.run, key=_support, default=None)


def _support(c: Comparison) -> tuple[float, ...]:
    """Return how much a comparison that has been run supports the claim, as a sort key."""
    return (
        c.against_p or 0.0,
        c.less or 0.0,
        -(c.greater or 0.0),
        c.strength,
    )


def decide(comparisons: Sequence[Comparison]) -> Verdict:
    """Return the verdict on comparisons that must all be shown, and on those of each setup."""
    if not comparisons:
        return Verdict("not testable", "the claim names nothing to compare")

    groups: dict[str, list[Comparison]] = {}
    for c in comparisons:
        groups.setdefault(c.group, []).append(c)
    by_group = {}
    if len(groups) > 1:
        by_group = {title: decide(members) for title, members in groups.items()}

    # at the paper's settings, comparisons of reduced runs have not been run
    verdict = _judged([c.blank() if c.reduced else c for c in comparisons])
    scaled = None
    if any(c.reduced for c in comparisons):
        scaled = _judged(comparisons)
    return replace(verdict, scaled=scaled, by_group=by_group)


def _judged(comparisons: Sequence[Comparison]) -> Verdict:
    """Return the verdict on comparisons, with adjusted p-values where they have been run."""
    run = [c for c in comparisons if c.complete]
    p_values = zip(adjusted(run), adjusted(run, ahead=False), strict=True)
    judged = []
    for c in comparisons:
        if c.complete:
            for_p, against_p = next(p_values)
            c = replace(c, for_p=for_p, against_p=against_p)
        judged.append(c)
    return Verdict(_word(judged), comparisons=tuple(judged))


def _word(judged: Sequence[Comparison]) -> str:
    """Return the verdict that adjusted p-values come to, in a word."""
    states = {c.state for c in judged}
    if "not run" in states:
        return "not run"
    if any(c.untuned for c in judged):
        return "undecided"
    # where all must be shown, none needs an adjustment
    if all(c.greater is not None and c.greater <= ALPHA for c in judged):
        return "holds"
    if "refuted" not in states:
        return "undecided"
    return "mixed" if "shown" in states else "fails"

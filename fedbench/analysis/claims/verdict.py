"""Verdicts on comparisons that must all be shown: one procedure for all claims of all papers.

A comparison is *shown* if its p-value is at most 5 %, *refuted* if the p-value of the opposite is,
and *open* otherwise; both p-values are adjusted for the number of comparisons (``adjusted``). A
claim *holds* if all unadjusted p-values are at most 5 %: if all comparisons must be shown, no
adjustment is needed. docs/reproduction.md explains the verdicts, and docs/adr/0013 gives the
reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fedbench.analysis.claims.comparison import Comparison
from fedbench.analysis.matching import ALPHA
from fedbench.analysis.stats import least_blocks, least_p
from fedbench.analysis.stepdown import adjusted

DECIDED = ("holds", "fails", "mixed", "undecided")
CANNOT_HOLD = "cannot hold"


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, or on the comparisons of one of its setups.

    Attributes:
        word: ``holds``, ``fails``, ``mixed``, ``undecided``, ``cannot hold`` (not all comparisons
            have been run, but one is refuted), ``not run`` or ``not testable``.
        evidence: The reason for a verdict without comparisons, on one line.
        basis: Basis of the verdict: ``runs``, ``test`` (a test of the code) or ``print`` (the
            paper's own numbers).
        comparisons: All comparisons; those that have not been run at the paper's setting have no
            numbers.
        scaled: The scaled-down check: the same procedure on all comparisons if some of them use
            runs at reduced settings. It is never counted as a verdict.
        by_group: Verdicts on the comparisons of each setup, by title of the setup; empty if there
            is only one setup.
        unread: Documented variants of the settings under which the claim's runs are missing. Until
            they have been run, the verdict is not counted.
        confirmed: Id of the plan that asked for the runs; empty for an exploratory verdict.
        explored: Word of the exploratory verdict next to a confirmed one; otherwise empty.
    """

    word: str
    evidence: str = ""
    basis: str = "runs"
    comparisons: tuple[Comparison, ...] = ()
    scaled: Verdict | None = None
    by_group: Mapping[str, Verdict] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    confirmed: str = ""
    explored: str = ""

    @property
    def outcome(self) -> Verdict:
        """The verdict at the paper's settings, or the scaled-down check if only that was run."""
        return self.scaled if self.scaled is not None and self.word == "not run" else self

    @property
    def listed(self) -> list[Comparison]:
        """The comparisons at the paper's settings where they have been run, else reduced ones.

        p-values are adjusted among comparisons of the same kind.
        """
        if self.scaled is None:
            return list(self.comparisons)
        both = zip(self.comparisons, self.scaled.comparisons, strict=True)
        return [full if full.complete else reduced for full, reduced in both]

    @property
    def run(self) -> list[Comparison]:
        """The comparisons that have been run."""
        return [c for c in self.comparisons if c.complete]

    def count(self, state: str) -> int:
        """Return the number of comparisons in a state (``Comparison.state``)."""
        return sum(c.state == state for c in self.comparisons)

    @property
    def settings(self) -> str:
        """Settings of the runs: ``as printed``, ``retuned`` or ``reduced``; empty without runs."""
        run = self.outcome.run
        if self.basis != "runs" or not run:
            return ""
        if any(c.reduced for c in run):
            return "reduced"
        return "retuned" if any(c.retuned for c in run) else "as printed"

    @property
    def untuned(self) -> bool:
        """Whether rows tuned with fedbench are compared with rows that were not tuned."""
        return any(c.untuned for c in self.comparisons)

    @property
    def lacking(self) -> tuple[str, Comparison, int | None] | None:
        """The outcome prevented by too few blocks, the limiting comparison, and the blocks needed.

        The outcome is ``hold`` or ``fail``. The property is None if the blocks allow both outcomes,
        whichever verdict was reached. A claim can hold if every comparison can be shown. It is sure
        to fail if a comparison whose leads all have the same sign refutes it, whatever the results
        of the others (``least_blocks``).
        """
        if self.word not in DECIDED or not self.comparisons:
            return None
        least = min(self.comparisons, key=lambda c: c.fewest)
        all_behind = sum(c.chances(ahead=False) for c in self.comparisons)
        tests = [("hold", c, c.chances(ahead=True)) for c in self.comparisons]
        tests.append(("fail", least, all_behind))
        for outcome, comparison, chances in tests:
            if chances * least_p(comparison.fewest) > comparison.alpha:
                return outcome, comparison, least_blocks(chances, comparison.alpha)
        return None

    @property
    def counts(self) -> bool:
        """Whether the verdict is counted, that is, decided by runs that allowed either outcome."""
        decided = self.word in DECIDED and self.lacking is None
        either = decided or self.word == CANNOT_HOLD
        return self.basis == "runs" and either and not self.unread

    @property
    def worst(self) -> Comparison | None:
        """The comparison with the strongest evidence against, or the weakest for, the claim.

        The property is None if no comparison has been run.
        """
        return min(self.run, key=_support, default=None)


def _support(c: Comparison) -> tuple[float, ...]:
    """Return a sort key for the support that an executed comparison gives the claim."""
    return (
        c.against_p or 0.0,
        c.less or 0.0,
        -(c.greater or 0.0),
        c.strength,
    )


def decide(comparisons: Sequence[Comparison], alpha: float = ALPHA) -> Verdict:
    """Return the verdict on comparisons that must all be shown, with a verdict per setup."""
    if not comparisons:
        return Verdict("not testable", "the claim names nothing to compare")
    comparisons = [replace(c, alpha=alpha) for c in comparisons]

    groups: dict[str, list[Comparison]] = {}
    for c in comparisons:
        groups.setdefault(c.group, []).append(c)
    by_group = {}
    if len(groups) > 1:
        by_group = {title: decide(members, alpha) for title, members in groups.items()}

    # comparisons of reduced runs count as not run at the paper's settings
    verdict = _judged([c.blank() if c.reduced else c for c in comparisons])
    scaled = None
    if any(c.reduced for c in comparisons):
        scaled = _judged(comparisons)
    return replace(verdict, scaled=scaled, by_group=by_group)


def _judged(comparisons: Sequence[Comparison]) -> Verdict:
    """Return the verdict on comparisons; those that have been run get adjusted p-values."""
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
    """Return the word for the verdict that follows from adjusted p-values."""
    states = {c.state for c in judged}
    untuned = any(c.untuned for c in judged)
    if "not run" in states:
        # adjusted for all comparisons, including those not run yet
        against = [c.less for c in judged if c.complete and c.less is not None]
        refuted = len(judged) * min(against, default=1.0) <= judged[0].alpha
        return CANNOT_HOLD if refuted and not untuned else "not run"
    if untuned:
        return "undecided"
    # no adjustment is needed, because all must be shown
    if all(c.greater is not None and c.greater <= c.alpha for c in judged):
        return "holds"
    if "refuted" not in states:
        return "undecided"
    return "mixed" if "shown" in states else "fails"

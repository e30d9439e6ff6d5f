"""The verdict on comparisons that must all be shown.

A claim is a set of comparisons. It holds if each of them is significant by itself: where all must be shown, testing
each at level α keeps the level of the whole (intersection-union test; Berger, 1982). It fails if at least one is
significant the other way after adjustment for their number (``adjusted``). All p-values are one-sided. Anything else is
undecided, or partly measured if comparisons have not been run. docs/adr/0013 gives the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from fedbench.analysis.claims.comparison import Comparison
from fedbench.analysis.stats import least_p
from fedbench.analysis.stepdown import adjusted, least_blocks

ALPHA = 0.05
TO_HOLD = least_blocks(1, ALPHA)  # blocks with which a claim can hold, however many comparisons it has


@dataclass(frozen=True)
class Counts:
    """Numbers of comparisons of a claim.

    Attributes:
        total: All comparisons.
        run: Those with numbers.
        ahead: Those whose mean lead is above 0.
        behind: Those whose mean lead is below 0.
        significantly_ahead: Those with a p-value of at most 5 % that the first side is ahead, each by itself.
        significantly_behind: Those with a p-value of at most 5 % that the first side is behind, each by itself.
    """

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
        evidence: The reason, in one line.
        reduced: Whether a number behind it was obtained under a setting other than the paper's.
        basis: Source of the verdict: ``runs``, ``proof`` (a test of the code) or ``print`` (the paper's own numbers).
        comparisons: All comparisons, run or not, with their adjusted p-values.
        counts: Numbers of comparisons.
        worst: The comparison that is most against the claim; None if none has been run.
        by_group: Verdict on the comparisons of each setup, by its title; empty if there is only one.
    """

    verdict: str
    evidence: str
    reduced: bool = False
    basis: str = "runs"
    comparisons: tuple[Comparison, ...] = ()
    counts: Counts = Counts()
    worst: Comparison | None = None
    by_group: Mapping[str, Verdict] = field(default_factory=dict)

    @property
    def limit(self) -> str:
        """Which outcome the blocks did not allow, or not for sure; empty if the claim could both hold and fail.

        It is sure to fail if a comparison of one sign refutes it, whatever the others are (``least_blocks``).
        """
        if self.verdict not in ("holds", "undecided") or not self.comparisons:
            return ""
        least = min(self.comparisons, key=lambda c: c.fewest)
        needed, blocks = least_blocks(len(self.comparisons), ALPHA), blocks_text(least.fewest, least.blocks)
        if least.fewest >= needed:
            return ""
        if least.fewest < TO_HOLD:
            return f"could not hold with {blocks} ({TO_HOLD} needed)"
        return f"not sure to fail with {blocks} ({needed} needed)"


def blocks_text(n: int, blocks: str) -> str:
    """Return a number of blocks as text: '1 seed', '6 splits'."""
    return f"{n} {blocks}{'' if n == 1 else 's'}"


NO_GROUPS: Mapping[str, Verdict] = MappingProxyType({})


def decide(comparisons: Sequence[Comparison]) -> Verdict:
    """Return the verdict on comparisons that must all be significant, and that on the comparisons of each setup."""
    if not comparisons:
        return Verdict("not testable", "the claim names nothing to compare")
    titles = dict.fromkeys(c.group for c in comparisons)
    groups = {title: _decided(_judged([c for c in comparisons if c.group == title])) for title in titles}
    by_group = groups if len(groups) > 1 else {}
    return replace(_decided(_judged(comparisons), by_group), by_group=by_group)


def _judged(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return comparisons with adjusted p-values where they count as run.

    A comparison that lacks some of its parts does not, whichever way the others point.
    """
    run = [i for i, c in enumerate(comparisons) if c.greater is not None and c.complete]
    found = list(comparisons)
    for i, against_p in zip(run, adjusted([comparisons[i].opposite for i in run]), strict=True):
        found[i] = replace(found[i], against_p=against_p)
    return found


def _decided(judged: Sequence[Comparison], by_group: Mapping[str, Verdict] = NO_GROUPS) -> Verdict:
    run = [c for c in judged if c.against_p is not None]
    counts = _counts(judged, run)
    begun = sum(c.greater is not None for c in judged) - len(run)
    worst: Comparison | None
    if not run:
        word, text, worst = "not run", f"0 of {len(judged)} comparisons have been run", None
        if begun:
            word, text = "partly measured", f"{text}, {begun} in part"
    else:
        word = _word(judged, run)
        worst = min(run, key=_least_shown if word == "holds" else _most_against)
        reason = _reason(word, worst, len(run))
        text = f"{_counts_text(counts)}; {reason}" if len(judged) > 1 else reason.partition(": ")[2]
        if word == "partly measured" and by_group:
            text += "; " + "; ".join(f"{title}: {v.verdict}" for title, v in by_group.items())
    text += _uneven_note(judged)
    found = Verdict(word, text, any(c.reduced for c in run), "runs", tuple(judged), counts, worst)
    return replace(found, evidence=f"{text}; {found.limit}") if word == "holds" and found.limit else found


def _word(judged: Sequence[Comparison], run: Sequence[Comparison]) -> str:
    if any((c.against_p or 0.0) <= ALPHA for c in run):
        return "fails"
    if len(run) < len(judged):
        return "partly measured"
    return "holds" if all(_p_ahead(c) <= ALPHA for c in run) else "undecided"


def _p_ahead(c: Comparison) -> float:
    return 1.0 if c.greater is None else c.greater


def _least_shown(c: Comparison) -> tuple[float, float]:
    """Return a key by which the weakest of several comparisons that are shown comes first."""
    return -_p_ahead(c), c.strength


def _most_against(c: Comparison) -> tuple[float, float, float, float]:
    """Return a key by which the comparison that is most against a claim comes first."""
    return (c.against_p or 0.0), (c.less or 0.0), -_p_ahead(c), c.strength


def _counts(judged: Sequence[Comparison], run: Sequence[Comparison]) -> Counts:
    leads = [c.mean or 0.0 for c in run]
    return Counts(
        len(judged),
        len(run),
        sum(lead > 0 for lead in leads),
        sum(lead < 0 for lead in leads),
        sum(_p_ahead(c) <= ALPHA for c in run),
        sum((c.less or 0.0) <= ALPHA for c in run),
    )


def _counts_text(counts: Counts) -> str:
    of = (
        f"{counts.run} of {counts.total} comparisons have been run"
        if counts.run < counts.total
        else (f"{counts.total} comparison{'s' if counts.total > 1 else ''}")
    )
    return (
        f"{of}: {counts.ahead} ahead ({counts.significantly_ahead} significantly), "
        f"{counts.behind} behind ({counts.significantly_behind} significantly)"
    )


def _reason(word: str, worst: Comparison, run: int) -> str:
    """Return what the verdict rests on: the comparison that is most against the claim."""
    interval = f" ({worst.interval_text()})" if worst.interval_text() else ""
    text = f"the {'weakest' if word == 'holds' else 'worst'}: {worst.text()}{interval}, p = {_p_ahead(worst):.4f}"
    if word == "holds":
        return text
    among = f" (adjusted for {run} comparisons)" if run > 1 else ""
    text += f" for it, {worst.against_p:.4f} against it{among}"
    return text if word == "fails" else text + _too_few(worst, run)


def _too_few(worst: Comparison, run: int) -> str:
    """Return how many blocks would decide, where those at hand cannot."""
    n, blocks = worst.n, blocks_text(worst.n, worst.blocks)
    if not n:
        return ""
    if least_p(n) > ALPHA:
        return f"; {blocks} cannot give less than {least_p(n):g}; at least 5 {worst.blocks}s are needed, 10 recommended"
    if (worst.less or 0.0) <= ALPHA and n < (needed := least_blocks(run, ALPHA)):
        return f"; among {run} comparisons, {needed} {worst.blocks}s of one sign are sure to decide"
    return ""


def _uneven_note(comparisons: Sequence[Comparison]) -> str:
    n = sum(c.uneven for c in comparisons)
    return f"; not compared, since the two sides are reduced in different ways: {n}" if n else ""

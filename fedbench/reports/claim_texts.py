"""The words for claims, in files and on the page, and the counts of claims."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from fedbench.analysis.claims.comparison import Comparison
from fedbench.analysis.claims.judge import Readings, comparable, differing
from fedbench.analysis.claims.verdict import Verdict
from fedbench.papers.readings import ADOPTED, AXES, Reading
from fedbench.papers.schema import Claim, Paper
from fedbench.reports.filters import p_text, plural
from fedbench.reports.templates import BADGES

AXIS_WORDS = {
    "weighting": "weighting",
    "round": "round",
    "splits": "data splits",
    "variant": "settings",
}
SCALED = {  # words of the scaled-down check, by those of verdicts
    "holds": "same direction",
    "fails": "opposite direction",
    "mixed": "mixed",
    "undecided": "unclear",
}
_CHOICES = {
    "adopted": "as in the tables",
    "fixed": "split of the experiments",
    "drawn": "all splits that have been run",
}
_READING_WORDS = {
    "weighting": "{}",
    "round": "{} round",
    "splits": "other splits",
    "variant": "{}",
}


@dataclass(frozen=True)
class Judged:
    """The counted properties of a claim, also in ``summary.json``.

    Attributes:
        id: Id of the claim.
        word: Its verdict at the paper's settings.
        counts: How many of its comparisons are shown and refuted.
        basis: ``runs``, ``test`` or ``print``.
        one_way: Why its runs could have decided it in one way only, or not at all; empty if they
            could have come out both ways.
        scaled: The result of the scaled-down check, one of ``SCALED``; empty if there is none.
        readings: The results under other readings of the paper; empty if none has been run.
    """

    id: str
    word: str
    counts: str = ""
    basis: str = "runs"
    one_way: str = ""
    scaled: str = ""
    readings: str = ""

    @property
    def state(self) -> str:
        """Its column in the counts, a word of ``BADGES["state"]``: one for every claim."""
        if self.basis != "runs":
            return self.basis
        return "not counted" if self.one_way else self.word


@dataclass(frozen=True)
class ClaimCounts:
    """Numbers of claims, the same on every page."""

    claims: Sequence[Judged]

    @property
    def total(self) -> int:
        """Number of all claims."""
        return len(self.claims)

    @cached_property
    def states(self) -> Counter[str]:
        """Numbers by ``Judged.state``."""
        return Counter(claim.state for claim in self.claims)

    @cached_property
    def scaled(self) -> Counter[str]:
        """Numbers of claims without a verdict, by the result of their scaled-down check."""
        return Counter(claim.scaled for claim in self.claims if claim.scaled)

    @property
    def text(self) -> str:
        """The numbers as text."""
        text = plural(self.total, "claim")
        if self.claims:
            badges = BADGES["state"].items()
            states = [
                f"{self.states[state]} {badge['word']}"
                for state, badge in badges
                if self.states[state]
            ]
            text += f": {', '.join(states)}"
        if self.scaled:
            checks = [
                f"{self.scaled[word]} {word}" for word in SCALED.values() if self.scaled[word]
            ]
            text += f"; scaled-down checks of those not run: {', '.join(checks)}"
        return text


def judged(claim: Claim, readings: Readings) -> Judged:
    """Return the counted properties of a claim."""
    verdict = readings[ADOPTED]
    return Judged(
        claim.id,
        verdict.word,
        counts_text(verdict),
        verdict.basis,
        one_way_text(verdict),
        scaled_word(verdict) if verdict.word == "not run" else "",
        readings_text(readings),
    )


# ---- verdicts


def scaled_word(verdict: Verdict) -> str:
    """Return the result of the scaled-down check; empty if there is none."""
    check = verdict.scaled
    if check is None or check.word not in SCALED:
        return ""
    return SCALED[check.word if check.counts and not check.untuned else "undecided"]


def counts_text(verdict: Verdict) -> str:
    """Return how many comparisons are shown and refuted; empty if the claim has none."""
    total = len(verdict.comparisons)
    run = len(verdict.run)
    shown = verdict.count("shown")
    if not total:
        return ""
    if not run:
        return f"{plural(total, 'comparison')}, none run"
    counts = f"{shown} of {run} shown, {verdict.count('refuted')} refuted"
    if run < total:
        return f"{run} of {total} run: {counts}"
    if verdict.word == "holds" and shown < total:
        return f"each of {total} by itself; after adjustment {counts}"
    return counts


def one_way_text(verdict: Verdict) -> str:
    """Return the outcome that the seeds or splits of a claim did not allow; empty if none."""
    if verdict.lacking is None:
        return ""
    outcome, least, needed = verdict.lacking
    could = "could not hold" if outcome == "hold" else "not sure to fail"
    return f"{could} with {plural(least.fewest, least.blocks)} ({needed or 'more than 16'} needed)"


def reason_text(verdict: Verdict) -> str:
    """Return the comparison that is most against the claim, and why others are undecided."""
    outcome = verdict.outcome
    notes = [verdict.evidence] if verdict.evidence else []
    if (c := outcome.worst) is not None:
        which = "weakest" if outcome.word == "holds" else "worst"
        notes.append(
            f"the {which}: {c.label}: {lead_text(c)} over {pairs_text(c)}, "
            f"p = {p_text(c.greater)} for it, {p_text(c.less)} against it"
        )
    if uneven := sum(c.uneven for c in outcome.comparisons):
        notes.append(f"not compared, since the two sides are reduced in different ways: {uneven}")
    if outcome.untuned:
        notes.append("not tuned alike: values of some rows were searched, those of others not")
    if outcome is verdict.scaled:
        notes.append(one_way_text(outcome))
    return "; ".join(filter(None, notes))


def reductions_text(verdict: Verdict) -> str:
    """Return how the settings behind a scaled-down check differ from the paper's."""
    comparisons = verdict.scaled.comparisons if verdict.scaled else ()
    return "; ".join(dict.fromkeys(departure for c in comparisons for departure in c.reduced))


def needs_text(claim: Claim, verdict: Verdict) -> str:
    """Return the conditions of a decision; empty for a claim that is decided."""
    return claim.needs if verdict.word in ("undecided", "not run") else ""


def blocks_text(verdict: Verdict) -> str:
    """Return the number of seeds or splits of comparisons: '10 seeds', '2 to 6 splits'."""
    run = [c for c in verdict.comparisons if c.n]
    if not run:
        return ""
    numbers = [c.n for c in run]
    low = min(numbers)
    high = plural(max(numbers), run[0].blocks)
    return high if low == max(numbers) else f"{low} to {high}"


# ---- comparisons


def state_of(c: Comparison) -> str:
    """Return the state of a comparison, a word of ``BADGES["comparison"]``."""
    return "not comparable" if c.uneven else c.state


def lead_text(c: Comparison) -> str:
    """Return the mean lead; empty for a comparison that has not been run."""
    if c.mean is None:
        return ""
    return f"{c.mean:+.4g} {c.unit}".rstrip() if math.isfinite(c.mean) else "diverged"


def interval_text(c: Comparison) -> str:
    """Return the 95 % interval of the mean lead; empty if there is none."""
    return "" if c.low is None or c.high is None else f"{c.low:+.4g} to {c.high:+.4g}"


def pairs_text(c: Comparison) -> str:
    """Return the number of pairs: '10 seeds'; empty for a comparison that has not been run."""
    return "" if c.mean is None else plural(c.n, c.blocks)


# ---- readings


def readings_text(readings: Readings) -> str:
    """Return whether the readings that have been run agree; empty if only one has been run."""
    others = differing(readings)
    if others is None:
        return ""
    if not others:
        return f"the same under all {len(comparable(readings))} readings that were run"
    return f"differs: {'; '.join(map(reading_text, others))}"


def reading_text(reading: Reading) -> str:
    """Return the differences of a reading from the adopted one."""
    axes = reading.differs_from(ADOPTED)
    return ", ".join(_READING_WORDS[axis].format(getattr(reading, axis)) for axis in axes)


def axes_of(readings: Readings) -> list[str]:
    """Return the axes along which the readings of a claim differ."""
    differing_axes = {axis for reading in readings for axis in reading.differs_from(ADOPTED)}
    return [axis for axis in AXES if axis in differing_axes]


def choice_text(paper: Paper, axis: str, value: str | None) -> str:
    """Return the value of a reading along an axis in words."""
    if value is None:
        return "as in the experiments"
    if axis == "variant":
        return paper.readings.variants[value].title
    return _CHOICES.get(value, value)

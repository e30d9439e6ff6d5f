"""Texts about claims, for files and the page, and the counts of claims."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedbench.analysis.claims.comparison import RATIO, Comparison
from fedbench.analysis.claims.judge import Readings, comparable, differing
from fedbench.analysis.claims.verdict import Verdict
from fedbench.analysis.matching import ALPHA
from fedbench.papers.readings import ADOPTED, AXES, Reading
from fedbench.papers.schema import Claim, Paper
from fedbench.reports.filters import plural
from fedbench.reports.templates import note_lines

AXIS_WORDS = {
    "weighting": "weighting",
    "round": "round",
    "splits": "data splits",
    "variant": "settings",
}
SCALED = {  # words for the scaled-down check, by verdict
    "holds": "same direction",
    "fails": "opposite direction",
    "mixed": "mixed",
    "undecided": "unclear",
}
_CHOICES = {
    "adopted": "as in the tables",
    "fixed": "the split of data seed 0",
    "drawn": "all splits that have been run",
}
_READING_WORDS = {
    "weighting": "{}",
    "round": "{} round",
    "splits": "one split",
    "variant": "{}",
}


@dataclass(frozen=True)
class Judged:
    """The counted properties of a claim, which ``summary.json`` also contains.

    Attributes:
        id: Id of the claim.
        word: Verdict at the paper's settings.
        counts: Text on the numbers of comparisons shown and refuted.
        basis: ``runs``, ``test`` or ``print``.
        one_way: The outcome that the runs did not allow; empty if they allowed both outcomes.
        scaled: Result of the scaled-down check, a value of ``SCALED``; empty if there is none.
        readings: Results under other readings of the paper; empty if none has been run.
        settings: Settings of the runs, as in ``Verdict``.
        confirmed: Id of the plan behind a confirmed verdict; empty for an exploratory one.
        explored: Word of the exploratory verdict next to a confirmed one.
        text: The claim.
        effect: The decisive comparison with its lead and interval; empty if none has been run.
    """

    id: str
    word: str
    counts: str = ""
    basis: str = "runs"
    one_way: str = ""
    scaled: str = ""
    readings: str = ""
    settings: str = ""
    confirmed: str = ""
    explored: str = ""
    text: str = ""
    effect: str = ""

    @property
    def status(self) -> str:
        """``confirmed`` or ``exploratory``; empty for a claim without a verdict from runs."""
        if self.basis != "runs" or self.word in ("not run", "not testable"):
            return ""
        return "confirmed" if self.confirmed else "exploratory"

    @property
    def standing(self) -> str:
        """The word of a verdict with its status and settings: ``holds, confirmed, as printed``.

        A claim whose comparisons have partly been run says whether a plan asked for them.
        """
        partly = self.word == "not run" and " run: " in self.counts
        words = ["partly run" if partly else self.word]
        if partly and self.confirmed:
            words.append("planned")
        if self.status:
            words += [self.status, self.settings]
        return ", ".join(filter(None, words))

    @property
    def state(self) -> str:
        """The column in which the claim is counted, a key of ``BADGES["state"]``."""
        if self.basis != "runs":
            return self.basis if self.word == "holds" else f"{self.basis} fails"
        return "not counted" if self.one_way else self.word


def judged(
    claim: Claim,
    readings: Readings,
    paper: Paper,
) -> Judged:
    """Return the counted properties of a claim of a paper."""
    verdict = readings[ADOPTED]
    return Judged(
        id=claim.id,
        word=verdict.word,
        counts=counts_text(verdict),
        basis=verdict.basis,
        one_way=one_way_text(verdict),
        scaled=scaled_word(verdict) if verdict.word == "not run" else "",
        readings=readings_text(readings, paper),
        settings=verdict.settings,
        confirmed=verdict.confirmed,
        explored=verdict.explored,
        text=claim.text,
        effect=effect_text(verdict),
    )


# ---- verdicts


def scaled_word(verdict: Verdict) -> str:
    """Return the word for the result of the scaled-down check; empty if there is none."""
    check = verdict.scaled
    if check is None or check.word not in SCALED:
        return ""
    return SCALED[check.word if check.counts and not check.untuned else "undecided"]


def counts_text(verdict: Verdict) -> str:
    """Return the counts of shown and refuted comparisons; empty if the claim has none."""
    total = len(verdict.comparisons)
    run = len(verdict.run)
    shown = verdict.count("shown")
    if not total:
        return ""
    if not run:
        return f"{plural(total, 'comparison')}, none run"
    counts = f"{shown} of {run} shown, {verdict.count('refuted')} refuted"
    level = verdict.comparisons[0].alpha
    if level != ALPHA:
        counts = f"{counts}, at level {level:.3g}"
    if run < total:
        return f"{run} of {total} run: {counts}"
    if verdict.word == "holds" and shown < total:
        return f"each of {total} by itself; after adjustment {counts}"
    return counts


def one_way_text(verdict: Verdict) -> str:
    """Return why a verdict is not counted: readings not run, or an outcome that was impossible.

    The text is empty if it is counted.
    """
    if verdict.unread:
        return f"without runs of the reading {', '.join(verdict.unread)}"
    if verdict.lacking is None:
        return ""
    outcome, least, needed = verdict.lacking
    could = "could not hold" if outcome == "hold" else "might have been unable to fail"
    return f"{could} with {plural(least.fewest, least.blocks)} ({needed or 'more than 16'} needed)"


def reason_text(verdict: Verdict) -> str:
    """Return the comparison with the strongest evidence against a claim, and other reasons."""
    notes = note_lines(
        "reason.txt",
        verdict=verdict,
        outcome=verdict.outcome,
        lead_text=lead_text,
        pairs_text=pairs_text,
        one_way=one_way_text(verdict.outcome) if verdict.outcome is verdict.scaled else "",
    )
    return "; ".join(notes)


def reductions_text(verdict: Verdict) -> str:
    """Return the departures from the paper's settings behind a scaled-down check."""
    comparisons = verdict.scaled.comparisons if verdict.scaled else ()
    return "; ".join(dict.fromkeys(departure for c in comparisons for departure in c.reduced))


def needs_text(claim: Claim, verdict: Verdict) -> str:
    """Return the requirements for a verdict; empty for a claim that is decided."""
    return claim.needs if verdict.word in ("undecided", "not run") else ""


def blocks_text(verdict: Verdict) -> str:
    """Return the number of seeds or splits of comparisons: '10 seeds', '2 to 6 splits'."""
    run = [c for c in verdict.comparisons if c.n]
    if not run:
        return ""
    numbers = sorted({c.n for c in run})
    text = plural(numbers[-1], run[0].blocks)
    return text if len(numbers) == 1 else f"{numbers[0]} to {text}"


# ---- comparisons


def state_of(c: Comparison) -> str:
    """Return the state of a comparison, a key of ``BADGES["comparison"]``."""
    return "not comparable" if c.uneven else c.state


def lead_text(c: Comparison) -> str:
    """Return the mean lead; empty for a comparison that has not been run."""
    if c.mean is None:
        return ""
    if not math.isfinite(c.mean):
        return "diverged"
    if c.unit == RATIO:
        return f"{math.exp(c.mean):.3g} times as fast"
    return f"{c.mean:+.4g} {c.unit}".rstrip()


def interval_text(c: Comparison) -> str:
    """Return the 95 % interval of the mean lead; empty if there is none."""
    if c.low is None or c.high is None:
        return ""
    if c.unit == RATIO:
        return f"{math.exp(c.low):.3g} to {math.exp(c.high):.3g}"
    return f"{c.low:+.4g} to {c.high:+.4g}"


def pairs_text(c: Comparison) -> str:
    """Return the number of pairs: '10 seeds'; empty for a comparison that has not been run."""
    return "" if c.mean is None else plural(c.n, c.blocks)


def widest(comparisons: Sequence[Comparison]) -> dict[str, float]:
    """Return the widest end of an interval or lead of a split by unit of the leads."""
    ends: dict[str, float] = {}
    for c in comparisons:
        values = list(c.differences.values())
        if c.low is not None and c.high is not None:
            values += [c.low, c.high]
        for value in values:
            largest = ends.setdefault(c.unit, 0.0)
            ends[c.unit] = max(largest, abs(value))
    return ends


def place(lead: float, widest: float) -> float:
    """Return the place of a lead on an axis from -50 to 50."""
    return 50 * lead / widest


def effect_text(verdict: Verdict) -> str:
    """Return the comparison on which a verdict depends most, with its lead and interval."""
    worst = verdict.worst
    if worst is None:
        return ""
    interval = interval_text(worst)
    between = f" [{interval}]" if interval else ""
    text = f"{worst.label}: {lead_text(worst)}{between} over {pairs_text(worst)}"
    if not worst.mean:
        return text
    if worst.state == "open":
        return f"{text}, open"
    side = "against" if worst.mean < 0 else "for"
    return f"{text}, {side} the claim"


# ---- readings


def readings_text(readings: Readings, paper: Paper) -> str:
    """Return a text on whether the readings agree; empty if fewer than two are counted.

    If only some comparisons have been run at the paper's settings, the scaled-down checks are
    compared, and readings that refute another number of these comparisons are listed.
    """
    others = differing(readings)
    if others is None:
        return ""
    adopted = readings[ADOPTED]
    scaled = "" if adopted.outcome is adopted else "scaled-down check "
    texts = [f"{scaled}the same under all {len(comparable(readings))} readings that were run"]
    if others:
        words = [
            f"{readings[other].outcome.word} ({reading_text(other, paper)})" for other in others
        ]
        texts = [f"{scaled}differs: {'; '.join(words)}"]
    if scaled:
        refuted = adopted.count("refuted")
        for reading, verdict in readings.items():
            one_axis = len(reading.differs_from(ADOPTED)) == 1
            if one_axis and verdict.run and verdict.count("refuted") != refuted:
                texts.append(f"{counts_text(verdict)} ({reading_text(reading, paper)})")
    return "; ".join(texts)


def reading_text(reading: Reading, paper: Paper) -> str:
    """Return the differences between a reading and the adopted one."""
    texts = []
    for axis in reading.differs_from(ADOPTED):
        value = getattr(reading, axis)
        if axis == "variant":
            value = paper.readings.variants[value].title
        texts.append(_READING_WORDS[axis].format(value))
    return ", ".join(texts)


def axes_of(readings: Readings) -> list[str]:
    """Return the axes along which the readings of a claim differ."""
    differing_axes = {axis for reading in readings for axis in reading.differs_from(ADOPTED)}
    return [axis for axis in AXES if axis in differing_axes]


def choice_text(
    paper: Paper,
    axis: str,
    value: str | None,
) -> str:
    """Return the value of a reading along an axis, in words."""
    if value is None:
        return "as in the experiments"
    if axis == "variant":
        return paper.readings.variants[value].title
    return _CHOICES.get(value, value)

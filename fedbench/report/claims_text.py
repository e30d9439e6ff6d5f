"""The words for claims: verdicts with their counts, comparisons, and verdicts under every reading."""

from __future__ import annotations

import math

from fedbench.analysis.claims.comparison import Comparison
from fedbench.analysis.claims.multiverse import Multiverse, is_measured
from fedbench.analysis.claims.verdict import ALPHA, Verdict
from fedbench.papers.readings import ADOPTED, AXES
from fedbench.papers.schema import Claim, Paper
from fedbench.report.format import Judged, p_text, plural

AXIS_WORDS = {"weighting": "weighting", "round": "round", "splits": "data splits", "variant": "settings"}
_PAIRS = 20  # most pairs whose differences are listed


def judged(claim: Claim, found: Multiverse) -> Judged:
    """Return what pages count of a claim."""
    verdict, headline = found.adopted, found.headline
    details = "" if headline is None else headline.details(AXIS_WORDS)
    word = "" if headline is None else headline.word
    return Judged(claim.id, verdict.verdict, verdict.basis, word, details, verdict.reduced)


def counts_text(verdict: Verdict) -> str:
    """Return how many comparisons point which way; empty if the claim has none."""
    n = verdict.counts
    if not n.total:
        return ""
    total = plural(n.total, "comparison")
    if not n.run:
        return f"{total}, none run"
    level = n.run - n.ahead - n.behind
    return (
        (f"{total}: " if n.run == n.total else f"{total}, {n.run} run: ")
        + f"{n.ahead} point the paper's way ({n.significantly_ahead} significant), "
        + f"{n.behind} against it ({n.significantly_behind} significant)"
        + (f", {level} level" if level else "")
    )


def reason(verdict: Verdict) -> str:
    """Return the evidence without the counts, with which it begins and which are shown apart."""
    return verdict.evidence.partition("; ")[2] if verdict.counts.total > 1 else verdict.evidence


def needs(claim: Claim, verdict: Verdict) -> str:
    """Return what a decision needs; empty for a claim that is decided."""
    return claim.needs if verdict.verdict in ("undecided", "partly measured", "not run") else ""


# ---- comparisons


def direction(c: Comparison) -> str:
    """Return where a comparison points, and whether significantly by itself; both ways by the same measure."""
    if c.mean is None:
        return "not comparable" if c.uneven else "not run"
    if not c.complete:
        return "incomplete"
    if c.greater is not None and c.greater <= ALPHA:
        return "significantly for"
    if c.less is not None and c.less <= ALPHA:
        return "significantly against"
    return "for" if c.mean > 0 else "against" if c.mean < 0 else "level"


def lead_text(c: Comparison) -> str:
    """Return the mean lead; empty for a comparison that has not been run."""
    if c.mean is None:
        return ""
    return c.amount(c.mean) if math.isfinite(c.mean) else "diverged"


def interval_text(c: Comparison) -> str:
    """Return the 95 % interval of the mean lead; empty if there is none."""
    return "" if c.low is None or c.high is None else f"{c.low:+.4g} to {c.high:+.4g}"


def pairs_text(c: Comparison) -> str:
    """Return the number of pairs: '10 seeds'; empty for a comparison that has not been run."""
    return "" if c.mean is None else plural(c.n, c.blocks)


def differences(c: Comparison) -> list[tuple[str, str]]:
    """Return the lead in each block, or in each of the parts that the comparison consists of, as (name, text)."""
    if c.mean is None:
        return []
    if c.parts:
        return [
            (p.label, "not run" if p.mean is None else f"{p.amount(p.mean)}, p = {p_text(p.greater)}") for p in c.parts
        ]
    return [(f"{c.blocks} {block}", c.amount(d)) for block, d in sorted(c.differences.items())[:_PAIRS]]


# ---- readings


def axes_of(found: Multiverse) -> list[str]:
    """Return the axes along which the readings of a claim differ."""
    return [axis for axis in AXES if any(axis in reading.differs_from(ADOPTED) for reading in found.verdicts)]


def read_as(verdict: Verdict) -> str:
    """Return the verdict under a reading, or that there are too few seeds or splits to decide."""
    if verdict.verdict != "undecided" or is_measured(verdict):
        return verdict.verdict
    fewest = min((c for c in verdict.comparisons if c.n), key=lambda c: c.n, default=None)
    return verdict.verdict if fewest is None else f"too few {fewest.blocks}s"


def blocks_text(verdict: Verdict) -> str:
    """Return the number of seeds or splits of a verdict's comparisons: '10 seeds', '2 to 6 splits'."""
    run = [c for c in verdict.comparisons if c.n]
    if not run:
        return ""
    low, high = min(c.n for c in run), max(c.n for c in run)
    return plural(high, run[0].blocks) if low == high else f"{low} to {plural(high, run[0].blocks)}"


def reading_counts(verdict: Verdict) -> str:
    """Return the counts of a verdict with the outcome that its blocks did not allow."""
    return "; ".join(filter(None, (counts_text(verdict), verdict.limit)))


def choice_text(paper: Paper, axis: str, value: str | None) -> str:
    """Return the value of a reading along an axis in words."""
    if value is None or value == "adopted":
        return "as in the tables" if axis in ("weighting", "round") else "as in the experiments"
    if axis == "variant":
        return next(v.title for v in paper.readings.variants if v.id == value)
    return {"fixed": "split of the experiments", "drawn": "all splits that have been run"}.get(value, value)


def alternatives(paper: Paper) -> list[tuple[str, str, str]]:
    """Return the alternatives that the readings of a paper combine, as (axis, value, why it is defensible)."""
    given = paper.readings
    found = [
        (AXIS_WORDS[axis], choice_text(paper, axis, a.value), a.why)
        for axis, entries in (("weighting", given.weighting), ("round", given.round), ("splits", given.splits))
        for a in entries
    ]
    return [*found, *((AXIS_WORDS["variant"], v.title, v.why) for v in given.variants)]

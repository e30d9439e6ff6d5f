"""The claims of a paper as text: verdicts, comparisons, and verdicts under every reading."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedbench.analysis.claims.comparison import Comparison
from fedbench.analysis.claims.multiverse import Multiverse, is_measured, multiverse
from fedbench.analysis.claims.verdict import ALPHA, Verdict
from fedbench.analysis.matching import Evidence
from fedbench.papers.readings import ADOPTED, AXES, Reading
from fedbench.papers.schema import Claim, Paper
from fedbench.report.views import ClaimView, ComparisonView, GroupView, MultiverseView, ReadingView

_OPEN = ("undecided", "partly measured", "not run")
_PAIRS = 20  # most pairs whose differences are listed


def claim_views(paper: Paper, evidence: Evidence, only: Sequence[Reading] = ()) -> tuple[ClaimView, ...]:
    """Return the claims of a paper with their verdicts.

    Args:
        paper: The paper.
        evidence: The runs.
        only: Readings to judge, the adopted one among them; all of the paper's if empty.
    """
    return tuple(_claim(paper, c, multiverse(paper, c, evidence, only)) for c in paper.claims)


def _claim(paper: Paper, claim: Claim, found: Multiverse) -> ClaimView:
    verdict = found.adopted
    return ClaimView(
        id=claim.id,
        text=claim.text,
        where=claim.reference,
        verdict=verdict.verdict,
        evidence=_reason(verdict),
        reduced=verdict.reduced,
        printed=claim.printed,
        basis=verdict.basis,
        tested=claim.tested,
        beyond=claim.beyond,
        refuted=claim.refuted,
        needs=claim.needs if verdict.verdict in _OPEN else "",
        counts=counts_text(verdict),
        groups=tuple(
            GroupView(title, v.verdict, counts_text(v), found.by_group[title].text if title in found.by_group else "")
            for title, v in verdict.by_group.items()
        ),
        comparisons=tuple(map(comparison_view, verdict.comparisons)),
        multiverse=_multiverse(paper, found),
    )


AXIS_WORDS = {"weighting": "weighting", "round": "round", "splits": "data splits", "variant": "settings"}


def _multiverse(paper: Paper, found: Multiverse) -> MultiverseView | None:
    if found.headline is None:
        return None
    axes = [axis for axis in AXES if any(axis in reading.differs_from(ADOPTED) for reading in found.verdicts)]
    readings = tuple(
        ReadingView(
            tuple(_choice(paper, axis, getattr(reading, axis)) for axis in axes),
            _read_as(v),
            "; ".join(filter(None, (counts_text(v), v.limit))),
            _blocks(v),
            reading == ADOPTED,
        )
        for reading, v in found.verdicts.items()
    )
    return MultiverseView(
        headline=found.headline.word,
        details=found.headline.details(AXIS_WORDS),
        axes=tuple(AXIS_WORDS[axis] for axis in axes),
        readings=readings if axes else (),
    )


def _read_as(verdict: Verdict) -> str:
    """Return the verdict under a reading, or that there are too few seeds or splits to decide."""
    if verdict.verdict != "undecided" or is_measured(verdict):
        return verdict.verdict
    fewest = min((c for c in verdict.comparisons if c.n), key=lambda c: c.n, default=None)
    return verdict.verdict if fewest is None else f"too few {fewest.blocks}s"


def _blocks(verdict: Verdict) -> str:
    """Return the number of seeds or splits of a verdict's comparisons: '10 seeds', '2 to 6 splits'."""
    run = [c for c in verdict.comparisons if c.n]
    if not run:
        return ""
    low, high = min(c.n for c in run), max(c.n for c in run)
    return f"{low if low == high else f'{low} to {high}'} {run[0].blocks}{'' if high == 1 else 's'}"


def _choice(paper: Paper, axis: str, value: str | None) -> str:
    """Return the value of a reading along an axis in words."""
    if value is None or value == "adopted":
        return "as in the tables" if axis in ("weighting", "round") else "as in the experiments"
    if axis == "variant":
        return next(v.title for v in paper.readings.variants if v.id == value)
    return {"fixed": "split of the experiments", "drawn": "all splits that have been run"}.get(value, value)


def reading_views(paper: Paper) -> tuple[tuple[str, str, str], ...]:
    """Return the alternatives that the readings of a paper combine, as (axis, value, why it is defensible)."""
    given = paper.readings
    found = [
        (AXIS_WORDS[axis], _choice(paper, axis, a.value), a.why)
        for axis, alternatives in (("weighting", given.weighting), ("round", given.round), ("splits", given.splits))
        for a in alternatives
    ]
    return (*found, *((AXIS_WORDS["variant"], v.title, v.why) for v in given.variants))


def _reason(verdict: Verdict) -> str:
    """Return the evidence without the counts, with which it begins and which are shown apart."""
    return verdict.evidence.partition("; ")[2] if verdict.counts.total > 1 else verdict.evidence


def counts_text(verdict: Verdict) -> str:
    """Return how many comparisons point which way; empty if the claim has none."""
    n = verdict.counts
    if not n.total:
        return ""
    total = f"{n.total} comparison{'' if n.total == 1 else 's'}"
    if not n.run:
        return f"{total}, none run"
    level = n.run - n.ahead - n.behind
    return (
        (f"{total}: " if n.run == n.total else f"{total}, {n.run} run: ")
        + f"{n.ahead} point the paper's way ({n.significantly_ahead} significant), "
        + f"{n.behind} against it ({n.significantly_behind} significant)"
        + (f", {level} level" if level else "")
    )


def comparison_view(c: Comparison) -> ComparisonView:
    """Return a comparison as text."""
    if c.mean is None:
        return ComparisonView(c.label, c.group, "not comparable" if c.uneven else "not run")
    interval = "" if c.low is None or c.high is None else f"{c.low:+.4g} to {c.high:+.4g}"
    return ComparisonView(
        label=c.label,
        group=c.group,
        direction=_direction(c),
        lead=c.amount(c.mean) if math.isfinite(c.mean) else "diverged",
        interval=interval,
        pairs=f"{c.n} {c.blocks}{'' if c.n == 1 else 's'}",
        for_p=_p(c.greater),
        against_p=_p(c.less),
        adjusted_p=_p(c.against_p),
        differences=_differences(c),
    )


def _differences(c: Comparison) -> tuple[tuple[str, str], ...]:
    """Return the lead in each block, or in each of the parts that the comparison consists of."""
    if c.parts:
        return tuple(
            (p.label, "not run" if p.mean is None else f"{p.amount(p.mean)}, p = {_p(p.greater)}") for p in c.parts
        )
    return tuple((f"{c.blocks} {block}", c.amount(d)) for block, d in sorted(c.differences.items())[:_PAIRS])


def _direction(c: Comparison) -> str:
    """Return where a comparison points, and whether significantly by itself; both ways by the same measure."""
    if not c.complete:
        return "incomplete"
    if c.greater is not None and c.greater <= ALPHA:
        return "significantly for"
    if c.less is not None and c.less <= ALPHA:
        return "significantly against"
    return "for" if (c.mean or 0) > 0 else "against" if (c.mean or 0) < 0 else "level"


def _p(p: float | None) -> str:
    return "" if p is None else f"{p:.4f}" if p >= 1e-4 else f"{p:.1e}"

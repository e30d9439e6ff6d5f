"""The keys of ``rounds.jsonl`` that a paper's figures, claims and metrics read at all rounds."""

from __future__ import annotations

from collections.abc import Iterator

from fedbench.core.metrics import metric_info, weighted_or_not
from fedbench.papers.checks import All, Check, Curves, Limit
from fedbench.papers.schema import Paper


def curve_fields(paper: Paper) -> list[str]:
    """Return the keys that a paper reads at all rounds, in both weightings of the clients."""
    named = {name for figure in paper.figures.values() for name in getattr(figure.spec, "fields", ())}
    named |= {name for claim in paper.claims if claim.check is not None for name in _fields_of(claim.check)}
    named |= {m.field for m in paper.metrics.values() if m.target is not None or m.rounds is not None}
    both = {twin for name in named for w in (True, False) if (twin := weighted_or_not(name, w)) is not None}
    return sorted({key for name in both for key in metric_info(name).needs or (name,)})


def _fields_of(check: Check) -> Iterator[str]:
    if isinstance(check, All):
        for part in check.checks:
            yield from _fields_of(part)
    elif isinstance(check, Curves):
        yield from check.fields
    elif isinstance(check, Limit):
        yield check.field

"""What a plan says of its claims: how many seeds would decide them, next to how many are planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedbench.analysis.matching import Evidence
from fedbench.analysis.power import POWER, Needed, needed
from fedbench.commands.planned_claims import row_key, runs_by_row
from fedbench.commands.readable_runs import ReadableRuns
from fedbench.papers.plan import PlannedRun, chosen
from fedbench.papers.registry import Paper

_NOTE = (
    f"for, against: seeds (or splits) that decide the claim with a chance of {POWER:.0%} if differences are as large "
    "as the printed ones,\nor as large and against the claim; never: not if the printed differences are the true ones; "
    "spread: of paired differences\nin finished runs, or the printed ±; ?: some is unknown"
)


def power_lines(names: Sequence[str], runs: Sequence[PlannedRun], found_runs: ReadableRuns) -> list[str]:
    """Return a line per claim about the rows of a plan, with a heading and a note; none if there is no such claim.

    Args:
        names: Names of the tables and figures, as typed.
        runs: The plan.
        found_runs: The finished runs.
    """
    seeds = {row: {runs[n].seed for n in numbers} for row, numbers in runs_by_row(runs, of_readings=True).items()}
    lines = [
        line
        for paper in dict.fromkeys(paper for paper, _ in chosen(names))
        for line in _of_paper(paper, {key: len(found) for key, found in seeds.items()}, found_runs)
    ]
    return [f"{'claims':<28}{'for':>6}{'against':>9}{'planned':>9}  spread", *lines, _NOTE] if lines else []


def _of_paper(paper: Paper, seeds: Mapping[str, int], found_runs: ReadableRuns) -> list[str]:
    return found_runs.computed(paper, lambda runs: _of_runs(paper, seeds, Evidence(runs)))


def _of_runs(paper: Paper, seeds: Mapping[str, int], evidence: Evidence) -> list[str]:
    lines = []
    for claim in paper.claims:
        found = needed(paper, claim, evidence)
        counts = [] if found is None else [seeds.get(row_key(paper, row), 0) for row in found.rows]
        if found is None or not any(counts):
            continue
        low, high = min(counts), max(counts)
        planned = str(low) if low == high else f"{low} to {high}"
        blocks = "".join(f"{text:>{w}}" for text, w in ((_for(found), 6), (_blocks(found.fails, found), 9)))
        lines.append(f"{f'{paper.id}/{claim.id}':<28}{blocks}{planned:>9}  {_spread(found)}")
    return lines


def _for(found: Needed) -> str:
    return "never" if found.never else _blocks(found.holds, found)


def _blocks(blocks: int | None, found: Needed) -> str:
    if blocks is None:
        return "?" if found.unknown else ">10000"
    return f"{blocks}?" if found.unknown else str(blocks)


def _spread(found: Needed) -> str:
    parts = [("measured", found.measured), ("printed ±", found.printed), ("unknown", found.unknown)]
    named = [(word, n) for word, n in parts if n]
    return named[0][0] if len(named) == 1 else ", ".join(f"{word} {n}" for word, n in named)

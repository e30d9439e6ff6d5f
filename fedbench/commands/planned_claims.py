"""The claims that a plan can decide: which of its runs each needs, and what stands in the way of the others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedbench.analysis.matching import Evidence
from fedbench.analysis.power import compared, enough, needed
from fedbench.commands.readable_runs import ReadableRuns
from fedbench.papers.claims import functions
from fedbench.papers.plan import PlannedRun, chosen
from fedbench.papers.registry import Claim, Paper, Row


@dataclass(frozen=True)
class PlannedClaim:
    """A claim about rows of a plan.

    Attributes:
        name: ``paper/claim``.
        runs: Numbers of the planned runs that it compares.
        obstacle: Why these runs cannot decide it; empty if they can, that is both let it hold and refute it.
        rows: The rows that it compares, by ``row_key``.
        seeds: Seeds that decide it: by the power of its tests where that is known, else those with which it can both
            hold and fail.
    """

    name: str
    runs: frozenset[int]
    obstacle: str = ""
    rows: tuple[str, ...] = ()
    seeds: int = 0


def planned_claims(
    names: Sequence[str],
    runs: Sequence[PlannedRun],
    missing: Mapping[str, str],
    profile: str,
    finished: ReadableRuns | None = None,
) -> list[PlannedClaim]:
    """Return the claims that compare runs of a plan, in the order of the papers.

    Args:
        names: Names of the tables and figures, as typed.
        runs: The plan.
        missing: Experiments whose data are missing, with the names of the files.
        profile: Profile of the plan.
        finished: Runs whose spread the power of a claim's tests is computed from; None for the printed ± alone.
    """
    of_row = runs_by_row(runs)
    todo = {n for n, run in enumerate(runs) if not run.done}
    found = []
    for paper in dict.fromkeys(paper for paper, _ in chosen(names)):
        own = functions(paper.id)
        for claim in paper.claims:
            rows, comparisons = compared(paper, claim, own)
            keys = tuple(row_key(paper, row) for row in rows)
            numbers = [of_row.get(key, []) for key in keys]
            if any(numbers):
                every = frozenset(n for of in numbers for n in of)
                seeds, wanted = min(len({runs[n].seed for n in of}) for of in numbers), enough(comparisons)
                open_rows = [row for row, of in zip(rows, numbers, strict=True) if not of or todo & {*of}]
                why = _obstacle(claim, seeds, wanted, _lacks(paper, open_rows, missing), profile)
                wanted = max(wanted, _by_power(paper, claim, rows, finished))
                found.append(PlannedClaim(f"{paper.id}/{claim.id}", every, why, keys, wanted))
    return found


def _by_power(paper: Paper, claim: Claim, rows: Sequence[Row], finished: ReadableRuns | None) -> int:
    """Return the seeds that decide a claim with the chance of ``analysis.power``; 0 if that is unknown."""
    if not any(printed.std is not None for row in rows for printed in row.values.values()):
        return 0  # nothing is known without a printed spread
    own = functions(paper.id)
    if finished is None:
        found = needed(paper, claim, Evidence([]), own)
    else:
        found = finished.computed(paper, lambda runs: needed(paper, claim, Evidence(runs), own))
    if found is None:
        return 0
    return max(0 if found.never else found.holds or 0, found.fails or 0)


def runs_by_row(runs: Sequence[PlannedRun], of_readings: bool = False) -> dict[str, list[int]]:
    """Return the numbers of the planned runs of each row, by ``row_key``.

    Args:
        runs: The plan.
        of_readings: Whether runs that other readings need are among them.
    """
    found: dict[str, list[int]] = {}
    for number, run in enumerate(runs):
        for wanted in (run.wanted, *run.also) if of_readings or not run.reading else ():
            found.setdefault(_key(run.experiment, run.algo, wanted), []).append(number)
    return found


def row_key(paper: Paper, row: Row) -> str:
    """Return what a row and its planned runs have in common."""
    return _key(paper.setups[row.setup].experiment, paper.methods[row.algo].algo, paper.overrides(row))


def _key(experiment: str, algo: str, wanted: Mapping[str, Any]) -> str:
    return json.dumps([experiment, algo, wanted], sort_keys=True)


def _lacks(paper: Paper, rows: Iterable[Row], missing: Mapping[str, str]) -> list[str]:
    files = (missing.get(paper.setups[row.setup].experiment) for row in rows)
    return list(dict.fromkeys(f for f in files if f))


def _obstacle(claim: Claim, seeds: int, wanted: int, lacks: Sequence[str], profile: str) -> str:
    if lacks:
        return f"missing data: {', '.join(lacks)}"
    if claim.needs and profile != "full":
        return f"needs {claim.needs.removesuffix('.')}"
    if not seeds:
        return "compares rows that are not in this plan"
    if seeds < wanted:
        return f"{seeds} of {wanted} seeds"
    return ""

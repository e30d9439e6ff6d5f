"""The claims that a plan can decide: which of its runs each needs, and what stands in the way of the others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from fedbench.analysis.claims.judge import by_reduced_runs, is_settled, judge
from fedbench.analysis.claims.verdict import TO_HOLD, Verdict
from fedbench.analysis.matching import Evidence
from fedbench.analysis.power import compared, enough, needed
from fedbench.commands.readable_runs import ReadableRuns
from fedbench.papers.plan import PlannedRun, chosen
from fedbench.papers.registry import Claim, Paper, Row
from fedbench.runs.run import Run


@dataclass(frozen=True)
class Part:
    """Runs of a plan that can decide a claim in one direction only.

    Attributes:
        outcome: The verdict that they can lead to.
        runs: Their numbers.
    """

    outcome: Literal["holds", "fails"]
    runs: frozenset[int]


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
        parts: Runs that can decide it in one direction only, each part by itself: those of one setup can refute it, and
            all of them can show that it holds where reduced settings or few seeds allow no more.
    """

    name: str
    runs: frozenset[int]
    obstacle: str = ""
    rows: tuple[str, ...] = ()
    seeds: int = 0
    parts: tuple[Part, ...] = ()


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
    plan = _Plan(runs, runs_by_row(runs), missing, profile, finished)
    papers = dict.fromkeys(paper for paper, _ in chosen(names))
    found = (plan.claim(paper, claim) for paper in papers for claim in paper.claims)
    return [claim for claim in found if claim is not None]


def decided_claims(names: Sequence[str], finished: ReadableRuns, profile: str) -> frozenset[str]:
    """Return the claims, as ``paper/claim``, that finished runs decide, whatever the runs that are missing show.

    A claim that is refuted before all of its comparisons have been run counts if the p-value remains at most 5 % when
    it is adjusted for all of them: else another look after every setup would refute too many claims. For the profile
    ``full``, verdicts that need runs at reduced settings do not count.

    Args:
        names: Names of the tables and figures, as typed.
        finished: The runs.
        profile: Profile of the plan.
    """
    found: set[str] = set()
    for paper in dict.fromkeys(paper for paper, _ in chosen(names)):
        for claim, verdict in finished.computed(paper, partial(_verdicts, paper)).items():
            if is_settled(verdict) and not (profile == "full" and by_reduced_runs(verdict)):
                found.add(f"{paper.id}/{claim}")
    return frozenset(found)


def _verdicts(paper: Paper, runs: list[Run]) -> dict[str, Verdict]:
    evidence = Evidence(runs)
    return {claim.id: judge(paper, claim, evidence) for claim in paper.claims}


@dataclass(frozen=True)
class _Plan:
    """A plan and what is known of it.

    Attributes:
        runs: The plan.
        of_row: Numbers of the runs of each row, by ``row_key``.
        missing: Experiments whose data are missing, with the names of the files.
        profile: Profile of the plan.
        finished: Runs whose spread is measured, or None.
    """

    runs: Sequence[PlannedRun]
    of_row: Mapping[str, Sequence[int]]
    missing: Mapping[str, str]
    profile: str
    finished: ReadableRuns | None

    def claim(self, paper: Paper, claim: Claim) -> PlannedClaim | None:
        """Return what the plan has of a claim; None if it has no run of it."""
        rows, groups = compared(paper, claim)
        every = frozenset(n for row in rows for n in self._numbers(paper, row))
        if not every:
            return None
        seeds, wanted = min(self._seeds(paper, row) for row in rows), enough(len(groups))
        lost = [row for row in rows if self._lost(paper, row)]
        lacks = dict.fromkeys(self.missing[paper.setups[row.setup].experiment] for row in lost)
        reduced = self.profile != "full" or any(paper.setups[row.setup].departs for row in rows)
        why = _obstacle(claim, seeds, wanted, [*lacks], reduced)
        keys = tuple(row_key(paper, row) for row in rows)
        parts = self._refuting(paper, claim, [row for row in rows if row.setup not in {r.setup for r in lost}], groups)
        if why and not lost and seeds >= TO_HOLD and (claim.reduced == "support" or self._allows(paper, claim, rows)):
            parts.append(Part("holds", every))
        wanted = max(wanted, _by_power(paper, claim, rows, self.finished))
        parts = [part for part in parts if why or part.runs != every]
        return PlannedClaim(f"{paper.id}/{claim.id}", every, why, keys, wanted, tuple(parts))

    def _refuting(self, paper: Paper, claim: Claim, rows: Sequence[Row], groups: Sequence[str]) -> list[Part]:
        """Return the runs of each setup that can refute a claim without those of the others.

        They need the seeds for the comparisons of all these setups, since p-values are adjusted for all that are run.
        """
        setups = {name: [row for row in rows if row.setup == name] for name in dict.fromkeys(r.setup for r in rows)}
        setups = {name: mine for name, mine in setups.items() if paper.setups[name].title in groups}
        needed = enough(sum(groups.count(paper.setups[name].title) for name in setups) or 1)
        return [
            Part("fails", frozenset(n for row in mine for n in self._numbers(paper, row)))
            for mine in setups.values()
            if min(self._seeds(paper, row) for row in mine) >= needed
            and (claim.reduced == "refute" or self._allows(paper, claim, mine))
        ]

    def _allows(self, paper: Paper, claim: Claim, rows: Sequence[Row]) -> bool:
        """Return whether planned runs of some rows can decide a claim in both directions, as to their settings."""
        return claim.reduced == "decide" or not any(self._is_reduced(paper, row) for row in rows)

    def _is_reduced(self, paper: Paper, row: Row) -> bool:
        return bool(paper.setups[row.setup].departs) or any(self.runs[n].cut for n in self._numbers(paper, row))

    def _numbers(self, paper: Paper, row: Row) -> Sequence[int]:
        return self.of_row.get(row_key(paper, row), [])

    def _seeds(self, paper: Paper, row: Row) -> int:
        return len({self.runs[n].seed for n in self._numbers(paper, row)})

    def _lost(self, paper: Paper, row: Row) -> bool:
        """Return whether runs of a row cannot be carried out because its data are missing."""
        numbers = self._numbers(paper, row)
        done = bool(numbers) and all(self.runs[n].done for n in numbers)
        return not done and paper.setups[row.setup].experiment in self.missing


def _by_power(paper: Paper, claim: Claim, rows: Sequence[Row], finished: ReadableRuns | None) -> int:
    """Return the seeds that decide a claim with the chance of ``analysis.power``; 0 if that is unknown."""
    if not any(printed.std is not None for row in rows for printed in row.values.values()):
        return 0  # nothing is known without a printed spread
    if finished is None:
        found = needed(paper, claim, Evidence([]))
    else:
        found = finished.computed(paper, lambda runs: needed(paper, claim, Evidence(runs)))
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


def _obstacle(claim: Claim, seeds: int, wanted: int, lacks: Sequence[str], reduced: bool) -> str:
    if lacks:
        return f"missing data: {', '.join(lacks)}"
    if claim.needs and reduced:
        return f"needs {claim.needs.removesuffix('.')}"
    if not seeds:
        return "compares rows that are not in this plan"
    if seeds < wanted:
        return f"{seeds} of {wanted} seeds"
    return ""

"""A plan as text: a line per table and figure, then the sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fedbench.commands.planned_claims import PlannedClaim, row_key, runs_by_row
from fedbench.core.trees import config_value
from fedbench.papers.durations import Duration, Durations
from fedbench.papers.ledger import Ledger, read_ledger
from fedbench.papers.plan import PlannedRun, chosen
from fedbench.papers.registry import Paper
from fedbench.papers.stored_durations import stored_durations


@dataclass(frozen=True)
class ShownPlan:
    """What a plan's text is made of.

    Attributes:
        names: Names of the tables and figures, as typed.
        runs: The plan.
        durations: The times of runs.
        claims: The claims about its rows.
        missing: Experiments whose data are missing, with the names of the files.
        cells: What has been measured of the printed numbers, by table.
        jobs: Number of runs at a time.
        all_parts: Whether tables without runs are shown.
    """

    names: Sequence[str]
    runs: Sequence[PlannedRun]
    durations: Durations
    claims: Sequence[PlannedClaim]
    missing: Mapping[str, str]
    cells: Mapping[str, str]
    jobs: int
    all_parts: bool = True

    @cached_property
    def _todo(self) -> frozenset[int]:
        """The runs that are not done, by their ids: each is looked up once, and belongs to several tables."""
        return frozenset(id(run) for run in self.runs if not run.done)

    def _not_done(self, runs: Sequence[PlannedRun]) -> list[PlannedRun]:
        return [run for run in runs if id(run) in self._todo]

    def text(self, profile: str) -> str:
        """Return the plan as text."""
        results = self.durations.results
        ledger, seeds = read_ledger(results), self._seeds()
        of_row = runs_by_row(self.runs)
        lines = [
            f"profile {profile}, results in {results}",
            f"{'':28}{'runs':>6}{'done':>6}{'to do, about':>14}{'to decide':>14}",
        ]
        for paper, part in chosen(self.names):
            name = f"{paper.id}/{part}"
            needed = [r for r in self.runs if name in r.parts]
            if not needed and not self.all_parts:
                continue
            todo = self._not_done(needed)
            time = self.durations.of_all(todo).text()
            decide = self._to_decide(paper, part, seeds, of_row)
            notes = "".join(f"  {n}" for n in self._notes(name, needed, ledger))
            done = len(needed) - len(todo)
            lines.append(f"{name:<28}{len(needed):>6}{done:>6}{time:>14}{decide:>14}{notes}")
        total, done = self.durations.of_all(self._not_done(self.runs)), len(self.runs) - len(self._todo)
        lines.append(f"{'in all, runs shared':<28}{len(self.runs):>6}{done:>6}{total.text(self.jobs):>14}")
        return "\n".join([*lines, *_explained(total)])

    def to_do(self) -> dict[int, float | None]:
        """Return the runs that are not done and whose data are there, by number, with their seconds if known."""
        found: dict[int, float | None] = {}
        for number, run in enumerate(self.runs):
            if id(run) in self._todo and run.experiment not in self.missing:
                time = self.durations.of_one(run)
                found[number] = None if time.unknown else time.seconds
        return found

    def undecided(self) -> list[str]:
        """Return a line per reason why the plan cannot decide some claims."""
        reasons: dict[str, list[str]] = {}
        for claim in self.claims:
            if claim.obstacle:
                reasons.setdefault(claim.obstacle, []).append(claim.name)
        lines = [f"  {', '.join(names)}: {why}" for why, names in reasons.items()]
        return ["claims that this plan cannot decide:", *lines] if lines else []

    def _notes(self, name: str, needed: Sequence[PlannedRun], ledger: Ledger) -> list[str]:
        if not needed:
            return ["no runs: drawn from the data alone"]
        todo = self._not_done(needed)
        lacks = dict.fromkeys(self.missing[r.experiment] for r in todo if r.experiment in self.missing)
        return [
            *([self.cells[name]] if name in self.cells else []),
            *_unfinished(needed, ledger, self._todo),
            *_readings(needed),
            *([f"missing data: {', '.join(lacks)}"] if lacks else []),
            *([f"reduced: {', '.join(cut)}"] if (cut := _cuts(needed)) else []),
        ]

    def _seeds(self) -> dict[str, int]:
        """Return the seeds that decide all claims about a row, by row."""
        found: dict[str, int] = {}
        for claim in self.claims:
            for row in claim.rows:
                found[row] = max(found.get(row, 0), claim.seeds)
        return found

    def _to_decide(self, paper: Paper, part: str, seeds: Mapping[str, int], of_row: Mapping[str, Sequence[int]]) -> str:
        """Return the time until each row of a table has the seeds that decide the claims about it."""
        total, known = Duration(), False
        for key in dict.fromkeys(row_key(paper, row) for row in paper.rows(part)):
            if key in seeds and of_row.get(key):
                known = True
                mine = [self.runs[n] for n in of_row[key]]
                lacking = max(0, seeds[key] - len(mine) + len(self._not_done(mine)))
                total += self.durations.of_one(mine[0]) * lacking
        return total.text() if known else "–"


def _explained(total: Duration) -> list[str]:
    notes = []
    if total.rough or total.unknown:
        notes.append("times are those of finished runs; ~: of other settings, scaled by rounds; ?: none are known")
    if total.stored:
        notes.append(f"some times are stored ones, measured on another machine: {stored_durations().machine}")
    return notes


def _readings(runs: Sequence[PlannedRun]) -> list[str]:
    """Return how many of the runs other readings of the paper need, by reading."""
    counts = Counter(run.reading for run in runs if run.reading)
    return [f"for other readings: {', '.join(f'{name} {n}' for name, n in sorted(counts.items()))}"] if counts else []


def _cuts(runs: Sequence[PlannedRun]) -> list[str]:
    """Return what the runs of a table have less of than the paper: keys with their values, and seeds."""
    values: dict[str, dict[str, None]] = {}
    for run in runs:
        for k, v in run.cut.items():
            values.setdefault(k, {})[config_value(v)] = None
    cuts = [f"{k}={' or '.join(v)}" for k, v in sorted(values.items())]
    seeds: dict[tuple[str, ...], set[int]] = {}
    for run in runs:
        seeds.setdefault(run.setting, set()).add(run.seed)
    fewer = {
        (len(seeds[r.setting]), n) for r in runs if len(seeds[r.setting]) < (n := r.paper.setups[r.row.setup].seeds)
    }
    return cuts + [f"seeds {have} of {wanted}" for have, wanted in sorted(fewer)]


def _unfinished(runs: Sequence[PlannedRun], ledger: Ledger, todo: Collection[int]) -> list[str]:
    """Return how many runs earlier attempts could not finish, by what became of them."""
    counts: Counter[str] = Counter()
    for run in runs:
        for e in ledger.of(run.experiment, run.algo, run.wanted):
            if (
                e.seed == run.seed
                and e.status not in ("planned", "done")
                and (e.status == "diverged" or id(run) in todo)
            ):
                counts["no data" if e.status == "refused" else e.status] += 1
    return [f"{word}: {n}" for word, n in sorted(counts.items())]

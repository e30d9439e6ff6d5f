"""A plan as text: a line per table and figure, then the sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fedbench.core.config_values import config_value
from fedbench.reproduce.plan import PlannedRun, chosen
from fedbench.runs.durations import Durations


def plan_text(
    names: Sequence[str],
    runs: Sequence[PlannedRun],
    durations: Durations,
    missing: Mapping[str, str],
    jobs: int,
    profile: str,
) -> str:
    """Return a plan as text.

    Args:
        names: Names of the tables and figures, as typed.
        runs: The plan.
        durations: The times of runs.
        missing: Experiments whose data are missing, with the names of the files.
        jobs: Number of runs at a time.
        profile: Profile of the plan.
    """
    todo = {id(run) for run in runs if not run.done}
    lines = [f"profile {profile}, results in {durations.results}", _line("", "runs", "done", "to do, about")]
    for paper, part in chosen(names):
        name = f"{paper.id}/{part}"
        needed = [run for run in runs if name in run.parts]
        if not needed and paper.rows(part):
            continue  # its rows are of other experiments than the one that was asked for
        left = [run for run in needed if id(run) in todo]
        time = durations.text([run.config for run in left if run.config], jobs)
        notes = "".join(f"  {note}" for note in _notes(needed, left, missing))
        lines.append(_line(name, len(needed), len(needed) - len(left), time) + notes)
    left = [run for run in runs if id(run) in todo]
    time = durations.text([run.config for run in left if run.config], jobs)
    lines.append(_line("in all, runs shared", len(runs), len(runs) - len(left), time))
    if left:
        lines.append(
            f"times are estimates with {jobs} at a time, from the rounds of finished runs, else of another machine"
        )
    return "\n".join(lines)


def _line(name: str, runs: object, done: object, time: str) -> str:
    return f"{name:<28}{runs:>6}{done:>6}{time:>14}"


def _notes(needed: Sequence[PlannedRun], left: Sequence[PlannedRun], missing: Mapping[str, str]) -> list[str]:
    if not needed:
        return ["no runs: drawn from the data alone"]
    readings = Counter(run.reading for run in needed if run.reading)
    lacks = dict.fromkeys(missing[run.experiment] for run in left if run.experiment in missing)
    cuts = _cuts(needed)
    return [
        *([f"for other readings: {', '.join(f'{name} {n}' for name, n in sorted(readings.items()))}"] * bool(readings)),
        *([f"missing data: {', '.join(lacks)}"] * bool(lacks)),
        *([f"reduced: {', '.join(cuts)}"] * bool(cuts)),
    ]


def _cuts(runs: Sequence[PlannedRun]) -> list[str]:
    """Return what the runs of a table have less of than the paper: keys with their values, and seeds."""
    values: dict[str, dict[str, None]] = {}
    seeds: dict[tuple[str, ...], set[int]] = {}
    for run in runs:
        seeds.setdefault(run.setting, set()).add(run.seed)
        for key, value in run.cut.items():
            values.setdefault(key, {})[config_value(value)] = None
    fewer = {(len(seeds[r.setting]), r.paper.setups[r.row.setup].seeds) for r in runs}
    keys = [f"{key}={' or '.join(known)}" for key, known in sorted(values.items())]
    return keys + [f"seeds {have} of {wanted}" for have, wanted in sorted(fewer) if have < wanted]

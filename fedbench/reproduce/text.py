"""A plan as text: a line per table and figure, then the sum."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fedbench.core.config_values import config_value
from fedbench.reproduce.plan import PlannedRun, chosen

_LINE = "{:<28}{:>6}{:>6}{:>7}"


def plan_text(names: Sequence[str], runs: Sequence[PlannedRun], missing: Mapping[str, str]) -> str:
    """Return a plan as text.

    Args:
        names: Names of the tables and figures, as typed.
        runs: The plan.
        missing: Experiments whose data are missing, with the names of the files.
    """
    done = {id(run) for run in runs if run.done}
    lines = [_LINE.format("", "runs", "done", "to do")]
    for paper, part in chosen(names):
        name = f"{paper.id}/{part}"
        needed = [run for run in runs if name in run.parts]
        if not needed and paper.rows(part):
            continue  # its rows are of other experiments than the chosen one
        left = [run for run in needed if id(run) not in done]
        line = _LINE.format(name, len(needed), len(needed) - len(left), len(left))
        lines.append("  ".join([line, *_notes(needed, left, missing)]))
    lines.append(_LINE.format("in all, runs shared", len(runs), len(done), len(runs) - len(done)))
    return "\n".join(lines)


def _notes(
    needed: Sequence[PlannedRun], left: Sequence[PlannedRun], missing: Mapping[str, str]
) -> Iterator[str]:
    """Yield the notes on a table or figure: other readings, missing data and reductions of its runs."""
    if not needed:
        yield "no runs: drawn from the data alone"
    readings = Counter(run.reading for run in needed if run.reading)
    if readings:
        yield f"for other readings: {', '.join(f'{name} {count}' for name, count in sorted(readings.items()))}"
    files = dict.fromkeys(missing[run.experiment] for run in left if run.experiment in missing)
    if files:
        yield f"missing data: {', '.join(files)}"
    reductions = _reductions(needed)
    if reductions:
        yield f"reduced: {', '.join(reductions)}"


def _reductions(runs: Sequence[PlannedRun]) -> list[str]:
    """Return the differences of the runs of a table from the paper's: keys with their values, and seeds."""
    values: dict[str, dict[str, None]] = {}
    seeds: dict[tuple[str, ...], set[int]] = {}
    for run in runs:
        seeds.setdefault(run.setting, set()).add(run.seed)
        for key, value in run.cut.items():
            values.setdefault(key, {})[config_value(value)] = None
    keys = [f"{key}={' or '.join(known)}" for key, known in sorted(values.items())]
    counts = {(len(seeds[run.setting]), run.paper.setups[run.row.setup].seeds) for run in runs}
    return [
        *keys,
        *(f"seeds {count} of {wanted}" for count, wanted in sorted(counts) if count < wanted),
    ]

"""Text of a plan: one line per table or figure, then the totals."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fedbench.core.config_values import config_value
from fedbench.reproduce.plan import PlannedRun, chosen

_LINE = "{:<28}{:>6}{:>6}{:>7}"


def plan_text(
    names: Sequence[str],
    runs: Sequence[PlannedRun],
    missing: Mapping[str, str],
) -> str:
    """Return a plan as text.

    Args:
        names: Names of the tables and figures, as typed.
        runs: The plan.
        missing: Names of missing files by experiment, for the experiments whose data are missing.
    """
    lines = [_LINE.format("", "runs", "done", "to do")]
    for paper, part in chosen(names):
        name = f"{paper.id}/{part}"
        needed = [run for run in runs if name in run.parts]
        if needed or not paper.rows(part):  # otherwise, its rows belong to other experiments
            notes = _notes(needed, missing)
            lines.append("  ".join([_counts(name, needed), *notes]))
    lines.append(_counts("in all, runs shared", runs))
    return "\n".join(lines)


def _counts(name: str, runs: Sequence[PlannedRun]) -> str:
    """Return a line with a name and its numbers of runs: total, done and to do."""
    done = sum(run.done for run in runs)
    return _LINE.format(
        name,
        len(runs),
        done,
        len(runs) - done,
    )


def _notes(
    needed: Sequence[PlannedRun],
    missing: Mapping[str, str],
) -> Iterator[str]:
    """Yield the notes on a table or figure: other readings, missing data and reductions."""
    if not needed:
        yield "no runs: drawn from the data alone"
    readings = Counter(run.reading for run in needed if run.reading)
    if readings:
        counts = [f"{name} {count}" for name, count in sorted(readings.items())]
        yield f"for other readings: {', '.join(counts)}"
    lacking = [run for run in needed if run.experiment in missing and not run.done]
    files = dict.fromkeys(missing[run.experiment] for run in lacking)
    if files:
        yield f"missing data: {', '.join(files)}"
    reductions = _reductions(needed)
    if reductions:
        yield f"reduced: {', '.join(reductions)}"


def _reductions(runs: Sequence[PlannedRun]) -> list[str]:
    """Return the reductions of runs relative to the paper: keys with their values, and seeds."""
    values: dict[str, dict[str, None]] = {}
    seeds = Counter(run.setting for run in runs)
    lacking: set[tuple[int, int]] = set()
    for run in runs:
        for key, value in run.cut.items():
            values.setdefault(key, {})[config_value(value)] = None
        count = seeds[run.setting]
        wanted = run.paper.setups[run.row.setup].seeds
        if count < wanted:
            lacking.add((count, wanted))
    texts = [f"{key}={' or '.join(known)}" for key, known in sorted(values.items())]
    for count, wanted in sorted(lacking):
        texts.append(f"seeds {count} of {wanted}")
    return texts

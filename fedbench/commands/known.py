"""``fedbench reproduce known``: the runs of known numbers, and their page."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from fedbench.commands.side_by_side import jobs_by_default
from fedbench.config.compose import compose_run
from fedbench.core.errors import RequestError
from fedbench.core.writing import NotWritten
from fedbench.papers.durations import Durations
from fedbench.papers.known.plan import Wanted, wanted
from fedbench.papers.known.registry import chosen_references
from fedbench.papers.plan import PlannedRun, locate
from fedbench.runs.results import Results

PAGE = "known"  # directory of the page below that of the report


def is_known(names: Sequence[str]) -> bool:
    """Return whether known numbers are asked for.

    Raises:
        RequestError: If papers are asked for in the same command.
    """
    found = [name == "known" or name.startswith("known/") for name in names]
    if any(found) and not all(found):
        raise RequestError("known numbers and papers are reproduced by a command each; leave one of them out")
    return any(found)


def reproduce_known(
    names: Sequence[str], profile: str, seeds: int | None, jobs: int | None, common: list[str], launcher: list[str],
    only_plan: bool,
) -> int:  # fmt: skip
    """Run what known numbers need, write their page, and return the exit status: 1 if a run with data is not done.

    A tuned key is chosen first, on runs of their own; the runs that count follow.

    Args:
        names: ``known`` for all, or ``known/ID``.
        profile: ``full``, ``cpu`` or ``smoke``.
        seeds: Number of seeds, or None for that of the profile.
        jobs: Number of runs at a time, or None for the default.
        common: Overrides for all runs.
        launcher: Overrides that choose Hydra's launcher; none for no launcher.
        only_plan: Show what would run, and train nothing.

    Raises:
        RequestError: If the request is wrong, or the page cannot be written.
    """
    from fedbench.analysis.known import counting, grids_of, result_of
    from fedbench.analysis.known_runs import finished_runs
    from fedbench.report.known import write_known

    every = wanted(chosen_references(list(names)), profile, seeds)
    published = Results(compose_run(common).results_dir)
    runs = finished_runs(common, published)
    if only_plan:
        tuned = [{algo: grid.chosen for algo, grid in grids_of(w, runs).items()} for w in every]
        print(_plan_text(every, tuned, common, published))
        _name_left_out(published)
        return 0
    grids = [run for w in every for algo in w.number.algos for run in w.grid(algo)]
    status = _carry_out(grids, common, published, launcher, jobs)
    counted = [run for w in every for run in counting(w, grids_of(w, runs))]
    status |= _carry_out(counted, common, published, launcher, jobs)
    _name_left_out(published)
    target = published.root / "report" / PAGE
    try:
        print(write_known([result_of(w, runs) for w in every], target, list(published.broken.values())))
    except NotWritten as error:
        raise RequestError(str(error)) from error
    print(f"written: {target}")
    return status


def _name_left_out(published: Results) -> None:
    for why in published.broken.values():
        print(f"fedbench: left out: {why}", file=sys.stderr)


def _carry_out(
    planned: Sequence[PlannedRun], common: list[str], published: Results, launcher: list[str], jobs: int | None
) -> int:
    """Train what is not done and return the exit status."""
    from fedbench.commands.planned_runs import carry_out, missing_data  # imports torch; a plan does not
    from fedbench.commands.workers import start_importing

    runs, results = locate(planned, common, published=published), published.root
    todo = [run for run in runs if not run.done]
    if not todo:
        return 0
    at_once = 1 if launcher else jobs or jobs_by_default([r.config for r in todo if r.config is not None], len(todo))
    print(f"{len(runs)} runs, {len(todo)} to do, about {Durations(results).of(runs).text(at_once)}", flush=True)
    faults = missing_data(todo)
    if at_once > 1:
        start_importing()
    entries = carry_out(runs, faults, common, results, launcher, at_once)
    wrong = [e for e in entries if e.status not in ("done", "diverged")]
    for e in wrong:
        print(f"fedbench: {e.experiment} {e.algo} seed {e.seed}: {e.status}: {e.error}", file=sys.stderr)
    return 1 if any(e.status != "refused" or e.experiment not in faults for e in wrong) else 0


def _plan_text(
    every: Sequence[Wanted], tuned: Sequence[Mapping[str, float | None]], common: list[str], published: Results
) -> str:
    """Return a line per number: its runs, those that are done, and the time of the others.

    Args:
        every: The numbers.
        tuned: For each, the chosen value of a tuned key by algorithm; None until the runs of the grid are done.
        common: Overrides for all runs.
        published: The published reports of the results directory.
    """
    durations = Durations(published.root)
    lines = [f"{'':44}{'runs':>6}{'done':>6}{'to do, about':>14}"]
    for w, chosen in zip(every, tuned, strict=True):
        any_value = None if w.number.grid is None else w.number.grid.values[0]  # whose time is that of the chosen one
        own: list[PlannedRun] = []
        for algo in w.number.algos:
            value = chosen.get(algo)
            own += [*w.grid(algo), *w.runs(algo, any_value if value is None else value)]
        runs = locate(own, common, published=published)
        time = durations.of(runs).text()
        lines.append(f"{f'{w.name} {w.number.id}':<44}{len(runs):>6}{sum(r.done for r in runs):>6}{time:>14}")
    return "\n".join(lines)

"""``fedbench reproduce``: its arguments, the plan that it shows, and the runs that it starts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fedbench.analysis.claims.judge import refuse_bad_checks
from fedbench.commands.deadline import Deadline
from fedbench.commands.plan_text import ShownPlan
from fedbench.commands.planned_cells import cell_notes
from fedbench.commands.planned_claims import PlannedClaim, decided_claims, planned_claims
from fedbench.commands.planned_data import missing_files
from fedbench.commands.planned_hours import choose, selection_text
from fedbench.commands.planned_power import power_lines
from fedbench.commands.readable_runs import ReadableRuns
from fedbench.commands.side_by_side import jobs_by_default
from fedbench.commands.workers import start_importing
from fedbench.config.compose import compose_run
from fedbench.config.overrides import parse_overrides
from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError
from fedbench.papers.durations import Durations
from fedbench.papers.plan import PlannedRun, chosen, locate, missing_variants, plan
from fedbench.runs.results import Results

_MORE = "name a paper or a table to see how many seeds decide its claims: fedbench reproduce NAME --plan"
_COMMON = ("results_dir", "data_dir", "device", "engine.", "tracker", "data.download")


def carry_out(asked: argparse.Namespace) -> int:
    """Carry out ``fedbench reproduce`` and return the exit status: 1 if a run with data is not done.

    Raises:
        RequestError: If the request is wrong; nothing is changed on disk.
    """
    asked.names, common = _request(asked.words)
    hours, launcher = asked.hours, _launcher(asked, common)
    if launcher and hours is not None:
        raise RequestError(
            f"--hours cannot be combined with --launcher {asked.launcher}, whose jobs go on elsewhere when the hours "
            "are up; remove one of them, or set the launcher's own limit of time"
        )
    return _reproduce_papers(asked, common, hours, launcher)


def _request(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of tables and figures, and the overrides for all runs."""
    given = parse_overrides([word for word in words if "=" in word])
    for override in given:
        if not override.key.startswith(_COMMON):
            raise RequestError(
                f"{override.text}: reproduce takes overrides of {', '.join(_COMMON)} only, since the papers "
                f"determine the other keys; to run a variant, type fedbench -m experiment=NAME {override.text}"
            )
    return [word for word in words if "=" not in word], [override.text for override in given]


def _reproduce_papers(asked: argparse.Namespace, common: list[str], hours: float | None, launcher: list[str]) -> int:
    """Show the plan of papers, and carry it out unless only the plan is asked for."""
    for paper in dict.fromkeys(p for p, _ in chosen(asked.names)):
        refuse_bad_checks(paper)
    paths = compose_run(common)
    planned = _of_experiment(plan(asked.names, asked.profile, asked.seeds, asked.readings), asked.experiment)
    published = Results(paths.results_dir)
    runs = locate(planned, common, asked.plan, published)
    jobs = 1 if launcher else asked.jobs or _jobs(runs, common)
    check = bool(asked.names)  # a plan of everything reads little of each
    finished = ReadableRuns(paths.results_dir, check)
    shown = _shown(asked, runs, paths, jobs, finished)
    _print_plan(asked, runs, shown, finished)
    taken = range(len(runs)) if hours is None else _taken(asked, runs, shown, finished, hours, jobs)
    if asked.plan:
        return 0
    if jobs > 1:
        start_importing()
    deadline = None if hours is None else Deadline(hours * 3600)
    others = [runs[n] for n in sorted({*range(len(runs))} - {*taken})]
    return _carry_out(asked.names, [runs[n] for n in taken], others, published, common, launcher, jobs, deadline)


def _print_plan(
    asked: argparse.Namespace, runs: Sequence[PlannedRun], shown: ShownPlan, finished: ReadableRuns
) -> None:
    print(shown.text(asked.profile), flush=True)
    for paper, variant in missing_variants(asked.names) if asked.readings else ():
        print(
            f"without the variant {variant.id} of {paper.id}: its algorithms are in {variant.config_dir} of fedbench's "
            f"repository; type the command there to run it",
            flush=True,
        )
    if asked.plan:
        for line in power_lines(asked.names, runs, finished) if asked.names else [_MORE]:
            print(line)
        if lines := shown.undecided():
            print("\n".join(lines))


def _taken(
    asked: argparse.Namespace,
    runs: Sequence[PlannedRun],
    shown: ShownPlan,
    finished: ReadableRuns,
    hours: float,
    jobs: int,
) -> Sequence[int]:
    """Print the runs that fit into the hours, and return their numbers."""
    decided = decided_claims(asked.names, finished, asked.profile)
    selection = choose(shown.claims, shown.to_do(), hours * 3600, jobs, decided)
    print(selection_text(selection, runs, hours, jobs), flush=True)
    if not (asked.plan or selection.runs or any(run.done for run in runs)):
        raise RequestError(f"--hours {asked.hours} takes no run, for the reasons above; type more hours")
    return selection.runs


def _carry_out(
    names: Sequence[str],
    runs: list[PlannedRun],
    others: list[PlannedRun],
    published: Results,
    common: list[str],
    launcher: list[str],
    jobs: int,
    deadline: Deadline | None,
) -> int:
    """Train what is not done, write the report and return the exit status.

    Args:
        names: Names of the tables and figures.
        runs: The runs that are carried out.
        others: The other runs of the plan, of which those that are done are part of the report.
        published: The published reports of the results directory.
        common: Overrides for all runs.
        launcher: Overrides that choose Hydra's launcher; none for no launcher.
        jobs: Number of runs at a time without a launcher.
        deadline: When to stop, or None.
    """
    from fedbench.commands.planned_runs import (  # imports torch; a plan does not
        carry_out,
        missing_data,
        record_done,
        write_labels,
    )
    from fedbench.report.write import write_report
    from fedbench.runs.cached_run import not_writable

    results = published.root
    try:
        results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(f"results_dir={results}", results, error) from error
    faults = missing_data([r for r in runs if not r.done])
    write_labels(names, results, common, published)
    record_done(results, others)
    entries = carry_out(runs, faults, common, results, launcher, jobs, deadline)
    print(write_report(results))
    late = sum(e.status == "planned" for e in entries) if deadline is not None and deadline.over else 0
    if late:
        print(f"\nthe hours are up: {late} of {len(entries)} runs are left; the same command goes on with them")
    wrong = [e for e in entries if e.status != "done" and not (late and e.status == "planned")]
    if wrong:
        print(f"\n{len(wrong)} of {len(entries)} runs are not finished; see the report for the reasons")
    return 1 if any(e.status != "refused" or e.experiment not in faults for e in wrong) else 0


def _of_experiment(runs: list[PlannedRun], name: str | None) -> list[PlannedRun]:
    """Return the runs of one experiment; all of them if none is named."""
    if name is None:
        return runs
    found = [run for run in runs if run.experiment == name]
    if not found:
        known = list(dict.fromkeys(run.experiment for run in runs))
        raise RequestError(f"--experiment {name} has no row here; the experiments are {', '.join(known)}")
    return found


def _launcher(asked: argparse.Namespace, common: Sequence[str]) -> list[str]:
    if asked.launcher is None:
        return []
    if asked.jobs is not None:
        raise RequestError(f"--jobs cannot be combined with --launcher {asked.launcher}; remove one of them")
    compose_run([*common, choice := f"hydra/launcher={asked.launcher}"])  # it is known
    return [choice]


def _jobs(runs: Sequence[PlannedRun], common: Sequence[str]) -> int:
    """Return how many of the runs to carry out at a time."""
    todo = [run for run in runs if not run.done]
    configs = [run.config for run in todo if run.config is not None]  # of a mere plan, some are not composed
    return jobs_by_default(configs or [compose_run(common)], len(todo))


def _shown(
    asked: argparse.Namespace, runs: Sequence[PlannedRun], paths: RunConfig, jobs: int, finished: ReadableRuns
) -> ShownPlan:
    """Return what the plan's text is made of."""
    missing = missing_files((run.experiment for run in runs if not run.done), paths.data_dir)
    claims: list[PlannedClaim] = []
    if asked.plan or asked.hours:
        claims = planned_claims(asked.names, runs, missing, asked.profile, finished if asked.names else None)
    cells = cell_notes(asked.names, finished) if asked.plan else {}
    return ShownPlan(
        asked.names,
        runs,
        Durations(paths.results_dir),
        claims,
        missing,
        cells,
        jobs,
        asked.experiment is None,
    )

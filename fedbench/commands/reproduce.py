"""``fedbench reproduce``: the plan that it shows, and the runs that it starts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from fedbench.commands.result import CommandResult
from fedbench.config.compose import Composer, compose_run
from fedbench.config.overrides import parse_overrides
from fedbench.core.errors import RequestError
from fedbench.core.options import Positive
from fedbench.core.validation import validate
from fedbench.reports.page import PAGE
from fedbench.reports.write import write_report
from fedbench.reproduce.execute import missing_files, outcomes, rows_within, unreadable_data, write_labels
from fedbench.reproduce.plan import PlannedRun, locate, missing_variants, prefer_full
from fedbench.reproduce.plan import plan as plan_runs
from fedbench.reproduce.text import plan_text
from fedbench.runs.cached_run import writing_results
from fedbench.runs.durations import Durations, deadline
from fedbench.runs.executors.base import Executor, RunBatch, RunResult
from fedbench.runs.executors.launcher import LauncherExecutor
from fedbench.runs.progress import duration
from fedbench.runs.results import Results

_COMMON = ("results_dir", "data_dir", "device", "engine.", "tracker", "data.download")
_LAUNCHER = ("hydra/launcher", "hydra.launcher")


def execute(
    names: Sequence[str],
    executor: Executor,
    profile: str = "cpu",
    readings: bool = False,
    plan: bool = False,
    hours: float | None = None,
    seeds: int | None = None,
    experiment: str | None = None,
) -> CommandResult:
    """Show the plan of tables and figures, carry out its runs and write the report.

    Args:
        names: Names of papers, tables and figures, and overrides of all runs.
        executor: Carries out the runs, unless there is a launcher.
        profile: ``full``, ``cpu`` or ``smoke``.
        readings: Also run the settings of other readings of the papers.
        plan: Show the plan alone.
        hours: When to stop.
        seeds: Number of seeds, which replaces that of the profile.
        experiment: Run the rows of this experiment only.

    Returns:
        The status is 1 if a run with data is not done.

    Raises:
        RequestError: If the request is wrong; nothing is changed on disk.
    """
    parts = [name for name in names if "=" not in name]
    if hours is not None:
        validate("--hours", hours, Positive)
    overrides = parse_overrides(name for name in names if "=" in name)
    for o in overrides:
        if not o.key.startswith((*_COMMON, *_LAUNCHER)):
            raise RequestError(
                f"{o.text}: reproduce takes overrides of {', '.join(_COMMON)} only, since the papers determine the "
                f"other keys; to run a variant, type fedbench -m experiment=NAME {o.text}"
            )
    launcher = [o.text for o in overrides if o.key.startswith(_LAUNCHER)]
    common = [o.text for o in overrides if o.text not in launcher]
    if launcher:
        if hours is not None:
            raise RequestError(f"--hours cannot be combined with {launcher[0]}, whose jobs go on elsewhere")
        Composer().composed([*common, *launcher])  # it is known
    paths = compose_run(common)
    published = Results(paths.results_dir)

    def planned(profile: str) -> list[PlannedRun]:
        return _of_experiment(plan_runs(parts, profile, seeds, readings), experiment)

    runs = locate(planned(profile), common, published)
    if profile == "cpu":  # smoke is there to try that everything runs
        runs = prefer_full(runs, planned("full"), common, published)
    todo = [run for run in runs if not run.done]
    if launcher:
        executor = LauncherExecutor(launcher)
    jobs = executor.jobs_for([run.config for run in todo if run.config is not None])
    durations, lacks = Durations(paths.results_dir), missing_files(todo, paths.data_dir)
    print(plan_text(parts, runs, durations, lacks, jobs, profile), flush=True)
    for paper, variant in missing_variants(parts) if readings else ():
        there = f"its algorithms are in {variant.config_dir} of fedbench's repository; type the command there to run it"
        print(f"without the variant {variant.id} of {paper.id}: {there}", flush=True)
    taken = todo
    if hours is not None:
        ready = [run for run in todo if run.experiment not in lacks]
        taken = rows_within(
            ready, lambda run: None if run.config is None else durations.of(run.config), hours * 3600, jobs
        )
        print(f"{len(taken)} of {len(todo)} runs are taken within {duration(hours * 3600)}", flush=True)
    if plan:
        return CommandResult()
    left = {id(run) for run in todo} - {id(run) for run in taken}
    runs = [run for run in runs if id(run) not in left]
    return _execute(parts, runs, published.root, common, executor, hours)


def _execute(
    names: Sequence[str],
    runs: list[PlannedRun],
    results: Path,
    common: list[str],
    executor: Executor,
    hours: float | None,
) -> CommandResult:
    """Train the runs that are not done, and write the report.

    Args:
        names: Names of the tables and figures.
        runs: The runs that are done, which are part of the report, and those that are carried out.
        results: The results directory.
        common: Overrides for all runs.
        executor: Carries them out.
        hours: When to stop, or None.
    """
    executor.warm_up()
    with writing_results(results):
        results.mkdir(parents=True, exist_ok=True)
    faults = unreadable_data(run for run in runs if not run.done)
    write_labels(names, results, common)
    ended: list[RunResult] = []
    todo = [run for run in runs if not run.done and run.experiment not in faults]
    end: AbstractContextManager[list[bool]] = nullcontext([]) if hours is None else deadline(hours * 3600)
    with end as over:
        for config_dir in dict.fromkeys(run.config_dir for run in todo):
            typed = [[*run.overrides, *common] for run in todo if run.config_dir == config_dir]
            composer = Composer(config_dir)
            batch = RunBatch(typed, composer.config, config_dir, results=ended)
            executor.execute(batch, [composer.config(typed[0])] * len(typed))
    ids = list(dict.fromkeys(run.paper.id for run in runs))
    text, left_out = write_report(results, papers=ids, parts=names)
    print(f"\n{text}")
    found = outcomes(runs, faults, ended, common)
    late = sum(e.status == "planned" for e in found) if over else 0
    if late:
        print(f"\nthe hours are up: {late} of {len(runs)} runs are left; the same command runs them")
    wrong = [e for e in found if e.status != "done" and not (late and e.status == "planned")]
    with_data = [e for e in wrong if e.error not in faults.values()]
    if wrong:
        print(f"\n{len(wrong)} of {len(runs)} runs are not finished, {len(wrong) - len(with_data)} for lack of data")
    for e in with_data:
        print(f"{' '.join(e.overrides)}: {e.error or e.status}")
    return CommandResult(1 if with_data or left_out else 0, results / "report" / PAGE)


def _of_experiment(runs: list[PlannedRun], name: str | None) -> list[PlannedRun]:
    """Return the runs of one experiment; all of them if none is named."""
    found = [run for run in runs if name in (None, run.experiment)]
    if not found:
        known = list(dict.fromkeys(run.experiment for run in runs))
        raise RequestError(f"--experiment {name} has no row here; the experiments are {', '.join(known)}")
    return found

"""``fedbench reproduce``: the plan that it shows, and the runs that it starts."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from fedbench.config.compose import Composer, compose_run
from fedbench.config.overrides import parse_overrides
from fedbench.core.errors import RequestError
from fedbench.core.validation import number
from fedbench.reports.write import write_report
from fedbench.reproduce.execute import missing_files, outcomes, rows_within, unreadable_data, write_labels
from fedbench.reproduce.plan import PlannedRun, locate, missing_variants, plan, prefer_full
from fedbench.reproduce.text import plan_text
from fedbench.runs.cached_run import not_writable
from fedbench.runs.durations import Durations, deadline
from fedbench.runs.executors.base import Executor, RunBatch, RunResult
from fedbench.runs.executors.options import make_executor
from fedbench.runs.progress import duration
from fedbench.runs.results import Results

_COMMON = ("results_dir", "data_dir", "device", "engine.", "tracker", "data.download")
_LAUNCHER = ("hydra/launcher", "hydra.launcher")


def execute(args: Namespace) -> int:
    """Carry out ``fedbench reproduce`` and return the exit status: 1 if a run with data is not done.

    Raises:
        RequestError: If the request is wrong; nothing is changed on disk.
    """
    names = [word for word in args.words if "=" not in word]
    if args.hours is not None:
        number("--hours", args.hours, above=0)
    overrides = parse_overrides(word for word in args.words if "=" in word)
    for o in overrides:
        if not o.key.startswith((*_COMMON, *_LAUNCHER)):
            raise RequestError(
                f"{o.text}: reproduce takes overrides of {', '.join(_COMMON)} only, since the papers determine the "
                f"other keys; to run a variant, type fedbench -m experiment=NAME {o.text}"
            )
    launcher = [o.text for o in overrides if o.key.startswith(_LAUNCHER)]
    common = [o.text for o in overrides if o.text not in launcher]
    if launcher:
        if args.hours is not None:
            raise RequestError(f"--hours cannot be combined with {launcher[0]}, whose jobs go on elsewhere")
        Composer().composed([*common, *launcher])  # it is known
    paths = compose_run(common)
    published = Results(paths.results_dir)

    def planned(profile: str) -> list[PlannedRun]:
        return _of_experiment(plan(names, profile, args.seeds, args.readings), args.experiment)

    runs = locate(planned(args.profile), common, published)
    if args.profile == "cpu":  # smoke is there to try that everything runs
        runs = prefer_full(runs, planned("full"), common, published)
    todo = [run for run in runs if not run.done]
    executor = make_executor(args.jobs, args.on, args.run_cpus, args.run_gpus, launcher)
    jobs = executor.jobs_for([run.config for run in todo if run.config is not None])
    durations, lacks = Durations(paths.results_dir), missing_files(todo, paths.data_dir)
    print(plan_text(names, runs, durations, lacks, jobs, args.profile), flush=True)
    for paper, variant in missing_variants(names) if args.readings else ():
        there = f"its algorithms are in {variant.config_dir} of fedbench's repository; type the command there to run it"
        print(f"without the variant {variant.id} of {paper.id}: {there}", flush=True)
    taken = todo
    if args.hours is not None:
        ready = [run for run in todo if run.experiment not in lacks]
        taken = rows_within(
            ready, lambda run: None if run.config is None else durations.of(run.config), args.hours * 3600, jobs
        )
        print(f"{len(taken)} of {len(todo)} runs are taken within {duration(args.hours * 3600)}", flush=True)
    if args.plan:
        return 0
    left = {id(run) for run in todo} - {id(run) for run in taken}
    runs = [run for run in runs if id(run) not in left]
    return _execute(names, runs, published.root, common, executor, args.hours)


def _execute(
    names: Sequence[str],
    runs: list[PlannedRun],
    results: Path,
    common: list[str],
    executor: Executor,
    hours: float | None,
) -> int:
    """Train what is not done, write the report and return the exit status.

    Args:
        names: Names of the tables and figures.
        runs: The runs that are done, which are part of the report, and those that are carried out.
        results: The results directory.
        common: Overrides for all runs.
        executor: Carries them out.
        hours: When to stop, or None.
    """
    executor.warm_up()
    try:
        results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(f"results_dir={results}", error) from error
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
    return 1 if with_data or left_out else 0


def _of_experiment(runs: list[PlannedRun], name: str | None) -> list[PlannedRun]:
    """Return the runs of one experiment; all of them if none is named."""
    found = [run for run in runs if name in (None, run.experiment)]
    if not found:
        known = list(dict.fromkeys(run.experiment for run in runs))
        raise RequestError(f"--experiment {name} has no row here; the experiments are {', '.join(known)}")
    return found

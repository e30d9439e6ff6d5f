"""``fedbench reproduce``: show the plan for tables and figures of papers, and execute its runs."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from fedbench.commands.result import CommandResult
from fedbench.config.compose import Composer, compose_run
from fedbench.config.overrides import parse_overrides
from fedbench.config.user_sources import user_code_from
from fedbench.core.errors import RequestError
from fedbench.core.options import Count, Positive
from fedbench.core.validation import validate
from fedbench.reproduce.plan import PlannedRun, locate, missing_files, missing_variants, prefer_full
from fedbench.reproduce.plan import plan as plan_runs
from fedbench.reproduce.text import plan_text
from fedbench.runs.cached_run import writing_results
from fedbench.runs.executors.base import Executor, RunBatch, RunResult
from fedbench.runs.executors.launcher import LauncherExecutor
from fedbench.runs.process import deadline
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
    """Show the plan for tables and figures, execute its runs and write the report.

    Args:
        names: Names of papers, tables and figures, and overrides for all runs.
        executor: The executor of the runs, unless a launcher is given.
        profile: ``full``, ``cpu`` or ``smoke``.
        readings: Whether to include runs for other readings of the papers.
        plan: Whether to show the plan without executing any runs.
        hours: Time limit in hours. If given, runs whose data are missing are left out.
        seeds: Number of seeds, which replaces the number in the profile.
        experiment: The only experiment whose rows are run.

    Returns:
        The result. Its status is 1 if a run whose data exist is not done.

    Raises:
        RequestError: If the request is invalid; nothing is changed on disk.
    """
    parts = [name for name in names if "=" not in name]
    common, launcher = _overrides([name for name in names if "=" in name])
    if hours is not None:
        validate("--hours", hours, Positive)
    if seeds is not None:
        validate("--seeds", seeds, Count)
    if launcher:
        if hours is not None:
            raise RequestError(
                f"--hours cannot be combined with {launcher[0]}, whose jobs go on elsewhere"
            )
        Composer().composed([*common, *launcher])  # refuses an unknown launcher
        executor = LauncherExecutor(launcher)

    settings = compose_run(common)
    published = Results(settings.results_dir)

    def planned(profile: str) -> list[PlannedRun]:
        runs = plan_runs(parts, profile, seeds, readings, settings.results_dir)
        return _of_experiment(runs, experiment)

    runs = locate(planned(profile), common, published)
    if profile == "cpu":  # smoke only tests that everything runs
        runs = prefer_full(runs, planned("full"), common, published)
    missing = missing_files((run for run in runs if not run.done), settings.data_dir)
    print(f"profile {profile}, results in {settings.results_dir}")
    print(plan_text(parts, runs, missing), flush=True)
    for paper, variant in missing_variants(parts) if readings else ():
        print(
            f"without the variant {variant.id} of {paper.id}: its algorithms are in "
            f"{variant.config_dir} of fedbench's repository; type the command there to run it",
            flush=True,
        )
    if plan:
        return CommandResult()
    if hours is not None:
        runs = [run for run in runs if run.done or run.experiment not in missing]
    return _execute(parts, runs, settings.results_dir, common, executor, hours)


def _overrides(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the overrides for all runs, and the overrides that configure a Hydra launcher.

    Raises:
        RequestError: If an override is for a key that the papers determine.
    """
    common = []
    launcher = []
    for o in parse_overrides(texts):
        if o.key.startswith(_LAUNCHER):
            launcher.append(o.text)
        elif o.key.startswith(_COMMON):
            common.append(o.text)
        else:
            raise RequestError(
                f"{o.text}: reproduce takes overrides of {', '.join(_COMMON)} only, since the "
                "papers determine the other keys; to run a variant, type "
                f"fedbench -m experiment=NAME {o.text}"
            )
    return common, launcher


def _execute(
    parts: Sequence[str],
    runs: Sequence[PlannedRun],
    folder: Path,
    common: Sequence[str],
    executor: Executor,
    hours: float | None,
) -> CommandResult:
    """Execute the runs that are not done, and write the report.

    Args:
        parts: Names of the tables and figures.
        runs: The runs to execute, and the finished runs, which the report includes.
        folder: The results directory.
        common: Overrides for all runs.
        executor: The executor of the runs.
        hours: Time limit in hours, or None.
    """
    with writing_results(folder):
        folder.mkdir(parents=True, exist_ok=True)

    # a plan needs neither PyTorch nor Matplotlib, which take seconds to import
    from fedbench.reports.page import PAGE
    from fedbench.reports.write import write_report
    from fedbench.reproduce.outcomes import outcomes, unreadable_data

    faults = unreadable_data(run for run in runs if not run.done)
    todo = [run for run in runs if not run.done and run.experiment not in faults]
    results: list[RunResult] = []
    limit: AbstractContextManager[list[bool]] = (
        nullcontext([]) if hours is None else deadline(hours * 3600)
    )
    with limit as over:
        for config_dir in dict.fromkeys(run.config_dir for run in todo):
            chosen = [run for run in todo if run.config_dir == config_dir]
            composer = Composer(config_dir)
            with user_code_from(config_dir):
                configs = [composer.config([*run.overrides, *common]) for run in chosen]
            batch = RunBatch(configs, config_dir)
            try:
                executor.execute(batch)
            finally:
                results += batch.results

    papers = dict.fromkeys(run.paper.id for run in runs)
    text, left_out = write_report(folder, parts=[*parts, *papers])
    print(f"\n{text}")
    every = outcomes(runs, faults, results, common)
    late = sum(result.status == "planned" for result in every) if over else 0
    if late:
        print(
            f"\nthe hours are up: {late} of {len(runs)} runs are left; the same command runs them"
        )
    unfinished = [
        result
        for result in every
        if result.status != "done" and not (late and result.status == "planned")
    ]
    with_data = [result for result in unfinished if result.error not in faults.values()]
    if unfinished:
        without = len(unfinished) - len(with_data)
        print(
            f"\n{len(unfinished)} of {len(runs)} runs did not succeed, {without} for lack of data"
        )
    for result in with_data:
        print(f"{' '.join(result.overrides)}: {result.error or result.status}")
    return CommandResult(1 if with_data or left_out else 0, folder / "report" / PAGE)


def _of_experiment(runs: list[PlannedRun], name: str | None) -> list[PlannedRun]:
    """Return the runs of one experiment, or all runs if no experiment is named."""
    selected = [run for run in runs if name in (None, run.experiment)]
    if not selected:
        known = list(dict.fromkeys(run.experiment for run in runs))
        raise RequestError(
            f"--experiment {name} has no row here; the experiments are {', '.join(known)}"
        )
    return selected

"""``fedbench -m KEY=V1,V2 ...``: run every combination, here or through a Hydra launcher."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from fedbench.commands.result import CommandResult, print_errors, readable_runs
from fedbench.config.compose import Composer
from fedbench.config.overrides import parse_overrides, warn_of_replaced
from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError
from fedbench.runs.cached_run import is_cached, writing_results
from fedbench.runs.executors.base import Executor, RunBatch, RunResult
from fedbench.runs.executors.launcher import BATCH_SIZE, LauncherExecutor
from fedbench.runs.sweep import sweep_configs


def execute(
    overrides: Sequence[str],
    executor: Executor,
    config_dir: Path | None = None,
    debug: bool = False,
) -> CommandResult:
    """Run every combination and print a table.

    Args:
        overrides: The axes of the sweep, all other overrides, and settings of a Hydra launcher.
        executor: The executor of the runs, unless a launcher is given.
        config_dir: The user's directory with config files and modules.
        debug: Whether to print the traceback of a failed run.

    Returns:
        The result. Its status is 0 if all runs are done, 2 if all were refused, and 1 otherwise.

    Raises:
        RequestError: If a combination is invalid; nothing is left on disk.
    """
    parsed = parse_overrides(overrides)
    launcher = [o.text for o in parsed if o.key.startswith(("hydra.", "hydra/"))]
    axes = [o for o in parsed if o.text not in launcher]
    for text in launcher:
        is_sweeper = text.startswith(("hydra.sweeper", "hydra/sweeper"))
        if is_sweeper and not text.startswith(BATCH_SIZE):
            raise RequestError(
                f"{text}: type the axes of the sweep as overrides, such as seed=0,1,2"
            )
    for axis in axes:
        if not axis.each():
            raise RequestError(
                f"{axis.text} has no list of values; type them, as in KEY=A,B, or use "
                "`fedbench tune`"
            )
    if launcher:
        executor = LauncherExecutor(launcher)

    composer = Composer(config_dir)
    configs = sweep_configs(axes, composer)
    warn_of_replaced(axes)
    # refuse an unwritable directory once, not in every run
    for folder in {config.results_dir for config in configs if not is_cached(config)}:
        with writing_results(folder):
            folder.mkdir(parents=True, exist_ok=True)

    batch = RunBatch(configs, config_dir, debug)
    try:
        executor.execute(batch)
    finally:  # also on Ctrl-C
        places = {config.overrides: place for place, config in enumerate(configs)}
        results = sorted(batch.results, key=lambda result: places[result.overrides])
        outcome = _summarise(results, config_dir, configs, bool(launcher))
    return outcome


def _summarise(
    results: Sequence[RunResult],
    config_dir: Path | None,
    configs: Sequence[RunConfig],
    launched: bool,
) -> CommandResult:
    """Print the results of a sweep and return its result.

    Args:
        results: The results of the runs.
        config_dir: The user's directory with config files and modules.
        configs: The configurations of the sweep, some of which may have no result.
        launched: Whether a Hydra launcher executed the runs. Such runs print nothing in this
            process.
    """
    print_errors(results, config_dir)
    runs = readable_runs(results)
    if not runs:
        refused = all(result.status == "refused" for result in results)
        return CommandResult(2 if refused else 1)

    if launched or len(configs) > 1:  # the last line of a single run is its path
        from fedbench.analysis.build_tables import summary_tables
        from fedbench.reports.summary_table import summary_text  # late, as it imports pandas

        print(f"\n{summary_text(summary_tables(runs))}\n")
        ended = sum(r.status in ("done", "diverged") for r in results)
        if ended < len(configs):
            rest = "the same command trains the others"
            if invalid := [r for r in results if r.status == "refused"]:
                rest = f"{len(invalid)} refused: see above"
            elif any(config.force for config in configs):
                rest = "with force=true, the same command trains all of them again"
            print(f"{ended} of {len(configs)} runs have ended; {rest}")
        report = shlex.join(["fedbench", "report", str(configs[0].results_dir)])
        print(f"next: {report}  # page, figures; --compare algo for tests")
    done = all(result.status == "done" for result in results)
    return CommandResult(0 if done else 1, runs=tuple(run for run in runs if run.done))

"""``fedbench -m KEY=V1,V2 ...`` runs every combination, here or through a launcher of Hydra, such as that for SLURM."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fedbench.config.compose import Composer
from fedbench.config.overrides import parse_overrides
from fedbench.core.errors import RequestError
from fedbench.runs.cached_run import not_writable
from fedbench.runs.executors.base import RunBatch, RunResult
from fedbench.runs.executors.launcher import BATCH_SIZE
from fedbench.runs.executors.options import make_executor
from fedbench.runs.run import read_run
from fedbench.runs.sweep import check_combinations, combinations


def execute(args: Namespace) -> int:
    """Run every combination, print a table, and return the exit status: 0 if all runs are done.

    Raises:
        RequestError: If a combination is wrong; nothing is left on disk.
    """
    overrides = parse_overrides(args.overrides)
    launcher = [o.text for o in overrides if o.key.startswith(("hydra.", "hydra/"))]
    axes = [o for o in overrides if o.text not in launcher]
    for text in launcher:
        if text.startswith(("hydra.sweeper", "hydra/sweeper")) and not text.startswith(BATCH_SIZE):
            raise RequestError(f"{text}: type the axes of the sweep as overrides, such as seed=0,1,2")
    for axis in axes:
        if not axis.each():
            raise RequestError(f"{axis.text} has no list of values; type some, or use `fedbench tune`")
    executor = make_executor(args.jobs, args.on, args.run_cpus, args.run_gpus, launcher)
    composer = Composer(args.config_dir)
    todo = check_combinations(axes, composer, executor)
    # a directory that cannot be written to is refused once, and not by every run
    for results in {config.results_dir for config in todo}:
        try:
            results.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise not_writable(f"results_dir={results}", error) from error
    runs = combinations(axes)
    configs = todo or [composer.config(runs[0])]
    batch = RunBatch(runs, composer.config, args.config_dir, args.loud)
    try:
        executor.execute(batch, configs)
    except KeyboardInterrupt:
        _close(batch.results, args.config_dir, configs[0].results_dir)
        raise
    paths = {result.overrides: result.path for result in batch.results}
    args.paths = [paths.get(tuple(run)) for run in runs]
    return _close(batch.results, args.config_dir, configs[0].results_dir)


def _close(ended: Sequence[RunResult], config_dir: Path | None, results: Path) -> int:
    """Print the results of a sweep and return its exit status."""
    own = [] if config_dir is None else ["--config-dir", str(config_dir)]
    for e in ended:
        if e.status in ("refused", "failed"):
            print(f"fedbench: {e.status}: {' '.join(e.overrides)}: {e.error}", file=sys.stderr)
        if e.status == "failed":
            print(f"fedbench: to repeat it: {shlex.join(['fedbench', *own, *e.overrides])}", file=sys.stderr)
    # a directory counts once, however many runs led to it
    runs = [read_run(path) for path in dict.fromkeys(e.path for e in ended) if path is not None]
    if not runs:
        return 2
    from fedbench.analysis.build_tables import summary_tables
    from fedbench.reports.summary_table import summary_text  # late, as pandas is

    print(f"\n{summary_text(summary_tables(runs))}\n")
    print(f"next: {shlex.join(['fedbench', 'report', str(results)])}  # page, figures; --compare algo for tests")
    return 0 if all(e.status == "done" for e in ended) else 1

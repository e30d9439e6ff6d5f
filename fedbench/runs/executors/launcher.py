"""Execution of runs through a Hydra launcher, such as joblib's, or submitit's for SLURM."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from fedbench.config.compose import Composer
from fedbench.config.overrides import quoted
from fedbench.config.user_sources import user_code_from
from fedbench.runs.executors.base import Executor, RunBatch, RunResult
from fedbench.runs.executors.local import LocalExecutor
from fedbench.runs.progress import hidden

BATCH_SIZE = "hydra.sweeper.max_batch_size="
_INDEX = "planned_run"  # the axis of the launcher's sweep, whose values are indices of runs
_SETTINGS = (
    "hydra/hydra_logging=none",
    "hydra/job_logging=none",
    "hydra.output_subdir=null",
    "hydra.sweep.subdir=.",
    # maximum number of tasks in an array; SLURM's MaxArraySize is 1001 by default
    f"{BATCH_SIZE}1000",
)


@dataclass(frozen=True)
class LauncherExecutor(Executor):
    """An executor that runs a batch through a Hydra launcher.

    Attributes:
        settings: Overrides that choose and configure the launcher.
    """

    settings: Sequence[str]

    def execute(self, batch: RunBatch) -> None:
        """Execute runs as one Hydra sweep, and add their results when all have ended."""
        results_dir = batch.configs[0].results_dir
        folder = results_dir / "sweeps" / f"{datetime.now():%Y-%m-%d_%H-%M-%S}"
        typed = [
            *_SETTINGS,
            *self.settings,
            f"hydra.sweep.dir={quoted(str(folder.resolve()))}",
            f"+{_INDEX}=range(0,{len(batch.configs)})",
        ]
        # a launcher copies these for every run, so pass overrides, not the large configurations
        runs = [config.overrides for config in batch.configs]
        task = partial(_run, runs, batch.config_dir, batch.debug)
        for jobs in Composer(batch.config_dir).multirun(task, typed):
            batch.results.extend(job.return_value for job in jobs)


def _run(
    runs: Sequence[Sequence[str]],
    config_dir: Path | None,
    debug: bool,
    planned: Any,
) -> RunResult:
    """Execute one of the runs in the launcher's process, and return its result."""
    with user_code_from(config_dir):
        config = Composer(config_dir).config(runs[planned[_INDEX]])
    batch = RunBatch([config], config_dir, debug)
    # on a terminal, the bars of several processes would be drawn over one another
    with hidden() if sys.stderr.isatty() else nullcontext():
        LocalExecutor(1).execute(batch)
    return batch.results[0]

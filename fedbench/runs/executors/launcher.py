"""Runs through a launcher of Hydra: submitit's for SLURM, joblib's, or any other that is installed."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from fedbench.config.compose import Composer
from fedbench.config.overrides import quoted
from fedbench.config.schema import RunConfig
from fedbench.runs.executors.base import Executor, RunBatch, RunResult
from fedbench.runs.executors.local import LocalExecutor
from fedbench.runs.progress import hidden

BATCH_SIZE = "hydra.sweeper.max_batch_size="
_INDEX = "planned_run"  # the axis of the launcher's sweep: the numbers of the runs
_SETTINGS = (
    "hydra/hydra_logging=none",
    "hydra/job_logging=none",
    "hydra.output_subdir=null",
    "hydra.sweep.subdir=.",
    # tasks of an array at most; SLURM's MaxArraySize is 1001 unless the cluster sets another
    f"{BATCH_SIZE}1000",
)


@dataclass(frozen=True)
class LauncherExecutor(Executor):
    """Carries out runs through a launcher of Hydra.

    Attributes:
        settings: The overrides that choose and configure the launcher.
    """

    settings: Sequence[str]

    def execute(self, batch: RunBatch, configs: Sequence[RunConfig]) -> None:
        """Carry out runs as one sweep of Hydra, and add their results to the batch when all have ended."""
        folder = configs[0].results_dir / "sweeps" / f"{datetime.now():%Y-%m-%d_%H-%M-%S}"
        typed = [
            *_SETTINGS,
            *self.settings,
            f"hydra.sweep.dir={quoted(str(folder.resolve()))}",
            f"+{_INDEX}=range(0,{len(batch.overrides)})",
        ]
        for jobs in Composer(batch.config_dir).multirun(partial(_run, batch), typed):
            batch.results.extend(job.return_value for job in jobs)


def _run(batch: RunBatch, config: Any) -> RunResult:
    """Carry out one of the runs, where the launcher calls it, and return its result."""
    run = replace(batch, overrides=[batch.overrides[config[_INDEX]]], results=[])
    # on a terminal, the bars of several processes would be drawn over one another
    with hidden() if sys.stderr.isatty() else nullcontext():
        LocalExecutor(1).execute(run, [])
    return run.results[0]

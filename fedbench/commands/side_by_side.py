"""How many runs are carried out at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import psutil

from fedbench.commands.gpus import may_use_gpu, placement
from fedbench.config.schema import RunConfig
from fedbench.runs.cores import available_cores

_DENSE_BYTES = 2**30  # of memory, which are set aside for a run of a dense model
_OTHER_BYTES = 4 * 2**30  # for a run of any other model


def jobs_by_default(configs: Iterable[RunConfig], runs: int) -> int:
    """Return how many runs to carry out at a time: as many as there are cores and memory for, or one for each GPU.

    Args:
        configs: The configurations of the runs; those that differ in the seed alone may be given once.
        runs: Number of runs to do.
    """
    configs = list(configs)
    on_gpu = any(may_use_gpu(config) for config in configs)
    each = max((_bytes(config) for config in configs), default=_OTHER_BYTES)
    room: int = psutil.virtual_memory().available // each
    return max(1, min(len(placement(configs)) if on_gpu else available_cores(), runs, room))


def announce(runs: int, jobs: int, gpus: Sequence[str] = ()) -> None:
    """Say on standard error how many runs are carried out at a time, and on how many GPUs, if there are several."""
    if runs > 1:
        how = f"{jobs} at a time" if jobs > 1 else "one at a time"
        used = min(jobs, len(gpus))
        where = f" on {used} GPUs" if used > 1 else ""
        print(f"fedbench: {runs} runs, {how} (jobs={jobs}){where}", file=sys.stderr)


def _bytes(config: RunConfig) -> int:
    dense = (config.model.target or "").startswith("fedbench.models.dense.")
    return _DENSE_BYTES if dense else _OTHER_BYTES

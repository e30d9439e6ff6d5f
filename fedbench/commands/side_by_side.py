"""How many runs are carried out at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import psutil

from fedbench.config.schema import RunConfig
from fedbench.runs.cores import available_cores

_DENSE_BYTES = 2**30  # of memory, which are set aside for a run of a dense model
_OTHER_BYTES = 4 * 2**30  # for a run of any other model
_GPU_FILES = tuple(map(Path, ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")))


def jobs_by_default(configs: Iterable[RunConfig], runs: int) -> int:
    """Return how many runs to carry out at a time: as many as there are cores and memory for; one where there is a GPU.

    Args:
        configs: The configurations of the runs; those that differ in the seed alone may be given once.
        runs: Number of runs to do.
    """
    configs = list(configs)
    if any(_may_use_gpu(config.device) for config in configs):
        return 1
    each = max((_bytes(config) for config in configs), default=_OTHER_BYTES)
    room: int = psutil.virtual_memory().available // each
    return max(1, min(available_cores(), runs, room))


def announce(runs: int, jobs: int) -> None:
    """Say on standard error how many runs are carried out at a time, if there are several."""
    if runs > 1:
        how = f"{jobs} at a time" if jobs > 1 else "one at a time"
        print(f"fedbench: {runs} runs, {how} (jobs={jobs})", file=sys.stderr)


def _may_use_gpu(device: str) -> bool:
    """Return whether a run may be on a GPU: asking torch would take seconds."""
    return device.startswith("cuda") or (device == "auto" and any(f.exists() for f in _GPU_FILES))


def _bytes(config: RunConfig) -> int:
    dense = (config.model.target or "").startswith("fedbench.models.dense.")
    return _DENSE_BYTES if dense else _OTHER_BYTES

"""Where runs are carried out: one after another, in a number of processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import os
import re
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError
from fedbench.runs.on_ray import Cluster, OnRay
from fedbench.runs.pool import VISIBLE, RunBatch, RunResult, execute_all
from fedbench.runs.process import available_cores

_DENSE_BYTES = 2**30  # of memory, which are set aside for a run of a dense model
_OTHER_BYTES = 4 * 2**30  # for a run of any other model


@dataclass(frozen=True)
class Executor:
    """Where runs are carried out: in processes of this machine, or on a Ray cluster.

    Attributes:
        jobs: Number of runs at a time; None is what cores, GPUs and memory allow.
        cluster: The cluster; None for this machine.
    """

    jobs: int | None = None
    cluster: Cluster | None = None

    @classmethod
    def from_args(cls, args: Namespace) -> Executor:
        """Return what the options ``--jobs``, ``--on``, ``--run-cpus`` and ``--run-gpus`` of a command ask for.

        Raises:
            RequestError: If they contradict one another.
        """
        if args.on is None:
            if args.run_cpus or args.run_gpus:
                raise RequestError("--run-cpus and --run-gpus say what a run has on a Ray cluster; add --on ray")
            return cls(args.jobs)
        if args.jobs is not None:
            raise RequestError(
                "--jobs cannot be combined with --on: nodes take as many runs as they have cores and GPUs"
            )
        address = os.environ.get("RAY_ADDRESS") if args.on == "ray" else args.on
        return cls(None, Cluster(address and address.removeprefix("ray://"), args.run_cpus or 1.0, args.run_gpus))

    @property
    def starts_processes(self) -> bool:
        """Whether it may be in processes that this one starts."""
        return self.cluster is None and self.jobs != 1

    def number(self, configs: Sequence[RunConfig]) -> int:
        """Return how many of runs with these configurations are carried out at a time on this machine.

        Without ``jobs`` it is as many as there are cores and memory for, or one for each GPU.
        """
        if self.jobs is not None:
            return min(self.jobs, max(1, len(configs)))
        dense = all((config.model.target or "").startswith("fedbench.models.dense.") for config in configs)
        room = psutil.virtual_memory().available // (_DENSE_BYTES if dense and configs else _OTHER_BYTES)
        gpus = visible_gpus()
        on_gpu = any(c.device.startswith("cuda") or (c.device == "auto" and gpus) for c in configs)
        places = len(shared_gpus(configs)) if on_gpu else available_cores()
        return max(1, min(places, len(configs), int(room)))

    def execute(
        self, runs: RunBatch, configs: Sequence[RunConfig], ended: list[RunResult] | None = None
    ) -> list[RunResult]:
        """Return the results of runs, in the order in which they ended; a failure never stops the others.

        Args:
            runs: The runs.
            configs: Configurations of those that are not done, by which the number at a time is chosen.
            ended: The list that results are added to, for a caller that needs them when it is interrupted.

        Raises:
            RequestError: If the cluster cannot be reached.
            KeyboardInterrupt: On Ctrl-C, when all processes have stopped.
        """
        found: list[RunResult] = [] if ended is None else ended
        if self.cluster is None:
            execute_all(runs, self.number(configs), shared_gpus(configs), found)
        else:
            gpus = 0.0 if configs and all(config.device == "cpu" for config in configs) else self.cluster.gpus
            OnRay(runs, replace(self.cluster, gpus=gpus), found).work_through()
        return found


HERE = Executor()


def announce(runs: int, jobs: int) -> None:
    """Say on standard error how many runs are carried out at a time."""
    if runs > 1:
        how = f"{jobs} at a time" if jobs > 1 else "one at a time"
        print(f"fedbench: {runs} runs, {how} (jobs={jobs})", file=sys.stderr)


def visible_gpus() -> list[str]:
    """Return the GPUs that runs may use, as CUDA_VISIBLE_DEVICES names them; importing torch to ask takes seconds."""
    installed = [p.name.removeprefix("nvidia") for p in sorted(Path("/dev").glob("nvidia[0-9]*"))]
    listed = os.environ.get(VISIBLE)
    if listed is None or not installed:
        return installed
    return [name.strip() for name in listed.split(",") if re.fullmatch(r"\d+|(GPU|MIG)-\S+", name.strip())]


def shared_gpus(configs: Iterable[RunConfig]) -> list[str]:
    """Return the GPUs that processes share out; none if there is one, or a run names a GPU, whose index must stay."""
    devices, gpus = {config.device for config in configs}, visible_gpus()
    named = any(":" in device for device in devices)
    return gpus if len(gpus) > 1 and not named and devices - {"cpu"} else []

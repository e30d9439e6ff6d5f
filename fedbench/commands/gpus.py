"""The GPUs of this machine, and which of them a worker uses. PyTorch is not asked: importing it takes seconds."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedbench.config.schema import RunConfig

VISIBLE = "CUDA_VISIBLE_DEVICES"
_NODES = Path("/dev")  # the driver opens nvidia0, nvidia1, ... here; a container has those of its own GPUs only
_OTHERS = ("nvidiactl", "kfd", "dxg")  # a GPU whose number cannot be seen, as under WSL or ROCm: counted as one


def visible_gpus() -> list[str]:
    """Return the GPUs that runs may use, each as CUDA_VISIBLE_DEVICES names it: an index, or the UUID of a GPU or MIG.

    If that variable is set, its entries count up to the first one that is not a name, as for CUDA itself.
    """
    nodes = [p for p in _NODES.glob("nvidia[0-9]*") if p.name.removeprefix("nvidia").isdecimal()]
    installed = len(nodes) or int(any((_NODES / name).exists() for name in _OTHERS))
    listed = os.environ.get(VISIBLE)
    if listed is None or not installed:
        return [str(index) for index in range(installed)]
    names: list[str] = []
    for name in (text.strip() for text in listed.split(",")):
        if not re.fullmatch(r"\d+|(GPU|MIG)-\S+", name):
            break
        names.append(name)
    return names


def may_use_gpu(config: RunConfig) -> bool:
    """Return whether a run may be on a GPU."""
    return config.device.startswith("cuda") or (config.device == "auto" and bool(visible_gpus()))


def placement(configs: Iterable[RunConfig]) -> list[str]:
    """Return the GPUs that workers share out among themselves; none where there is nothing to choose.

    That is with fewer than two GPUs, and where a run asks for a GPU by its index, which has to keep its meaning.
    """
    configs, gpus = list(configs), visible_gpus()
    chosen = any(":" in config.device for config in configs)
    return [] if chosen or len(gpus) < 2 or not any(may_use_gpu(c) for c in configs) else gpus


def gpu_of(worker: int, gpus: Sequence[str]) -> dict[str, str]:
    """Return the environment that leaves the worker of a number one GPU; an empty one without a placement."""
    return {VISIBLE: gpus[worker % len(gpus)]} if gpus else {}

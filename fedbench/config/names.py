"""Stable names of fedbench's own functions, as ``_target_`` gives them: a run's identity survives a move of the code.

The stable name of a function is its dotted path at its first release. It is an opaque identifier from then on: it is
what enters the identity of a run, and what runs on disk and users' own YAML files may contain forever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# Module at its first release -> module today. A row may also name a single function, with its full path on both sides.
# Moving a module takes one row here; moving it again changes the right side.
MOVED: dict[str, str] = {
    "fedbench.algorithms.fedadagrad.fedadagrad": "fedbench.algorithms.fedadam.fedadagrad",
    "fedbench.algorithms.fedams.fedams": "fedbench.algorithms.fedadam.fedams",
    "fedbench.algorithms.fedyogi.fedyogi": "fedbench.algorithms.fedadam.fedyogi",
    "fedbench.algorithms.mofedsam.mofedsam": "fedbench.algorithms.fedsam.mofedsam",
    "fedbench.data.partition": "fedbench.data.partitions.basic",
    "fedbench.data.partition_dirichlet": "fedbench.data.partitions.dirichlet",
    "fedbench.data.partition_label": "fedbench.data.partitions.label",
    "fedbench.data.partition_quantity": "fedbench.data.partitions.quantity",
    "fedbench.models.lenet.LeNet": "fedbench.models.cnn.LeNet",
    "fedbench.runs.trackers.mlflow.MlflowTracker": "fedbench.runs.trackers.MlflowTracker",
    "fedbench.trackers.mlflow.MlflowTracker": "fedbench.runs.trackers.MlflowTracker",
    "fedbench.runs.trackers.tensorboard.TensorboardTracker": "fedbench.runs.trackers.TensorboardTracker",
    "fedbench.trackers.tensorboard.TensorboardTracker": "fedbench.runs.trackers.TensorboardTracker",
    "fedbench.runs.trackers.wandb.WandbTracker": "fedbench.runs.trackers.WandbTracker",
    "fedbench.trackers.wandb.WandbTracker": "fedbench.runs.trackers.WandbTracker",
}


def present(target: str) -> str:
    """Return the dotted path of a function today, given its stable or its present name."""
    return _looked_up(target, MOVED)


def stable(target: str) -> str:
    """Return the stable name of a function, given its stable or its present name."""
    return _looked_up(target, {today: first for first, today in MOVED.items()})


def within_fedbench(target: str) -> bool:
    """Return whether a ``_target_`` names a function of fedbench itself, not one of the user's own."""
    return target.split(".")[0] == "fedbench"


def renamed(tree: Any, name: Callable[[str], str]) -> Any:
    """Return a configuration with ``name`` applied to every ``_target_``, at any depth."""
    if isinstance(tree, dict):
        return {k: name(v) if k == "_target_" and isinstance(v, str) else renamed(v, name) for k, v in tree.items()}
    return [renamed(v, name) for v in tree] if isinstance(tree, list) else tree


def _looked_up(target: str, table: Mapping[str, str]) -> str:
    if target in table:
        return table[target]
    module, dot, function = target.rpartition(".")
    return table.get(module, module) + dot + function

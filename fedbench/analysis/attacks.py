"""What attacks cost: runs beside those in which the same clients do not attack."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedbench.config.identity import setting
from fedbench.core.files import config_value
from fedbench.runs.run import Run

_WHO = ("attack.clients", "attack.ids")
_HONEST = {"attack.data": "none", "attack.message": "none", "attack.loss_scale": 1.0}


def success_of(runs: Iterable[Run]) -> dict[Path, float]:
    """Return the success of the attack in each run, by its directory, as a share.

    It is the one that the run has recorded, for attacks on a pair of classes; otherwise 1 - accuracy / accuracy of the
    run with the same seed and settings in which the same clients do not attack (``attack=clean``), if there is one.
    """
    honest: dict[Any, float] = {}
    attacked: dict[Path, tuple[Any, float]] = {}
    found: dict[Path, float] = {}
    for run in runs:
        keys = setting(run.config)
        if not run.counts or _WHO[0] not in keys:
            continue
        last, rest = run.last_round(), {k: v for k, v in keys.items() if k in _WHO or not k.startswith("attack.")}
        partner = run.meta["seed"], *sorted((k, config_value(v)) for k, v in rest.items())
        if all(keys.get(k) == v for k, v in _HONEST.items()):
            honest[partner] = last["accuracy_mean"]
        elif last.get("attack_success") is None:
            attacked[run.path] = partner, last["accuracy_mean"]
        if last.get("attack_success") is not None:
            found[run.path] = last["attack_success"]
    return found | {path: 1 - got / honest[key] for path, (key, got) in attacked.items() if honest.get(key)}

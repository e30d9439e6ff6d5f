"""Success of attacks, computed from pairs of runs with and without the attack."""

from collections.abc import Iterable
from pathlib import Path

from fedbench.config.identity import setting
from fedbench.core.config_values import keys_text
from fedbench.runs.run import Run

# the settings of attack=clean, in which the chosen clients do not attack
_CLEAN = {
    "attack._target_": "fedbench.scenarios.attack.Attack",
    "attack.data": "none",
    "attack.message": "none",
    "attack.loss_scale": 1.0,
}


def attack_success(runs: Iterable[Run]) -> dict[Path, float]:
    """Return 1 - accuracy / clean accuracy of runs with an attack, by run directory.

    The clean accuracy is that of the run with ``attack=clean`` and the same attackers, settings and
    seed. Runs without such a partner are left out.
    """
    clean: dict[tuple[int, str], float] = {}
    attacked: dict[Path, tuple[tuple[int, str], float]] = {}
    for run in runs:
        keys = setting(run.config)
        if not run.counts or "attack.clients" not in keys:
            continue
        shared = {
            key: value
            for key, value in keys.items()
            if key in ("attack.clients", "attack.ids") or not key.startswith("attack.")
        }
        partner = (run.meta["seed"], keys_text(shared))
        accuracy = run.last_round()["accuracy_mean"]
        if keys | _CLEAN == keys:
            clean[partner] = accuracy
        else:
            attacked[run.path] = (partner, accuracy)

    success = {}
    for path, (partner, accuracy) in attacked.items():
        if clean.get(partner):
            success[path] = 1 - accuracy / clean[partner]
    return success

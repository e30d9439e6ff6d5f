"""Which scenarios go with which methods, by what the server's step sees of the clients, and why others do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedbench.core.algorithm import Algorithm, Averaging, Stage, by_weight
from fedbench.core.errors import RequestError

_REASONS = {
    1: "it sends numbers (losses, accuracies, step counts) or uses single updates, which would leave without noise",
    2: "the rule would replace the weights that make the method",
    3: "its uploads are masked already, and residuals would fall outside the mask",
    4: "the server's step needs the update of every client, not one vector",
    5: "the server's mean of client states would drift away from them for ever",
    6: "several vectors of different units per client: one selection, radius or budget for all of them is not defined",
    7: "second moments could become negative",
    8: "uploads replace the server's values, so that residuals would belong to old ones",
    9: "all clients must take part",
    10: "its second cohort is drawn apart",
    11: "its first stage visits every client once, alone",
    12: "trials start at the server's model, losses at the one that was sent",
    13: "it has not been said what its server's step sees of the clients",
}
# what a class of methods refuses, with the reasons; the needs are those of ``needs`` of the scenarios
_REFUSED: dict[str, dict[str, int]] = {
    "mean": {},  # one vector per client enters, through its mean alone
    "numbers": {"privacy": 1},
    "weights": {"rule": 2, "privacy": 1, "weights": 2},
    "masked": {"rule": 2, "privacy": 1, "up": 3, "weights": 2},
    "every": {"rule": 4, "privacy": 1, "weights": 4},
    "integrator": {"rule": 5, "norm_clip": 5, "privacy": 5, "weights": 5, "unsent": 5},
    "several": {"rule": 6, "norm_clip": 6, "privacy": 6, "weights": 6},
    "mimelite_adam": {"rule": 6, "norm_clip": 6, "privacy": 6, "down": 7, "weights": 6},
    "replacing": {"rule": 6, "norm_clip": 6, "privacy": 6, "up": 8, "weights": 6},
    "moments": {"message": 7, "rule": 6, "norm_clip": 6, "privacy": 6, "up": 8, "down": 7, "weights": 6},
    "drawn": {"away": 10, "rule": 2, "norm_clip": 6, "privacy": 1, "up": 8, "weights": 2},
    "visits": {"away": 11, "partial": 11, "rule": 11, "privacy": 11, "weights": 11},
    "unknown": dict.fromkeys(("rule", "norm_clip", "privacy", "up", "down", "weights"), 13),
}
# classes of fedbench's methods that do not show in their server's step
_CLASSES = {
    "fednova": "numbers",
    "fedheal": "masked",
    "scaffold": "integrator",
    "feddyn": "integrator",
    "fedcada": "moments",
    "fafed": "moments",
    "stem": "replacing",
    "fedcorr": "visits",
    "fedcorr_adafed": "visits",
}


def class_of(name: str, options: Mapping[str, Any], stages: Sequence[Stage], own: bool = False) -> str:
    """Return the class of a method: what the server's step sees of the clients.

    Args:
        name: Name of the method's function.
        options: Its options.
        stages: Its stages.
        own: Whether it is the user's own.
    """
    if name in _CLASSES:
        return _CLASSES[name]
    algo = stages[0].algorithm
    if name == "fedspeed" and options.get("server") == "all":
        return "integrator"
    if not isinstance(algo.update, Averaging):
        return "unknown" if own else "every"
    if name == "mimelite" and options.get("base") == "adam":
        return "mimelite_adam"
    if len(algo.update.weights) > 1:
        return "unknown" if own else "drawn" if name == "drfa" else "several"
    if any(weighting is not by_weight for weighting in algo.update.weights.values()):
        return "unknown" if own else "weights"
    return "numbers" if algo.needs or algo.trials is not None else "mean"


def refuse(name: str, kind: str, algo: Algorithm, needs: Mapping[str, str]) -> None:
    """Refuse scenarios that a method does not allow.

    Args:
        name: Name of the method.
        kind: Its class.
        algo: The method, or its first stage.
        needs: What the scenarios need of it, with the key that asks for it.

    Raises:
        RequestError: If the method does not allow one of them.
    """
    refused = _REFUSED[kind]
    if algo.everyone:
        refused = refused | {"away": 9} | ({"partial": 9} if algo.setup is not None else {})
    if algo.trials is not None and not algo.trials.drawn:
        refused = refused | {"down": 12}
    for need, key in needs.items():
        if need in refused:
            remedy = "set compression.up.feedback=ef" if need == "unsent" else "remove it"
            raise RequestError(f"{key} does not go with algo={name}: {_REASONS[refused[need]]}; {remedy}")
    if algo.weights != "uniform" and (asked := {"rule", "privacy"} & needs.keys()):
        key = needs[min(asked)]
        raise RequestError(f"{key} needs weights that do not depend on the clients; set algo.weights=uniform")

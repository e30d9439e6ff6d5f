"""Which scenarios go with which methods, by what the server's step sees of the clients, and why others do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedbench.core.algorithm import Algorithm, Averaging, by_weight
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
    14: "it needs weights of sum 1",
    15: "its exchange before the first round needs the same number of steps from every client",
}
_SEVERAL = {"rule": 6, "norm_clip": 6, "privacy": 6, "weights": 14}
_MOMENTS = _SEVERAL | {"message": 7, "up": 8, "down": 7}
# what a class of methods refuses, with the reasons; the needs are those of ``needs`` of the scenarios
_REFUSED: dict[str, dict[str, int]] = {
    "mean": {},  # one vector per client enters, through its mean alone
    "numbers": {"privacy": 1, "weights": 14},
    "weights": {"rule": 2, "privacy": 1, "weights": 14},
    "masked": {"rule": 2, "privacy": 1, "up": 3, "weights": 14},
    "every": {"rule": 4, "privacy": 1, "weights": 14},
    "integrator": {"rule": 5, "norm_clip": 5, "privacy": 5, "weights": 14, "unsent": 5},
    "several": _SEVERAL,
    "several moments": _SEVERAL | {"down": 7},
    "moments": _MOMENTS,
    "moments exchanged first": _MOMENTS | {"partial": 15},
    "exchanged first": _SEVERAL | {"up": 8, "partial": 15},
    "drawn": {"away": 10, "rule": 2, "norm_clip": 6, "privacy": 1, "up": 8, "weights": 14},
    "visits": {"away": 11, "partial": 11, "rule": 11, "privacy": 11, "weights": 14},
    "unknown": dict.fromkeys(("rule", "norm_clip", "privacy", "up", "down", "weights"), 13),
}
# classes of fedbench's methods that do not show in their server's step
_CLASSES = {
    "fednova": "numbers",
    "fedfa": "weights",
    "fedheal": "masked",
    "scaffold": "integrator",
    "feddyn": "integrator",
    "fedcada": "moments",
    "fafed": "moments exchanged first",
    "stem": "exchanged first",
    "fedcorr": "visits",
}


def class_of(name: str, options: Mapping[str, Any], algo: Algorithm, own: bool = False) -> str:
    """Return the class of a method: what the server's step sees of the clients.

    Args:
        name: Name of the method's function.
        options: Its options.
        algo: The method, or one of its stages.
        own: Whether it is the user's own.
    """
    weightings = list(algo.update.weights.values()) if isinstance(algo.update, Averaging) else []
    if own and weightings != [by_weight]:
        return "unknown"
    if name in _CLASSES and not own:
        return _CLASSES[name]
    if (name, options.get("server")) == ("fedspeed", "all"):
        return "integrator"
    if name == "mimelite":
        return "several moments" if options.get("base") == "adam" else "several"
    if name == "drfa":  # whose second cohort measures a model, or an iterate of the first one's clients
        return "drawn" if len(weightings) > 1 else "weights"
    if len(weightings) != 1:
        return "several" if weightings else "every"
    if weightings != [by_weight]:
        return "weights"
    return "numbers" if algo.needs or algo.trials is not None else "mean"


def refuse(name: str, kind: str, algo: Algorithm, needs: Mapping[str, str]) -> None:
    """Refuse scenarios that a method does not allow.

    Args:
        name: Name of the method.
        kind: Its class.
        algo: The method, or one of its stages.
        needs: What the scenarios need of it, with the key that asks for it.

    Raises:
        RequestError: If the method does not allow one of them.
    """
    refused = _REFUSED[kind]
    if algo.everyone:
        refused = refused | {"away": 9}
    if algo.trials is not None:
        refused = refused | ({"away": 10} if algo.trials.drawn else {"down": 12})
    for need, key in needs.items():
        if need in refused:
            remedy = "set compression.up.feedback=ef" if need == "unsent" else "remove it"
            raise RequestError(f"{key} does not go with algo={name}: {_REASONS[refused[need]]}; {remedy}")
    if algo.weights != "uniform" and (asked := {"uniform", "privacy"} & needs.keys()):
        key = needs[min(asked)]
        raise RequestError(f"{key} needs weights that do not depend on the clients; set algo.weights=uniform")

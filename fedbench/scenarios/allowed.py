"""Which scenarios go with which methods, by what the server's step sees of the clients, and why others do not."""

from __future__ import annotations

from collections.abc import Mapping

from fedbench.core.algorithm import Stage, by_weight
from fedbench.core.errors import RequestError

REASONS = {
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
    16: "who can be sampled depends on more than a coin of known rate",
}
# what a kind of method refuses, with the reasons; the needs are those of ``needs`` of the scenarios
_REFUSED: dict[str, dict[str, int]] = {
    "mean": {},  # one vector per client enters, through its mean alone
    "numbers": {"privacy": 1, "weights": 14},
    "weights": {"rule": 2, "privacy": 1, "weights": 14},
    "every": {"rule": 4, "privacy": 1, "weights": 14},
    "several": {"rule": 6, "norm_clip": 6, "privacy": 6, "weights": 14},
    "masks": {"rule": 2, "up": 3},
    "integrates": {"rule": 5, "norm_clip": 5, "privacy": 5, "weights": 14, "unsent": 5},
    "replaces": {"up": 8},
    "moments": {"message": 7, "down": 7},
    "moments down": {"down": 7},
    "equal steps": {"partial": 15},
    "visits": {"away": 11, "partial": 11, "rule": 11, "privacy": 11, "weights": 14},
    "unknown": dict.fromkeys(("rule", "norm_clip", "privacy", "up", "down", "weights"), 13),
}
# scenarios that exclude each other
_APART = {
    ("rule", "weights"): "a rule knows no weights",
    ("privacy", "chosen"): REASONS[16],
    ("privacy", "rule"): "its sensitivity is not C/m̃",
    ("privacy", "norm_clip"): "its sensitivity is not C/m̃",
    ("privacy", "weights"): "its weights are the same for all, and known before",
}


def refusals(stage: Stage, own: bool = False) -> dict[str, int]:
    """Return what a stage of a method refuses, with the numbers of the reasons.

    Args:
        stage: The stage.
        own: Whether the method is the user's own, of whose step nothing is assumed that it neither shows nor declares.
    """
    algo, refused = stage.algorithm, dict[str, int]()
    weightings = list(algo.averaging.weights.values())
    shown = "several" if len(weightings) > 1 else "weights" if weightings else "every"
    if weightings == [by_weight]:
        shown = "numbers" if algo.needs or algo.trials else "mean"
    elif own and not algo.kinds:
        shown = "unknown"
    for kind in (shown, *algo.kinds):
        refused |= _REFUSED[kind]
    if algo.everyone:
        refused["away"] = 9
    if algo.trials is not None:
        refused |= {"away": 10} if algo.trials.drawn else {"down": 12}
    if stage.sampler is not None:
        refused["away"] = 11
    return {"privacy": 16} | refused if stage.sampler or stage.eligible else refused


def refuse(name: str, stage: Stage, needs: Mapping[str, str], own: bool = False) -> None:
    """Refuse scenarios that a method does not allow, or that exclude each other.

    Args:
        name: Name of the method.
        stage: One of its stages.
        needs: What the scenarios need of it, with the key that asks for it.
        own: Whether it is the user's own.

    Raises:
        RequestError: If there is one.
    """
    refused = refusals(stage, own)
    for need, key in needs.items():
        if need in refused:
            remedy = "say it by kinds of Algorithm (docs/own_method.md)" if refused[need] == 13 else "remove it"
            remedy = "set compression.up.feedback=ef" if need == "unsent" else remedy
            raise RequestError(f"{key} does not go with algo={name}: {REASONS[refused[need]]}; {remedy}")
    if stage.algorithm.weights != "uniform" and (asked := {"uniform", "privacy"} & needs.keys()):
        key = needs[min(asked)]
        raise RequestError(f"{key} needs weights that do not depend on the clients; set algo.weights=uniform")
    for (one, other), why in _APART.items():
        if {one, other} <= needs.keys():
            raise RequestError(f"{needs[other]} does not go with {needs[one]}: {why}; remove one")

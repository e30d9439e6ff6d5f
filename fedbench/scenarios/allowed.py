"""Compatibility of scenarios with methods, given how the server step uses the uploads."""

from collections.abc import Mapping
from enum import Enum
from typing import Literal, TypeAlias

from fedbench.core.algorithm import Stage, by_weight
from fedbench.core.errors import RequestError

# demands of a scenario on a method
Demand: TypeAlias = Literal[
    "away",  # clients may be missing
    "chosen",  # clients are missing for reasons other than independent coin flips at one known rate
    "partial",  # clients may take fewer steps
    "weights",  # the weights may not sum to 1
    "message",  # attackers may upload arbitrary values
    "rule",  # a rule replaces the mean
    "uniform",  # the weights must not depend on the clients
    "norm_clip",  # vectors are clipped
    "privacy",  # the server uses one clipped vector per client, through a mean
    "up",  # uploads are compressed
    "down",  # the broadcast is compressed
    "unsent",  # part of an upload may never be sent
    "selection",  # cohorts are selected by losses
]


class Reason(Enum):
    """Reason why a scenario cannot be combined with a method.

    docs/scenarios.md numbers the reasons in this order.
    """

    NUMBERS = (
        "it sends numbers (losses, accuracies, steps) or uses single updates, "
        "which the noise would not protect"
    )
    OWN_WEIGHTS = "the rule would replace the weights that define the method"
    MASKS = "its uploads are masked already, and residuals would fall outside the mask"
    EVERY_UPLOAD = "the server's step needs every client's update, not one vector"
    DRIFT = "the server's mean of client states would drift from the true one"
    UNITS = (
        "its clients send vectors in different units, "
        "for which no common selection, radius or budget is defined"
    )
    MOMENTS = "second moments could become negative"
    REPLACED = "uploads replace the server's values, so residuals would belong to old values"
    EVERYONE = "all clients must take part"
    SECOND_COHORT = "its second cohort is sampled separately"
    VISITS = "its first stage visits every client once, one at a time"
    TRIALS = "trials use the server's model, but losses use the model that was sent"
    UNKNOWN = (
        "the method does not declare how its server step uses uploads (Algorithm's kinds field)"
    )
    SUM_1 = "it needs weights that sum to 1"
    EQUAL_STEPS = (
        "its exchange before the first round needs the same number of steps from every client"
    )
    COIN = "sampling depends on more than coin flips at a known rate"
    STATISTICS = (
        "running statistics are averaged outside the server's step, beyond any rule or noise, "
        "unless parts.statistics=local or parts.fix_after=0"
    )
    APART = "its clients' messages, if there are any, are not averaged"


# demands that each kind of method refuses
_REFUSED: dict[str, dict[Demand, Reason]] = {
    "mean": {},  # the server uses one vector per client, only through the mean
    "numbers": {"privacy": Reason.NUMBERS},
    "weights": {"rule": Reason.OWN_WEIGHTS, "privacy": Reason.NUMBERS},
    "every": {"rule": Reason.EVERY_UPLOAD, "privacy": Reason.NUMBERS},
    "several": {
        "rule": Reason.UNITS,
        "norm_clip": Reason.UNITS,
        "privacy": Reason.UNITS,
    },
    "masks": {"rule": Reason.OWN_WEIGHTS, "up": Reason.MASKS},
    "integrates": dict.fromkeys(("rule", "norm_clip", "privacy", "unsent"), Reason.DRIFT),
    "replaces": {"up": Reason.REPLACED},
    "moments": {"message": Reason.MOMENTS, "down": Reason.MOMENTS},
    "moments down": {"down": Reason.MOMENTS},
    "equal steps": {"partial": Reason.EQUAL_STEPS},
    "statistics": dict.fromkeys(("message", "rule", "privacy"), Reason.STATISTICS),
    "apart": dict.fromkeys(
        ("message", "rule", "norm_clip", "privacy", "up", "down", "unsent", "weights"), Reason.APART
    ),
    "visits": dict.fromkeys(("away", "partial", "rule", "privacy"), Reason.VISITS),
    "unknown": dict.fromkeys(
        ("rule", "norm_clip", "privacy", "up", "down", "weights"), Reason.UNKNOWN
    ),
}
# scenarios that exclude each other
_APART: dict[tuple[Demand, Demand], str] = {
    ("rule", "weights"): "a rule knows no weights",
    ("privacy", "chosen"): Reason.COIN.value,
    ("privacy", "rule"): "its sensitivity is not C/m̃",
    ("privacy", "norm_clip"): "its sensitivity is not C/m̃",
    ("privacy", "weights"): "its weights are the same for all, and known before",
    ("selection", "privacy"): "the losses that select the clients are private",
    ("selection", "down"): "the clients that are asked for losses would need reference models",
}


def refusals(stage: Stage, own: bool = False) -> dict[Demand, Reason]:
    """Return the demands that a stage of a method refuses, with the reasons.

    Args:
        stage: The stage.
        own: Whether the method is the user's own. For such a method, only properties that it shows
            or declares are assumed.
    """
    algo = stage.algorithm
    refused: dict[Demand, Reason] = {}
    kinds = (_kind_of_step(stage, own), *algo.kinds)
    if not {*kinds} <= {"mean", "statistics"}:
        refused["weights"] = Reason.SUM_1
    for kind in kinds:
        refused |= _REFUSED[kind]
    if algo.everyone:
        refused["away"] = Reason.EVERYONE
    if algo.trials is not None:
        if algo.trials.drawn:
            refused["away"] = Reason.SECOND_COHORT
        else:
            refused["down"] = Reason.TRIALS
    if stage.sampler is not None:
        refused["away"] = Reason.VISITS
    if stage.sampler or stage.eligible:
        refused.setdefault("privacy", Reason.COIN)
    return refused


def _kind_of_step(stage: Stage, own: bool) -> str:
    """Return the kind of a method, inferred from how its server step averages the uploads."""
    algo = stage.algorithm
    weightings = list(algo.averaging.weights.values())
    if weightings == [by_weight]:
        return "numbers" if algo.needs or algo.trials else "mean"
    if own and not algo.kinds:
        return "unknown"
    if not weightings:
        return "every"
    return "weights" if len(weightings) == 1 else "several"


def refuse(
    name: str,
    stage: Stage,
    needs: Mapping[Demand, str],
    own: bool = False,
) -> None:
    """Refuse scenarios that a method does not allow, or that exclude each other.

    Args:
        name: Name of the method.
        stage: One of its stages.
        needs: Demands of the scenarios, each with the configuration key that causes it.
        own: Whether the method is the user's own.

    Raises:
        RequestError: If a scenario is refused.
    """
    refused = refusals(stage, own)
    for demand, key in needs.items():
        if demand in refused:
            remedy = "set compression.up.feedback=ef" if demand == "unsent" else "remove it"
            raise RequestError(
                f"{key} does not go with algo={name}: {refused[demand].value}; {remedy}"
            )
    uniform = needs.get("privacy") or needs.get("uniform")
    if uniform and stage.algorithm.weights != "uniform":
        raise RequestError(
            f"{uniform} needs weights that do not depend on the clients; set algo.weights=uniform"
        )
    for (one, other), why in _APART.items():
        if {one, other} <= needs.keys():
            raise RequestError(f"{needs[other]} does not go with {needs[one]}: {why}; remove one")

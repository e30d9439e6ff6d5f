"""The metric by which trials are judged."""

from __future__ import annotations

from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError, nearest
from fedbench.core.metrics import CATALOGUE


def objective_of(config: RunConfig) -> str:
    """Return the name of the metric that a configuration asks for.

    Raises:
        RequestError: If there is no such metric, or it needs validation examples and there are none.
    """
    name, held_out = config.objective, config.data.validation > 0
    if name == "auto":
        return "val_accuracy_mean" if held_out else "accuracy_mean"
    plain = name.removeprefix("val_")
    known = [k for k, m in CATALOGUE.items() if m.formula is None and m.direction is not None]
    shared = plain.startswith("accuracy_") or plain in ("angle_degrees", "kl_uniform")  # also of validation examples
    if name != "val_loss" and not (plain in known and (plain == name or shared)):
        raise RequestError(
            f"objective={name} is not a metric{nearest(name, known)}; it is auto, or a column of rounds.jsonl with a "
            "better direction, such as accuracy_worst30 or val_loss"
        )
    if name != plain and not held_out:
        raise RequestError(f"objective={name} needs validation examples; add data.validation=0.2, for example")
    return name

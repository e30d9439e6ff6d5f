"""The number by which a sweeper judges a run."""

from __future__ import annotations

import math

from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError, nearest
from fedbench.core.metrics import CATALOGUE, lower_is_better
from fedbench.runs.run import Run


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


def objective_value(run: Run, name: str) -> float:
    """Return a metric of a run's last round; of a run that diverged the worst: 0 if higher is better, else infinity.

    It is NaN if the run did not measure it, as without validation examples on any client.
    """
    if not run.counts:
        return math.inf if lower_is_better(name) else 0.0
    value = run.last_round().get(name)
    return math.nan if value is None else float(value)

"""Trials of a method, what they are judged by, and the result of tuning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError, nearest
from fedbench.core.metrics import CATALOGUE
from fedbench.tuning.space import Axis, Values


@dataclass(frozen=True)
class Trial:
    """One choice of values.

    Attributes:
        number: Its number, from 0.
        values: The values by key.
        scores: For each number of rounds that it was trained for, the metric per tuning seed; None where a run diverged
            or failed.
    """

    number: int
    values: Values
    scores: dict[int, list[float | None]]

    @property
    def rounds(self) -> int:
        """The number of rounds that it reached."""
        return max(self.scores, default=0)

    def mean(self) -> float | None:
        """Return the mean over the tuning seeds after all rounds that it reached; None if a run diverged or failed."""
        return _mean(self.scores.get(self.rounds, []))


@dataclass(frozen=True)
class Tuned:
    """The result of tuning one method.

    Attributes:
        method: The method.
        space: The axes along which it was tuned.
        trials: All trials.
        best: The trial that is chosen; None if none was trained to the end without diverging.
        folder: Directory of the trials' runs.
    """

    method: str
    space: tuple[Axis, ...]
    trials: tuple[Trial, ...]
    best: Trial | None
    folder: Path


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


def edges(space: Sequence[Axis], values: Values) -> dict[str, str]:
    """Return the keys whose value lies at an end of its axis, with the end."""
    found = {axis.key: axis.edge(values[axis.key]) for axis in space}
    return {key: end for key, end in found.items() if end is not None}


def _mean(scores: Sequence[float | None]) -> float | None:
    known = [s for s in scores if s is not None]
    return sum(known) / len(known) if known and len(known) == len(scores) else None

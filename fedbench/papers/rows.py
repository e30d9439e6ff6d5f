"""Rows of tables and figures as data: methods with their printed numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import model_validator

from fedbench.papers.parsing import Entry, Known, MethodId, MetricId


@dataclass(frozen=True)
class Reported(Entry):
    """A number as printed.

    Attributes:
        mean: The number, in the unit of its metric.
        std: The printed ±, or None.
    """

    mean: float
    std: float | None

    @model_validator(mode="before")
    @classmethod
    def _of_number_or_pair(cls, value: Any) -> Any:
        pair = value if isinstance(value, list) else [value, None]
        if len(pair) != 2 or not all(isinstance(x, int | float | None) for x in pair) or pair[0] is None:
            raise ValueError(f"must be a number or [number, ±]; got {value!r}")
        return {"mean": pair[0], "std": pair[1]}


@dataclass(frozen=True)
class Impossible(Entry):
    """A contradiction between the printed numbers of a row (scripts/impossible_numbers.py).

    Attributes:
        columns: Metrics that it concerns.
        why: Why no accuracies of unweighted clients have all numbers of the row.
    """

    columns: tuple[MetricId, ...]
    why: str


@dataclass(frozen=True)
class Row(Entry):
    """A row of a table within one setup, or a run that a figure shows.

    Attributes:
        hyperparameters: Values as printed.
        values: Printed numbers by metric; empty for runs of figures.
        impossible: Why the printed numbers contradict each other, or None.
    """

    setup: str
    algo: MethodId
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Reported] = field(default_factory=dict)
    impossible: Impossible | None = None

    def validate(self, known: Known) -> None:
        """Refuse hyperparameters that set no config key."""
        method = known["methods"][self.algo]
        for name in self.hyperparameters:
            if name not in method.keys:
                raise ValueError(
                    f"the hyperparameter {name} has no config key; add it to keys of the method {method.id}, as in "
                    "keys: {lr: local.lr}"
                )


@dataclass(frozen=True)
class Tuning(Entry):
    """Which methods had their hyperparameters tuned, one sentence each; the rows use the values that the paper states.

    Attributes:
        paper: What the paper says that it tuned, and for which methods.
        here: What fedbench tuned where the paper states no value; otherwise that it tuned nothing.
    """

    paper: str
    here: str

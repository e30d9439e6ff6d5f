"""A metric of runs that are compared: its unit, its digits and which way is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedbench.core.errors import RequestError, choice
from fedbench.runs.store import Fields

_LOWER = ("accuracy_std", "accuracy_variance", "angle_degrees", "kl_uniform", "bytes", "seconds")  # and losses
_DIGITS = {"accuracy": 2, "angle": 2, "seconds": 2, "bytes": 0, "clients": 0}  # by the metric's first word; else 4


@dataclass(frozen=True)
class Measure:
    """A metric: factor to what is printed, digits, and 1 if higher is better, else -1."""

    name: str
    factor: float
    digits: int
    sign: int

    def read(self, last: Fields) -> float:
        """Return its value in the last line of ``rounds.jsonl``, in the unit that is printed."""
        return self.factor * float(last[self.name])

    def text(self, value: float | None, sign: str = "") -> str:
        """Return a value as printed."""
        return "–" if value is None else f"{value:{sign}.{self.digits}f}"

    @property
    def legend(self) -> str:
        """What is printed, and which way is better."""
        unit = {1.0: "", 100.0: ", percent", 1e4: ", percent²"}[self.factor]
        return f"{self.name} at the last round{unit}; {'higher' if self.sign > 0 else 'lower'} is better"


def read_metric(metric: str, rows: Sequence[tuple[Path, Fields]]) -> Measure:
    """Return how a metric is read and shown.

    Args:
        metric: a key of ``rounds.jsonl``.
        rows: directory and last line of the runs that are compared.

    Raises:
        RequestError: for an unknown metric, or one that was not measured in all of them.
    """
    choice("metric", metric, dict.fromkeys(k for _, last in rows for k in last if k != "round"))
    missing = [path for path, last in rows if last.get(metric) is None]
    if missing:
        raise RequestError(
            f"{metric} must have been measured in all runs that are compared, but is null in {len(missing)} of "
            f"{len(rows)}, first in {missing[0]}; choose another metric"
        )
    factor = 1.0
    if metric.startswith("accuracy_"):  # fractions; their variance is of fractions too
        factor = 1e4 if metric.startswith("accuracy_variance") else 100.0
    lower = metric.startswith(_LOWER) or "loss" in metric
    return Measure(metric, factor, _DIGITS.get(metric.split("_")[0], 4), -1 if lower else 1)

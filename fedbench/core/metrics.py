"""The catalogue of metrics: label, unit, digits and better direction of every number of a run.

Tables, figures, comparisons and the checks of a paper's file all use this catalogue; no metric is
described anywhere else; its entries are in ``metrics.yaml``. This module does not read runs.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedbench.core.config_values import read_yaml

_CLIENT = re.compile(r"client:(\d+)")


def _exp(loss: Any) -> Any:
    import numpy as np  # late: the command line lists tables without it

    return np.exp(loss)


@dataclass(frozen=True)
class MetricInfo:
    """A key of ``rounds.jsonl``, or a number derived from such keys.

    Attributes:
        name: The key.
        unit: Shown unit; empty for a plain number.
        factor: Factor from the unit of the run to the shown unit.
        digits: Number of shown digits after the decimal point.
        needs: For a derived number, the keys that its formula uses.
        formula: For a derived number, its function of these keys; None for a key of
            ``rounds.jsonl``.
        spread: Whether it measures how far apart clients are, not how good their models are.
    """

    name: str
    label: str
    heading: str
    direction: Literal["higher", "lower"] | None = None
    unit: str = ""
    factor: float = 1.0
    digits: int = 4
    needs: tuple[str, ...] = ()
    formula: Callable[..., Any] | None = None
    spread: bool = False

    @property
    def axis(self) -> str:
        """Label with the unit, for an axis."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    @property
    def sign(self) -> int:
        """-1 where lower is better, else 1."""
        return -1 if self.direction == "lower" else 1

    @property
    def difference_unit(self) -> str:
        """Unit of a difference of two values: points of percentages; empty for plain numbers."""
        return "points" if self.unit == "%" else self.unit

    def text(
        self,
        value: float | None,
        sign: str = "",
    ) -> str:
        """Return a value in the shown unit as text; a dash for None."""
        return "–" if value is None else f"{value:{sign}.{self.digits}f}"


def metric_info(name: str) -> MetricInfo:
    """Return the entry of a metric.

    A ``val_`` metric is the one of the test examples, measured on validation examples.

    A key that is not in the catalogue, such as that of a user's own metric, is shown unchanged and
    has no better direction.
    """
    if (plain := name.removeprefix("val_")) != name:
        tested = metric_info("test_loss" if plain == "loss" else plain)
        label = f"{tested.label.removeprefix('test ')}, validation"
        heading = f"{tested.heading.removeprefix('test ')} (val)"
        needs = tuple(f"val_{key}" for key in tested.needs)
        return replace(tested, name=name, label=label, heading=heading, needs=needs)
    if match := _CLIENT.fullmatch(name):
        client = f"client {match[1]}"
        label = f"accuracy of {client}"
        return replace(
            CATALOGUE["accuracy_mean"],
            name=name,
            label=label,
            heading=client,
        )
    if name in CATALOGUE:
        return CATALOGUE[name]
    label = name.replace("_", " ")
    return MetricInfo(name, label, label)


def is_field(name: object) -> bool:
    """Return whether a name is a metric of a run.

    It is in the catalogue, or is ``client:<k>``, the accuracy of client k.
    """
    return isinstance(name, str) and (name in CATALOGUE or _CLIENT.fullmatch(name) is not None)


def over_clients(name: str) -> bool:
    """Return whether a metric is a statistic of accuracies that ``accuracy_metrics`` returns."""
    return name.startswith(("accuracy_", "error_")) or name.removesuffix("_weighted") in _STATISTICS


def weighted_or_not(name: str, weighted: bool) -> str | None:
    """Return a statistic over clients with or without weights.

    Args:
        name: A metric. If it is no statistic over clients, or one that weights do not change, it is
            returned.
        weighted: Whether clients are weighted by their test examples.

    Returns:
        The name of the statistic; None if runs do not have it.
    """
    plain = name.removesuffix("_weighted")
    if not over_clients(name) or plain in ("accuracy_min", "accuracy_max"):
        return name
    wanted = f"{plain}_weighted" if weighted else plain
    return wanted if wanted in CATALOGUE else None


def lower_is_better(name: str) -> bool:
    """Return whether lower values of a metric are better."""
    return metric_info(name).direction == "lower"


# over clients, with names that do not begin with accuracy_ or error_
_STATISTICS = ("angle_degrees", "kl_uniform")
# of the metrics that they need; weighted statistics have the formulas of the others
_FORMULAS: dict[str, Callable[..., Any]] = {
    "train_perplexity": _exp,
    "error_mean": lambda mean: 1 - mean,
    "error_rsd": lambda std, mean: std / (1 - mean),
}


def _catalogue() -> dict[str, MetricInfo]:
    """Return the metrics of ``metrics.yaml``, derived ones with their formulas."""
    entries = read_yaml(Path(__file__).with_name("metrics.yaml"))
    catalogue = {}
    for name, entry in entries.items():
        needs = tuple(entry.pop("needs", ()))
        formula = _FORMULAS.get(name.removesuffix("_weighted"))
        catalogue[name] = MetricInfo(name, needs=needs, formula=formula, **entry)
    return catalogue


CATALOGUE = _catalogue()

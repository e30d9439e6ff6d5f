"""The catalogue of metrics: label, unit, digits and better direction of every number in a run.

Tables, figures, comparisons and the checks of a paper's file all use this catalogue, and no metric
is described anywhere else. Its entries are in ``metrics.yaml``. This module does not read runs.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedbench.core.config_values import read_yaml

# prefixes of metrics, with the ends of their labels and headings
_PREFIXES = {
    "untuned_": ("before fine-tuning", "untuned"),
    "held_out_": ("held-out clients", "held out"),
}
_CLIENT = re.compile(r"client:(\d+)")


def _exp(loss: Any) -> Any:
    import numpy as np  # imported late: the command line lists tables without NumPy

    return np.exp(loss)


@dataclass(frozen=True)
class MetricInfo:
    """A key of ``rounds.jsonl``, or a number derived from such keys.

    Attributes:
        name: The key.
        unit: Displayed unit; empty for a plain number.
        factor: Factor that converts a run's value to the displayed unit.
        digits: Number of displayed digits after the decimal point.
        needs: Keys that the formula of a derived number uses.
        formula: Function of these keys that computes a derived number; None for a key of
            ``rounds.jsonl``.
        spread: Whether the metric measures differences between clients rather than the quality of
            models.
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
        """-1 if lower is better, otherwise 1."""
        return -1 if self.direction == "lower" else 1

    @property
    def difference_unit(self) -> str:
        """Unit of a difference of two values: "points" for percentages; empty for plain numbers."""
        return "points" if self.unit == "%" else self.unit

    def text(
        self,
        value: float | None,
        sign: str = "",
    ) -> str:
        """Return a value in the displayed unit as text; a dash for None."""
        return "–" if value is None else f"{value:{sign}.{self.digits}f}"


def metric_info(name: str) -> MetricInfo:
    """Return the entry of a metric.

    A ``val_`` metric is the corresponding test metric, measured on validation examples;
    ``untuned_`` metrics are measured before fine-tuning, and ``held_out_`` metrics on clients that
    never train.

    A key outside the catalogue, such as a user's own metric, is displayed unchanged and has no
    better direction.
    """
    if (plain := name.removeprefix("val_")) != name:
        tested = metric_info("test_loss" if plain == "loss" else plain)
        label = f"{tested.label.removeprefix('test ')}, validation"
        heading = f"{tested.heading.removeprefix('test ')} (val)"
        needs = tuple(f"val_{key}" for key in tested.needs)
        return replace(tested, name=name, label=label, heading=heading, needs=needs)
    for prefix, (label, heading) in _PREFIXES.items():
        if name.startswith(prefix):
            whole = metric_info(name.removeprefix(prefix))
            needs = tuple(f"{prefix}{key}" for key in whole.needs)
            return replace(
                whole,
                name=name,
                label=f"{whole.label}, {label}",
                heading=f"{whole.heading} ({heading})",
                needs=needs,
            )
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


def metric_texts(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the numbers of a round as texts with units, by label."""
    texts = {}
    for name, value in row.items():
        if name != "round" and isinstance(value, int | float):
            info = metric_info(name)
            texts[info.label] = f"{info.text(info.factor * value)} {info.unit}".rstrip()
    return texts


def is_field(name: object) -> bool:
    """Return whether a name is a metric of a run.

    Metrics are the names in the catalogue and ``client:<k>``, the accuracy of client k.
    """
    return isinstance(name, str) and (name in CATALOGUE or _CLIENT.fullmatch(name) is not None)


def over_clients(name: str) -> bool:
    """Return whether a metric is a statistic over clients from ``accuracy_metrics``."""
    return name.startswith(("accuracy_", "error_")) or name.removesuffix("_weighted") in _STATISTICS


def validation_metrics() -> list[str]:
    """Return the names of the metrics on validation examples by which values can be chosen."""
    known = ["val_loss"]
    for key, metric in CATALOGUE.items():
        if over_clients(key) and not metric.needs:
            known.append(f"val_{key}")
    return known


def weighted_or_not(name: str, weighted: bool) -> str | None:
    """Return a statistic over clients with or without weights.

    Args:
        name: A metric. It is returned unchanged if it is not a statistic over clients, or if
            weights do not affect it.
        weighted: Whether clients are weighted by their number of test examples.

    Returns:
        Name of the statistic; None if runs do not contain it.
    """
    plain = name.removesuffix("_weighted")
    if not over_clients(name) or plain in ("accuracy_min", "accuracy_max"):
        return name
    wanted = f"{plain}_weighted" if weighted else plain
    return wanted if wanted in CATALOGUE else None


def lower_is_better(name: str) -> bool:
    """Return whether lower values of a metric are better."""
    return metric_info(name).direction == "lower"


# statistics over clients whose names do not begin with accuracy_ or error_
_STATISTICS = ("angle_degrees", "kl_uniform")
# functions of the metrics in ``needs``; weighted statistics use the formula of the unweighted one
_FORMULAS: dict[str, Callable[..., Any]] = {
    "train_perplexity": _exp,
    "error_mean": lambda mean: 1 - mean,
    "error_rsd": lambda std, mean: std / (1 - mean),
}


def _catalogue() -> dict[str, MetricInfo]:
    """Return the metrics in ``metrics.yaml``, with the formulas of derived metrics."""
    entries = read_yaml(Path(__file__).with_name("metrics.yaml"))
    catalogue = {}
    for name, entry in entries.items():
        needs = tuple(entry.pop("needs", ()))
        formula = _FORMULAS.get(name.removesuffix("_weighted"))
        catalogue[name] = MetricInfo(name, needs=needs, formula=formula, **entry)
    return catalogue


CATALOGUE = _catalogue()

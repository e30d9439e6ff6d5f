"""The catalogue of metrics: label, unit, digits and better direction of every number of a run, measured or derived.

Tables, figures, comparisons and the checks of a paper's file all use this catalogue; no metric is described anywhere
else. This module does not read runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

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
        formula: For a derived number, its function of these keys; None for a key of ``rounds.jsonl``.
    """

    name: str
    label: str
    heading: str
    unit: str = ""
    factor: float = 1.0
    digits: int = 4
    direction: Literal["higher", "lower"] | None = None
    needs: tuple[str, ...] = ()
    formula: Callable[..., Any] | None = None

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

    def text(self, value: float | None, sign: str = "") -> str:
        """Return a value in the shown unit as text; a dash for None."""
        return "–" if value is None else f"{value:{sign}.{self.digits}f}"


def metric_info(name: str) -> MetricInfo:
    """Return the entry of a metric.

    A ``val_`` metric is the one of the test examples, measured on validation examples.

    A key that is not in the catalogue, such as that of a user's own metric, is shown unchanged and has no better
    direction.
    """
    if (plain := name.removeprefix("val_")) != name:
        of = metric_info("test_loss" if plain == "loss" else plain)
        label = f"{of.label.removeprefix('test ')}, validation"
        return replace(of, name=name, label=label, heading=f"{of.heading.removeprefix('test ')} (val)")
    if found := _CLIENT.fullmatch(name):
        text = f"accuracy of client {found[1]}"
        return MetricInfo(name, text, f"client {found[1]}", "%", 100.0, 2, "higher")
    return CATALOGUE.get(name) or MetricInfo(name, name.replace("_", " "), name.replace("_", " "))


def is_field(name: object) -> bool:
    """Return whether a name is a metric of a run: in the catalogue, or ``client:<k>``, the accuracy of client k."""
    return isinstance(name, str) and (name in CATALOGUE or _CLIENT.fullmatch(name) is not None)


def weighted_or_not(name: str, weighted: bool) -> str | None:
    """Return a statistic over clients with or without weights.

    Args:
        name: A metric. If it is no statistic over clients, or one that weights do not change, it is returned.
        weighted: Whether clients are weighted by their test examples.

    Returns:
        The name of the statistic; None if runs do not have it.
    """
    plain = name.removesuffix("_weighted")
    statistic = plain.startswith(("accuracy_", "error_")) or plain in ("angle_degrees", "kl_uniform")
    if not statistic or plain in ("accuracy_min", "accuracy_max"):
        return name
    wanted = f"{plain}_weighted" if weighted else plain
    return wanted if wanted in CATALOGUE else None


def lower_is_better(name: str) -> bool:
    """Return whether lower values of a metric are better."""
    return metric_info(name).direction == "lower"


def _accuracies() -> list[MetricInfo]:
    tails = [
        MetricInfo(f"accuracy_{side}{p}", f"{side} {p} %", f"{side} {p}%", "%", 100.0, 2, "higher")
        for side in ("worst", "best")
        for p in (5, 10, 20, 30)
    ]
    return [
        MetricInfo("accuracy_mean", "mean accuracy", "mean", "%", 100.0, 2, "higher"),
        MetricInfo("accuracy_std", "STD of the accuracy", "STD", "%", 100.0, 2, "lower"),
        MetricInfo("accuracy_variance", "variance of the accuracy", "variance", "%²", 1e4, 2, "lower"),
        MetricInfo("accuracy_min", "lowest accuracy", "lowest", "%", 100.0, 2, "higher"),
        MetricInfo("accuracy_max", "highest accuracy", "highest", "%", 100.0, 2, "higher"),
        *tails,
        MetricInfo("accuracy_mean_weighted", "mean accuracy, weighted", "mean (w)", "%", 100.0, 2, "higher"),
        MetricInfo("accuracy_std_weighted", "STD of the accuracy, weighted", "STD (w)", "%", 100.0, 2, "lower"),
        MetricInfo("accuracy_worst30_weighted", "worst 30 %, weighted", "worst 30% (w)", "%", 100.0, 2, "higher"),
        MetricInfo("angle_degrees", "angle", "angle", "degrees", 1.0, 2, "lower"),
        MetricInfo("kl_uniform", "KL divergence from uniform", "KL", "", 1.0, 4, "lower"),
        MetricInfo("improved_clients", "improved clients", "improved", "%", 100.0, 2, "higher"),
    ]


def _work() -> list[MetricInfo]:
    return [
        MetricInfo("train_loss", "training loss", "training loss", direction="lower"),
        MetricInfo("test_loss", "test loss", "test loss", direction="lower"),
        MetricInfo("update_norm", "norm of the update", "update norm"),
        MetricInfo("clients", "clients", "clients", digits=0),
        MetricInfo("bytes_up", "uploaded", "uploaded", "bytes", digits=0, direction="lower"),
        MetricInfo("bytes_down", "downloaded", "downloaded", "bytes", digits=0, direction="lower"),
        MetricInfo("seconds_train", "training time", "training time", "seconds", digits=2, direction="lower"),
        MetricInfo("seconds_eval", "evaluation time", "evaluation time", "seconds", digits=2, direction="lower"),
    ]


def _derived() -> list[MetricInfo]:
    found = [
        MetricInfo(
            "train_perplexity", "training perplexity", "perplexity", "", 1.0, 4, "lower", ("train_loss",), _exp
        )
    ]  # fmt: skip
    for end, words in (("", ""), ("_weighted", ", weighted")):
        mean, std = f"accuracy_mean{end}", f"accuracy_std{end}"
        label, spread = f"mean error{words}", f"relative STD of the error{words}"
        found += [
            MetricInfo(f"error_mean{end}", label, label, "%", 100.0, 2, "lower", (mean,), lambda mean: 1 - mean),
            MetricInfo(
                f"error_rsd{end}",
                spread,
                spread,
                "%",
                100.0,
                2,
                "lower",
                (std, mean),
                lambda std, mean: std / (1 - mean),
            ),
        ]
    return found


CATALOGUE: dict[str, MetricInfo] = {m.name: m for m in (*_accuracies(), *_work(), *_derived())}

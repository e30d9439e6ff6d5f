"""The catalogue of metrics: label, unit, digits and better direction of every number of a run, measured or derived.

Tables, figures, comparisons and the checks of a paper's file all use this catalogue; no metric is
described anywhere else. This module does not read runs.
"""

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
        formula: For a derived number, its function of these keys; None for a key of
            ``rounds.jsonl``.
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

    @property
    def axis(self) -> str:
        """Label with the unit, for an axis."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    @property
    def sign(self) -> int:
        """-1 where lower is better, else 1."""
        return -1 if self.direction == "lower" else 1

    @property
    def spread(self) -> bool:
        """Whether the metric measures how far apart the clients are, not how good their models are."""
        return self.name.removesuffix("_weighted") in (
            "accuracy_std",
            "accuracy_variance",
            *_STATISTICS,
        )

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
        return MetricInfo(name, f"accuracy of {client}", client, "higher", *_PERCENT)
    return CATALOGUE.get(name) or MetricInfo(name, name.replace("_", " "), name.replace("_", " "))


def is_field(name: object) -> bool:
    """Return whether a name is a metric of a run: in the catalogue, or ``client:<k>``, the accuracy of client k."""
    return isinstance(name, str) and (name in CATALOGUE or _CLIENT.fullmatch(name) is not None)


def over_clients(name: str) -> bool:
    """Return whether a metric is a statistic of the clients' accuracies: one that ``accuracy_metrics`` returns."""
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
_PERCENT = ("%", 100.0, 2)
_PLAIN = ("", 1.0)
_TAILS = [(side, p) for side in ("worst", "best") for p in (5, 10, 20, 30)]
# the fields of MetricInfo in order
_ROWS: tuple[tuple[Any, ...], ...] = (
    ("accuracy_mean", "mean accuracy", "mean", "higher", *_PERCENT),
    ("accuracy_std", "STD of the accuracy", "STD", "lower", *_PERCENT),
    ("accuracy_variance", "variance of the accuracy", "variance", "lower", "%²", 1e4, 2),
    ("accuracy_min", "lowest accuracy", "lowest", "higher", *_PERCENT),
    ("accuracy_max", "highest accuracy", "highest", "higher", *_PERCENT),
    *(
        (f"accuracy_{side}{p}", f"{side} {p} %", f"{side} {p}%", "higher", *_PERCENT)
        for side, p in _TAILS
    ),
    ("accuracy_mean_weighted", "mean accuracy, weighted", "mean (w)", "higher", *_PERCENT),
    ("accuracy_std_weighted", "STD of the accuracy, weighted", "STD (w)", "lower", *_PERCENT),
    ("accuracy_worst30_weighted", "worst 30 %, weighted", "worst 30% (w)", "higher", *_PERCENT),
    ("angle_degrees", "angle", "angle", "lower", "degrees", 1.0, 2),
    ("kl_uniform", "KL divergence from uniform", "KL", "lower"),
    ("improved_clients", "improved clients", "improved", "higher", *_PERCENT),
    ("train_loss", "training loss", "training loss", "lower"),
    ("test_loss", "test loss", "test loss", "lower"),
    ("update_norm", "norm of the update", "update norm"),
    ("clients", "clients", "clients", None, *_PLAIN, 0),
    ("bytes_up", "uploaded", "uploaded", "lower", "bytes", 1.0, 0),
    ("bytes_down", "downloaded", "downloaded", "lower", "bytes", 1.0, 0),
    ("reported", "clients that report", "reported", None, *_PLAIN, 0),
    ("time", "duration of the round", "duration", "lower", "steps", 1.0, 2),
    ("attackers_accuracy", "accuracy of the attackers", "attackers", None, *_PERCENT),
    ("attack_success", "success of the attack", "attack success", None, *_PERCENT),
    ("deviation", "distance from the honest mean", "deviation", "lower"),
    ("chosen_attackers", "attackers among the chosen", "attackers chosen", "lower", *_PERCENT),
    ("epsilon", "privacy loss ε", "ε", "lower", *_PLAIN, 3),
    ("clip", "clipping bound", "clipping bound"),
    ("compression_error", "error of the compression", "compression error", "lower"),
    ("seconds_train", "training time", "training time", "lower", "seconds", 1.0, 2),
    ("seconds_eval", "evaluation time", "evaluation time", "lower", "seconds", 1.0, 2),
)
_MEASURED = [MetricInfo(*row) for row in _ROWS]
_PERPLEXITY = MetricInfo(
    "train_perplexity",
    "training perplexity",
    "perplexity",
    "lower",
    needs=("train_loss",),
    formula=_exp,
)


def _errors(suffix: str, words: str) -> list[MetricInfo]:
    """Return the metrics of the clients' errors, 1 - accuracy, weighted or not."""
    mean, rsd = f"mean error{words}", f"relative STD of the error{words}"
    of_mean, of_std = f"accuracy_mean{suffix}", f"accuracy_std{suffix}"
    return [
        MetricInfo(
            f"error_mean{suffix}", mean, mean, "lower", *_PERCENT, (of_mean,), lambda m: 1 - m
        ),
        MetricInfo(
            f"error_rsd{suffix}",
            rsd,
            rsd,
            "lower",
            *_PERCENT,
            (of_std, of_mean),
            lambda s, m: s / (1 - m),
        ),
    ]


_DERIVED = [_PERPLEXITY, *_errors("", ""), *_errors("_weighted", ", weighted")]
CATALOGUE = {metric.name: metric for metric in (*_MEASURED, *_DERIVED)}

"""The value of a key that is best on validation examples, per setting, and what it reaches on test examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from fedbench.analysis.groups import Member, blocks_of, members_of, titled
from fedbench.analysis.table import Cell
from fedbench.core.errors import RequestError
from fedbench.core.files import config_value
from fedbench.core.metrics import MetricInfo, metric_info
from fedbench.runs.run import Run


@dataclass(frozen=True)
class BestValue:
    """The best value of a key in one setting.

    Attributes:
        title: The setting: what its runs have in common.
        value: The best value, as typed.
        tried: All values with runs, as typed, in ascending order of numbers.
        judged: What the value reaches in the metric that it was chosen by.
        shown: What it reaches in the metric of the table.
        left_out: Values that were not considered, since one of their runs diverged or is not done.
    """

    title: str
    value: str
    tried: tuple[str, ...]
    judged: Cell
    shown: Cell
    left_out: tuple[str, ...]

    @property
    def edge(self) -> bool:
        """Whether the value is the first or last of several that were tried."""
        return len(self.tried) > 2 and self.value in (self.tried[0], self.tried[-1])


@dataclass(frozen=True)
class BestValues:
    """The best values of a key.

    Attributes:
        key: The key.
        by: The metric that they were chosen by.
        metric: The metric of the table.
        settings: One entry per setting.
    """

    key: str
    by: MetricInfo
    metric: MetricInfo
    settings: tuple[BestValue, ...]


def best_values(runs: Sequence[Run], key: str, metric: str, by: str = "validation") -> BestValues:
    """Return the value of a key with the best mean on validation examples, for each setting.

    A setting contains the runs that are equal in everything but the key and the seed.

    Args:
        runs: Runs on disk.
        key: A dotted key of the configuration.
        metric: The metric that is reported of the chosen value.
        by: ``validation``, which is val_accuracy_mean, or another metric on validation examples.

    Raises:
        RequestError: If no run has the key, or the metric is not one on validation examples, or was not measured.
        DamagedRun: If a run cannot be read.
    """
    judge = metric_info("val_accuracy_mean" if by == "validation" else by)
    if not judge.name.startswith("val_") or judge.direction is None:
        raise RequestError(
            f"--by must be validation or a metric on validation examples, such as val_loss, got {by}; values that are "
            "chosen on test examples say nothing about new ones"
        )
    shown = metric_info(metric)
    found = []
    for title, inside in titled(blocks_of(members_of(runs, key), key)):
        if (best := _best(title, inside, judge, shown)) is not None:
            found.append(best)
    if not found:
        raise RequestError(f"no value of {key} has runs that are all done; finish them, or choose another key")
    return BestValues(key, judge, shown, tuple(found))


def _best(title: str, inside: Sequence[Member], judge: MetricInfo, shown: MetricInfo) -> BestValue | None:
    by_value: dict[str, list[Member]] = {}
    for member in sorted(inside, key=_order):
        by_value.setdefault(config_value(member.value), []).append(member)
    whole = {v: members for v, members in by_value.items() if all(m.run.counts for m in members)}
    if not whole:
        return None
    judged = {v: Cell(tuple(_measured(m, judge) for m in members)) for v, members in whole.items()}
    value = max(judged, key=lambda v: judge.sign * mean(judged[v].values))  # of equal ones, the first
    return BestValue(
        title=title,
        value=value,
        tried=tuple(by_value),
        judged=judged[value],
        shown=Cell(tuple(_measured(m, shown) for m in whole[value])),
        left_out=tuple(v for v in by_value if v not in whole),
    )


def _measured(member: Member, metric: MetricInfo) -> float:
    """Return a metric of a run's last round, in the printed unit."""
    value = member.last.get(metric.name)
    if value is None:
        remedy = "; repeat the runs with data.validation=0.2" if metric.name.startswith("val_") else ""
        raise RequestError(f"{member.run.path} has no {metric.name}{remedy}")
    return metric.factor * float(value)


def _order(member: Member) -> tuple[Any, ...]:
    value = member.value
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return (0, float(value), "") if numeric else (1, 0.0, config_value(value))

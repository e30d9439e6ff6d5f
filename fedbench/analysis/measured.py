"""Numbers that runs have measured: curves, best rounds, and rounds to a target."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from fedbench.core.metrics import lower_is_better, metric_info
from fedbench.papers.schema import PrintedMetric
from fedbench.runs.run import Run

if TYPE_CHECKING:  # a plan does without it
    import pandas as pd


def rounds_to(curve: pd.Series, target: float, lower: bool) -> float:
    """Return the first evaluated round at which a curve has reached a target; infinite if it never does."""
    reached = curve.index[(curve <= target) if lower else (curve >= target)]
    return float(reached[0]) if len(reached) else math.inf


def mean_between(curve: pd.Series, first: int, last: int, length: float) -> float | None:
    """Return the mean of a curve from one round to another; None if none of these rounds was evaluated.

    Args:
        curve: Values by round.
        first: The first round, of a run of full length.
        last: The last round, of a run of full length.
        length: Rounds of the run as a share of the full length; the rounds of a shorter run are scaled.
    """
    share = min(1.0, length)
    start = max(1, math.ceil(share * first))
    part = curve.loc[start : max(start, math.floor(share * last))]
    return None if part.empty else float(part.mean())


def best_rounds(run: Run, names: Iterable[str]) -> dict[str, tuple[int, float]]:
    """Return the first round with the best value, and this value, of each metric that was measured.

    Higher is better where a metric has no direction.
    """
    table = run.rounds()
    numbers, found = table["round"].to_numpy(), {}
    for name in names:
        values = values_of(table, name)
        if values is not None and (known := np.isfinite(values)).any():
            lost = math.inf if lower_is_better(name) else -math.inf
            filled = np.where(known, values, lost)
            at = int(filled.argmin() if lower_is_better(name) else filled.argmax())
            found[name] = int(numbers[at]), float(values[at])
    return found


def last_clients(run: Run) -> pd.DataFrame:
    """Return the per-client table of the last round."""
    return run.clients_at()


def curve_of(rounds: pd.DataFrame, field: str) -> pd.Series:
    """Return a metric over the evaluated rounds, where it is finite, indexed by round; empty if it was not measured.

    Args:
        rounds: A row per evaluated round, with a column ``round``.
        field: A key of ``rounds.jsonl``, or a number derived from such keys, in the unit of the run.
    """
    import pandas as pd

    values = values_of(rounds, field)
    if values is None:
        return pd.Series(dtype=float)
    known = np.isfinite(values)
    name = None if metric_info(field).formula is not None else field
    return pd.Series(values[known], index=pd.Index(rounds["round"].to_numpy()[known], name="round"), name=name)


def values_of(rounds: pd.DataFrame, field: str) -> np.ndarray | None:
    """Return a metric at each row of some rounds, not finite where it was not measured; None if it never was."""
    entry = metric_info(field)
    needed = entry.needs or (field,)
    if not all(key in rounds for key in needed):
        return None
    columns = [rounds[key].to_numpy(dtype=float) for key in needed]
    with np.errstate(all="ignore"):  # what overflows is not finite
        values: np.ndarray = columns[0] if entry.formula is None else entry.formula(*columns)
    return values


def best_round(run: Run, metric: PrintedMetric) -> tuple[int, float] | None:
    """Return the first round with the best value of a metric, and the value; None if it was not measured."""
    return best_rounds(run, (metric.field,)).get(metric.field)

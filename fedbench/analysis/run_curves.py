"""Curves of runs by setting and by the values of a key: a metric against rounds, communication or seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedbench.analysis.groups import runs_by_value
from fedbench.analysis.measured import curve_of
from fedbench.analysis.stats import interval
from fedbench.core.errors import RequestError, nearest
from fedbench.core.metrics import CATALOGUE, metric_info
from fedbench.runs.run import Run

POSITIONS = {  # what curves are drawn against: label, keys of rounds.jsonl that are added, factor
    "round": ("round", (), 1.0),
    "bytes": ("communication (MB, up and down)", ("bytes_up", "bytes_down"), 1e-6),
    "bytes_up": ("uploaded (MB)", ("bytes_up",), 1e-6),
    "bytes_down": ("downloaded (MB)", ("bytes_down",), 1e-6),
    "seconds": ("time of training (s)", ("seconds_train",), 1.0),
}


@dataclass(frozen=True)
class RunCurve:
    """A metric of the runs of one setting over the rounds that any seed evaluated.

    Attributes:
        setting: What the runs have in common.
        name: The value of the key, and what else distinguishes the line.
        algo: The method.
        x: Positions [T], each the mean over the seeds with a value there.
        y: Values [S, T] in the shown unit, a row per seed; NaN where missing.
    """

    setting: str
    name: str
    algo: str
    x: np.ndarray
    y: np.ndarray

    def t_interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends [T] of the 95 % t interval of the mean over seeds; NaN for fewer than two values."""
        ends = [interval(column[~np.isnan(column)]) or (np.nan, np.nan) for column in self.y.T]
        low, high = np.array(ends).T
        return low, high


def run_curves(runs: Sequence[Run], x: str, y: str, by: str) -> list[RunCurve]:
    """Return the curves of finished runs, the settings and values in order.

    Args:
        runs: Runs on disk; runs that are not done do not count.
        x: One of ``POSITIONS``.
        y: A key of ``rounds.jsonl``, or a number derived from such keys.
        by: ``algo``, ``data``, ``model`` or a dotted key of the configuration.

    Raises:
        RequestError: If a key is unknown, or no run measured it.
        DamagedRun: If a run cannot be read.
    """
    if x not in POSITIONS:
        raise RequestError(f"--x must be one of {', '.join(POSITIONS)}; got {x}{nearest(x, POSITIONS)}")
    found = []
    for setting, lines in runs_by_value(runs, by):
        for name, members in lines.items():
            if (curve := _curve(setting, name, members, x, y)) is not None:
                found.append(curve)
    if not found:
        raise RequestError(_not_measured(runs, y))
    return found


def _curve(setting: str, name: str, runs: Sequence[Run], x: str, y: str) -> RunCurve | None:
    """Return the curve of the runs of one setting, a run per seed; None if none of them measured it."""
    _, added, factor = POSITIONS[x]
    values, places = {}, {}
    for i, run in enumerate(runs):
        rounds = run.curves([*(metric_info(y).needs or (y,)), *added])
        curve = curve_of(rounds, y)
        if len(curve):
            values[i] = curve
            places[i] = (
                factor * rounds.set_index("round").loc[curve.index, list(added)].sum(axis=1)
                if added
                else curve.index.to_series()
            )
    if not values:
        return None
    table, at = pd.DataFrame(values), pd.DataFrame(places)
    return RunCurve(
        setting=setting,
        name=name,
        algo=str(runs[0].meta["algo"]),
        x=at.mean(axis=1).to_numpy(float),
        y=table.to_numpy(float).T * metric_info(y).factor,
    )


def _not_measured(runs: Sequence[Run], y: str) -> str:
    """Return the message about a metric that no run has, with those that they have."""
    done = [run for run in runs if run.done]
    if not done:
        return f"none of {len(runs)} runs is done"
    last = done[0].last_round()
    derived = (n for n, m in CATALOGUE.items() if m.needs and all(last.get(k) is not None for k in m.needs))
    known = sorted({*(k for k, v in last.items() if v is not None and k != "round"), *derived})
    return f"--y {y} was not measured; these runs have {', '.join(known)}{nearest(y, known)}"

"""Curves of runs: measured numbers by round or along another axis."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedbench.analysis.settings import blocks_of
from fedbench.core.errors import RequestError, nearest
from fedbench.core.metrics import lower_is_better, metric_info
from fedbench.runs.run import Run


def rounds_to(
    curve: pd.Series,
    target: float,
    lower: bool,
) -> float:
    """Return the first evaluated round at which a curve reaches a target, or infinity."""
    reached = curve.index[(curve <= target) if lower else (curve >= target)]
    return float(reached[0]) if len(reached) else math.inf


def mean_between(
    curve: pd.Series,
    first: int,
    last: int,
    length: float,
) -> float | None:
    """Return the mean of a curve over some rounds; None if none of them was evaluated.

    Args:
        curve: Values by round.
        first: The first round, in a run of full length.
        last: The last round, in a run of full length.
        length: Number of rounds of the run as a share of the full length. For a shorter run,
            ``first`` and ``last`` are scaled down.
    """
    share = min(1.0, length)
    start = max(1, math.ceil(share * first))
    end = max(start, math.floor(share * last))
    part = curve.loc[start:end]
    return None if part.empty else float(part.mean())


def best_of(curve: pd.Series, field: str) -> tuple[int, float]:
    """Return the first round with the best value of a curve, and this value.

    If the metric has no direction, higher values count as better.
    """
    values = curve.to_numpy()
    best = int(values.argmin() if lower_is_better(field) else values.argmax())
    return int(curve.index[best]), float(values[best])


def best_rounds(
    run: Run,
    names: Iterable[str],
) -> dict[str, tuple[int, float]]:
    """Return the best round and value (``best_of``) of each metric that was measured."""
    rounds = run.rounds()
    best = {}
    for name in names:
        curve = curve_of(rounds, name)
        if len(curve):
            best[name] = best_of(curve, name)
    return best


def curve_of(rounds: pd.DataFrame, field: str) -> pd.Series:
    """Return the finite values of a metric, in the run's unit, indexed by evaluated round.

    The series is empty if the metric was not measured.

    Args:
        rounds: A row per evaluated round, with a column ``round``.
        field: A key of ``rounds.jsonl``, or a number derived from such keys.
    """
    metric = metric_info(field)
    needed = metric.needs or (field,)
    if not all(key in rounds for key in needed):
        return pd.Series(dtype=float)
    columns = [rounds[key].to_numpy(dtype=float) for key in needed]
    with np.errstate(all="ignore"):  # overflows are dropped as not finite
        values = columns[0] if metric.formula is None else metric.formula(*columns)
    known = np.isfinite(values)
    evaluated = rounds["round"].to_numpy()[known]
    return pd.Series(values[known], index=pd.Index(evaluated, name="round"))


# ---- curves of any runs

_POSITIONS = {  # horizontal axes: label, keys of rounds.jsonl to add up, factor
    "round": ("round", (), 1.0),
    "bytes": ("communication (MB, up and down)", ("bytes_up", "bytes_down"), 1e-6),
    "bytes_up": ("uploaded (MB)", ("bytes_up",), 1e-6),
    "bytes_down": ("downloaded (MB)", ("bytes_down",), 1e-6),
    "seconds": ("time of training (s)", ("seconds_train",), 1.0),
}


def position(x: str) -> tuple[str, tuple[str, ...], float]:
    """Return the label of an axis, the keys of ``rounds.jsonl`` that it adds up, and a factor.

    Args:
        x: ``round``, ``bytes`` (up and down), ``seconds`` or a key of ``rounds.jsonl``.
    """
    entry = metric_info(x)
    return _POSITIONS.get(x) or (entry.axis, (x,), entry.factor)


@dataclass(frozen=True)
class RunCurve:
    """A metric of the runs of one setting, over all rounds that at least one seed evaluated.

    Attributes:
        setting: Description of the common setting of the runs.
        name: The value of the key, and other keys that distinguish the line.
        algo: The method.
        x: Positions [T], each the mean over the seeds with a value there.
        y: Values [S, T] in the shown unit, a row per seed; NaN where missing.
    """

    setting: str
    name: str
    algo: str
    x: np.ndarray
    y: np.ndarray


def run_curves(
    runs: Sequence[Run],
    x: str,
    y: str,
    by: str,
) -> list[RunCurve]:
    """Return the curves of finished runs, ordered by setting and by value of a key.

    Args:
        runs: Runs on disk; unfinished runs are ignored.
        x: Horizontal axis, as for ``position``.
        y: A key of ``rounds.jsonl``, or a number derived from such keys.
        by: The key: ``algo``, ``data``, ``model`` or a dotted configuration key.

    Raises:
        RequestError: If a key is unknown, or no run measured it.
        DamagedRun: If a run cannot be read.
    """
    curves = []
    for block in blocks_of(runs, by):
        for name, members in block.lines.items():
            curve = _curve(block.title, name, members, x, y)
            if curve is not None:
                curves.append(curve)
    if not curves:
        raise RequestError(_not_measured(runs, x, y))
    return curves


def _curve(
    setting: str,
    name: str,
    runs: Sequence[Run],
    x: str,
    y: str,
) -> RunCurve | None:
    """Return the curve of one setting from a run per seed; None if it was not measured."""
    _, added, factor = position(x)
    fields: list[str] = []
    for field in (y, *added):
        fields += metric_info(field).needs or (field,)
    values = []
    positions = []
    for run in runs:
        rounds = run.curves(fields)
        curve = curve_of(rounds, y)
        parts = [curve_of(rounds, field) for field in added]
        if len(curve) and all(map(len, parts)):
            along = curve.index.to_series()
            if parts:
                total = pd.concat(parts, axis=1).sum(axis=1, min_count=1)
                along = total.reindex(curve.index)
            values.append(curve)
            positions.append(factor * along)
    if not values:
        return None
    means = pd.concat(positions, axis=1).sort_index().mean(axis=1)
    table = pd.concat(values, axis=1).sort_index()
    return RunCurve(
        setting=setting,
        name=name,
        algo=str(runs[0].meta["algo"]),
        x=means.to_numpy(float),
        y=table.to_numpy(float).T * metric_info(y).factor,
    )


def _not_measured(
    runs: Sequence[Run],
    x: str,
    y: str,
) -> str:
    """Return the error message about unmeasured axes, with the keys that the runs contain."""
    done = [run for run in runs if run.counts]
    if not done:
        return f"none of {len(runs)} runs is done"
    known = {**_POSITIONS, **done[0].last_round()}
    hints = [nearest(name, known) for name in (x, y) if name not in known]
    return (
        f"--y {y} over --x {x} was not measured; these runs have {', '.join(known)}{''.join(hints)}"
    )


def loss_curves(clients: pd.DataFrame) -> pd.DataFrame:
    """Return the training losses [rounds, clients] of clients with a loss in every kept round."""
    losses = clients.pivot(index="round", columns="client", values="train_loss")
    return losses.dropna(axis=1)


def low_and_high(clients: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return the training losses of the clients with the lowest and the highest initial loss."""
    table = loss_curves(clients)
    first = table.iloc[0]
    return table[first.idxmin()], table[first.idxmax()]

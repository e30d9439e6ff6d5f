"""Where trials come from: spread at random, or from Optuna's tree-structured Parzen estimator.

Random trials are quasi-random, as in AlgoPerf's tuning rules (Dahl et al., 2023): uniform each, and spread evenly over
the space however many there are, so that a small budget leaves no large gaps.

A trial is a function of the space, its number and the trials before its batch: a search that is interrupted and typed
again, or continued with a larger budget, has the same trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal
from zlib import crc32

import numpy as np

from fedbench.core.errors import RequestError, install_hint
from fedbench.core.randomness import key
from fedbench.tuning.space import Axis, Values, grid_size

if TYPE_CHECKING:
    import optuna

Sampler = Literal["random", "tpe"]
_SEED = 0x7E5  # of all searches: the trials of a space are part of its definition
_STEPS = (
    0.6180339887498949,
    *(n**0.5 % 1 for n in (2, 3, 7, 11, 13, 17, 19)),
)  # with 1, independent over the rationals
STARTUP = 8  # trials of the estimator that are drawn at random

History = Sequence[tuple[Values, float]]  # values and score of finished trials, higher is better


def drawn(sampler: Sampler, space: Sequence[Axis], history: History, first: int, count: int) -> list[Values]:
    """Return the values of the trials ``first``, ``first`` + 1, ..., at most ``count``; fewer if a grid is used up.

    Args:
        sampler: Where trials come from.
        space: The axes.
        history: The trials that have ended, none of them newer than ``first``.
        first: Number of the first trial.
        count: Number of trials.
    """
    if sampler == "random" or first < STARTUP:
        return _random(space, first, count)
    return _estimated(space, history, first, count)


def _random(space: Sequence[Axis], first: int, count: int) -> list[Values]:
    """Return a randomly shifted Kronecker sequence; of a space of grids, all points in a random order.

    The draws of an axis depend on its key, its place and the number of the trial: the client learning rates of trial 7
    are the same for all methods that share their range.
    """
    if (size := grid_size(space)) is not None:
        order = np.random.default_rng([_SEED, *(crc32(axis.text.encode()) for axis in space)]).permutation(size)
        return [_point(space, int(index)) for index in order[first : first + count]]
    shares = [(axis, _shift(axis.key), _STEPS[place % len(_STEPS)]) for place, axis in enumerate(space)]
    return [{a.key: a.at((shift + n * step) % 1) for a, shift, step in shares} for n in range(first, first + count)]


def _point(space: Sequence[Axis], index: int) -> Values:
    values: Values = {}
    for axis in space:
        index, place = divmod(index, len(axis.grid))
        values[axis.key] = axis.grid[place]
    return values


def _shift(name: str) -> float:
    return (key(_SEED, crc32(name.encode())) >> 11) / 2**53


def _estimated(space: Sequence[Axis], history: History, first: int, count: int) -> list[Values]:
    """Return trials that Optuna's estimator suggests, given those that have ended."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise RequestError(f"sampler=tpe needs the package optuna; run: {install_hint('tune')}") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    places = {axis.key: _distribution(axis) for axis in space}
    sampler = optuna.samplers.TPESampler(n_startup_trials=0, seed=key(_SEED, first) >> 32, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for values, score in history:
        params = {axis.key: _place(axis, values[axis.key]) for axis in space}
        study.add_trial(optuna.trial.create_trial(value=score, params=params, distributions=places))
    asked = [study.ask(places).params for _ in range(count)]
    return [{axis.key: _value(axis, trial[axis.key]) for axis in space} for trial in asked]


def _distribution(axis: Axis) -> optuna.distributions.BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if axis.grid:
        return CategoricalDistribution(list(range(len(axis.grid))))
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def _place(axis: Axis, value: Any) -> Any:
    return axis.grid.index(value) if axis.grid else value


def _value(axis: Axis, place: Any) -> Any:
    return axis.grid[place] if axis.grid else min(axis.high, max(axis.low, float(f"{place:.3g}")))

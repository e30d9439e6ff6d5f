"""Metrics of the user's own: functions of per-client arrays that return one number per evaluated round."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from fedbench.core.errors import RequestError, nearest
from fedbench.core.places import place_of
from fedbench.simulation.checks import FirstCall, kind
from fedbench.simulation.diagnostics import COLUMNS
from fedbench.simulation.evaluation import Evaluation

_ARRAYS = ("accuracy", "loss", "weights")
_RESERVED = ("accuracy_", "val_")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_COUNTED = ("round", "clients", "bytes_up", "bytes_down", "seconds_train", "seconds_eval")


class CustomMetric:
    """A metric of the user's own.

    Args:
        name: Its column in ``rounds.jsonl``.
        function: The function. Of the arrays ``accuracy``, ``loss`` and ``weights`` [N] it takes those that it has
            parameters for.
        options: Its other arguments.

    Raises:
        RequestError: If the name is taken or cannot name a column, or the function has other parameters.
    """

    def __init__(self, name: str, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        _refuse_name(name)
        takes = inspect.signature(function).parameters
        _refuse_parameters(name, function, takes, options)
        self.name = name
        self._arrays = tuple(k for k in _ARRAYS if k in takes)
        given = partial(function, **options)
        self._call = FirstCall(lambda arrays: given(**arrays), f"metrics.{name}", _not_a_number, named=function)

    def measure(self, evaluation: Evaluation) -> float | None:
        """Return the metric over the clients that have test examples; None if there are none.

        Raises:
            RequestError: If the function raises an error or returns no number, in its first call.
        """
        tested = evaluation.n_test > 0
        if not tested.any():
            return None
        n = evaluation.n_test[tested]
        arrays = (evaluation.correct[tested] / n, evaluation.test_loss[tested] / n, n.astype(np.float64))
        found = dict(zip(_ARRAYS, arrays, strict=True))
        return float(self._call({k: found[k] for k in self._arrays}))


def _refuse_name(name: str) -> None:
    one = np.ones(1)
    taken = {*_COUNTED, *COLUMNS, *Evaluation(one, one, one, one, one).summary()}
    if name in taken:
        raise RequestError(f"metrics.{name}: every run has a column {name}; give the metric another name")
    if name.startswith(_RESERVED):
        raise RequestError(
            f"metrics.{name}: names that begin with {' or '.join(_RESERVED)} are those of fedbench's own columns; "
            "choose another"
        )
    if not _NAME.fullmatch(name):
        raise RequestError(f"metrics.{name}: a name consists of lower-case letters, digits and _")


def _refuse_parameters(
    name: str, function: Callable[..., Any], takes: Mapping[str, inspect.Parameter], options: Mapping[str, Any]
) -> None:
    where = f"metrics.{name}: {place_of(function)}"
    known = [k for k in takes if k not in _ARRAYS]
    for key in options:
        if key not in known:
            raise RequestError(f"{where} has no option {key}; it has {', '.join(known) or 'none'}{nearest(key, known)}")
    for key in known:
        if takes[key].default is inspect.Parameter.empty and key not in options:
            raise RequestError(
                f"{where} needs {key}, which is neither {', '.join(_ARRAYS)} nor set; type +metrics.{name}.{key}=..."
            )


def _not_a_number(args: tuple[Any, ...], result: Any) -> str | None:
    """What is wrong with the result of a metric, or None."""
    if not isinstance(result, bool) and isinstance(result, Real) and np.isfinite(float(result)):
        return None
    got = f"{result}" if isinstance(result, Real) else kind(result)
    arrays = ", ".join(f"{k} {list(v.shape)}" for k, v in args[0].items())
    return f"returned {got}; expected one finite number from {arrays}"

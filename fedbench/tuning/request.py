"""The request that the arguments of ``fedbench tune`` or ``fedbench compare`` make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedbench.config.overrides import Override, parse_overrides
from fedbench.core.errors import RequestError
from fedbench.core.options import Count
from fedbench.core.validation import choice, validate
from fedbench.runs.executors.base import Executor
from fedbench.runs.executors.local import LocalExecutor

FIRST_TUNING_SEED = 1000  # seeds of tables are small numbers
TABLE_SEEDS = 10  # which can decide between up to seven methods at 5 %, all pairs compared
_THIS_MACHINE = LocalExecutor()
_OURS: dict[str, tuple[str, ...]] = {"tune": ("budget", "seeds", "sampler", "pruning")}
_OURS["compare"] = (*_OURS["tune"], "methods", "tuning_seeds", "metric", "baseline")


@dataclass(frozen=True)
class TuningRequest:
    """A request to tune methods.

    Attributes:
        methods: The methods, as choices of ``algo``.
        overrides: The overrides of every run, without ``algo``; those with several values are axes of the search.
        budget: Number of trials per method.
        seeds: The tuning seeds, over which a trial is averaged.
        sampler: Where trials come from.
        pruning: Whether bad trials end early.
        executor: Executes the runs.
        table_seeds: The seeds of the table, for a comparison.
        metric: The metric of the table, for a comparison.
        baseline: The method that all others are compared with, or None for all pairs.
    """

    methods: tuple[str, ...]
    overrides: tuple[Override, ...]
    budget: int
    seeds: tuple[int, ...]
    sampler: str
    pruning: str
    executor: Executor
    table_seeds: tuple[int, ...] = ()
    metric: str = "accuracy_mean"
    baseline: str | None = None


def read_request(
    word: Literal["tune", "compare"], args: Sequence[str], executor: Executor = _THIS_MACHINE
) -> TuningRequest:
    """Return the request that arguments make.

    Args:
        word: The command.
        args: ``KEY=VALUE`` texts: keys of the command, and overrides of the runs.
        executor: Executes the runs.

    Raises:
        RequestError: If a key or value is wrong.
    """
    given = parse_overrides(args)
    own = {o.key: list(o.values) or o.value for o in given if o.key in _OURS[word]}
    overrides = tuple(o for o in given if o.key not in _OURS[word] and (o.key != "algo" or word == "compare"))
    compare = word == "compare"
    for o in overrides:
        if o.key == "algo":
            raise RequestError(f"{o.text}: compare takes the methods as methods=A,B,...")
        if o.key == "seed":
            names = (
                f"seeds={TABLE_SEEDS} for those of the table, tuning_seeds=1 for those of tuning"
                if compare
                else "seeds=2"
            )
            raise RequestError(f"{o.text}: tuning has seeds of its own; type a number of them, such as {names}")
        if o.key == "rounds" and o.sweeps:
            raise RequestError(f"{o.text}: trials are compared after the same number of rounds; type one value")
    algos = [o for o in given if o.key == "algo"]
    named = own.get("methods", []) if compare else [m for o in algos[-1:] for m in o.values or (o.value,)]
    methods = tuple(map(str, named if isinstance(named, list) else [named]))
    if len(methods) < 1 + compare or len(set(methods)) < len(methods):
        example = "methods=fedavg,fedprox" if compare else "algo=fedprox"
        raise RequestError(f"{word} needs {'different methods' if methods else 'a method'}, such as {example}")
    name = "tuning_seeds" if compare else "seeds"
    tuning = _seeds(name, own.get(name, 1), FIRST_TUNING_SEED)
    table = _seeds("seeds", own.get("seeds", TABLE_SEEDS), 0) if compare else ()
    if both := sorted(set(tuning) & set(table)):
        raise RequestError(f"seed {both[0]} is one of the table and one of tuning; they must be apart")
    return TuningRequest(
        methods=methods,
        overrides=overrides,
        budget=validate("budget", own.get("budget", 20), Count),
        seeds=tuning,
        sampler=choice("sampler", own.get("sampler", "random"), ("random", "tpe")),
        pruning=choice("pruning", own.get("pruning", "none"), ("none", "halving")),
        executor=executor,
        table_seeds=table,
        metric=str(own.get("metric", "accuracy_mean")),
        baseline=str(own["baseline"]) if "baseline" in own else None,
    )


def _seeds(name: str, given: object, first: int) -> tuple[int, ...]:
    """Return seeds: a number of them, counted from ``first``, or those of a list."""
    if isinstance(given, list) and all(str(seed).isdecimal() for seed in given):
        return tuple(dict.fromkeys(map(int, given)))
    if not isinstance(given, int):
        raise RequestError(f"{name} must be a number of seeds, such as {name}=3, or a list, such as {name}=[7,8]")
    return tuple(range(first, first + validate(name, given, Count)))

"""The request that the arguments of ``fedbench tune`` or ``fedbench compare`` make."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedbench.config.overrides import Override, parse_overrides
from fedbench.core.errors import RequestError
from fedbench.core.options import Count
from fedbench.core.validation import choice, validate
from fedbench.runs.executors.base import Executor
from fedbench.runs.executors.local import LocalExecutor

FIRST_TUNING_SEED = 1000  # seeds of tables are small numbers
TABLE_SEEDS = 10  # which can decide between up to seven methods at 5 %, all pairs compared
_THIS_MACHINE = LocalExecutor()
_SEARCH = ("budget", "seeds", "sampler", "pruning")
_KEYS = {
    "tune": ("algo", *_SEARCH),
    "compare": ("methods", "tuning_seeds", "metric", "baseline", *_SEARCH),
}


@dataclass(frozen=True)
class TuningRequest:
    """A request to tune methods.

    Attributes:
        methods: The methods, as choices of ``algo``.
        overrides: The overrides of every run, without ``algo``; those with several values are axes
            of the search.
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
    command: Literal["tune", "compare"], texts: Sequence[str], executor: Executor = _THIS_MACHINE
) -> TuningRequest:
    """Return the request that the arguments of a command make.

    Args:
        command: The command.
        texts: Keys of the command, and overrides of the runs.
        executor: Carries out the runs.

    Raises:
        RequestError: If a key or value is wrong.
    """
    keys: dict[str, Any] = {}
    overrides: list[Override] = []
    for o in parse_overrides(texts):
        if o.key in _KEYS[command]:
            keys[o.key] = list(o.values) or o.value
        else:
            overrides.append(o)
    seed_hint = "seeds=2"
    if command == "compare":
        seed_hint = (
            f"seeds={TABLE_SEEDS} for those of the table, tuning_seeds=1 for those of tuning"
        )
    for o in overrides:
        if o.key == "algo":
            raise RequestError(f"{o.text}: compare takes the methods as methods=A,B,...")
        if o.key == "seed":
            raise RequestError(
                f"{o.text}: tuning has seeds of its own; type a number of them, such as {seed_hint}"
            )
        if o.key == "rounds" and o.sweeps:
            raise RequestError(
                f"{o.text}: trials are compared after the same number of rounds; type one value"
            )

    named = keys.get("algo" if command == "tune" else "methods", [])
    methods = [str(method) for method in (named if isinstance(named, list) else [named])]
    least, example = (1, "algo=fedprox") if command == "tune" else (2, "methods=fedavg,fedprox")
    if len(methods) < least or len(set(methods)) < len(methods):
        raise RequestError(
            f"{command} needs {'different methods' if methods else 'a method'}, such as {example}"
        )

    table: tuple[int, ...] = ()
    if command == "tune":
        tuning = _seeds("seeds", keys.get("seeds", 1), FIRST_TUNING_SEED)
    else:
        tuning = _seeds("tuning_seeds", keys.get("tuning_seeds", 1), FIRST_TUNING_SEED)
        table = _seeds("seeds", keys.get("seeds", TABLE_SEEDS), 0)
    if both := sorted(set(tuning) & set(table)):
        raise RequestError(
            f"seed {both[0]} is one of the table and one of tuning; they must be apart"
        )
    baseline = keys.get("baseline")
    return TuningRequest(
        methods=tuple(methods),
        overrides=tuple(overrides),
        budget=validate("budget", keys.get("budget", 20), Count),
        seeds=tuning,
        sampler=choice("sampler", keys.get("sampler", "random"), ("random", "tpe")),
        pruning=choice("pruning", keys.get("pruning", "none"), ("none", "halving")),
        executor=executor,
        table_seeds=table,
        metric=str(keys.get("metric", "accuracy_mean")),
        baseline=None if baseline is None else str(baseline),
    )


def _seeds(name: str, given: object, first: int) -> tuple[int, ...]:
    """Return seeds: a number of them, counted from ``first``, or those of a list."""
    if isinstance(given, list) and all(str(seed).isdecimal() for seed in given):
        return tuple(dict.fromkeys(map(int, given)))
    if not isinstance(given, int):
        raise RequestError(
            f"{name} must be a number of seeds, such as {name}=3, or a list, such as {name}=[7,8]"
        )
    return tuple(range(first, first + validate(name, given, Count)))

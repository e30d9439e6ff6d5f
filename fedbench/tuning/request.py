"""The request parsed from the arguments of ``fedbench tune`` or ``fedbench compare``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedbench.config.overrides import Override, parse_overrides
from fedbench.core.config_values import WEIGHTS
from fedbench.core.errors import RequestError
from fedbench.core.options import Count
from fedbench.core.validation import checked, validate
from fedbench.runs.executors.base import Executor

FIRST_TUNING_SEED = 1000  # apart from the seeds of tables, which are small numbers
TABLE_SEEDS = 10  # enough to decide all pairs of up to seven methods at 5 %
# fields of the request
_OPTIONS = ("weights", "budget", "sampler", "pruning", "metric", "baseline")
_KEYS = {
    "tune": ("algo", "seeds", *_OPTIONS[:4]),
    "compare": ("methods", "seeds", "tuning_seeds", *_OPTIONS),
}


@dataclass(frozen=True)
class TuningRequest:
    """A request to tune methods.

    Attributes:
        methods: The methods, as choices of ``algo``.
        overrides: The overrides of every run, without ``algo``. Overrides with several values are
            axes of the search.
        seeds: The tuning seeds, over which a trial's score is averaged.
        executor: The executor of the runs.
        weights: Weights of the clients, for methods with a choice. If None, those of each method.
        budget: Number of trials per method.
        sampler: Source of the trials' values.
        pruning: Rule by which bad trials end early, or "none".
        table_seeds: Seeds of the table, for a comparison.
        metric: Metric of the table, for a comparison.
        baseline: The method with which all others are compared. If None, all pairs are compared.
    """

    methods: tuple[str, ...]
    overrides: tuple[Override, ...]
    seeds: tuple[int, ...]
    executor: Executor
    weights: Literal["size", "uniform"] | None = None
    budget: Count = 20
    sampler: Literal["random", "tpe"] = "random"
    pruning: Literal["none", "halving"] = "none"
    table_seeds: tuple[int, ...] = ()
    metric: str = "accuracy_mean"
    baseline: str | None = None


def read_request(
    command: Literal["tune", "compare"], texts: Sequence[str], executor: Executor
) -> TuningRequest:
    """Return the request parsed from the arguments of a command.

    Args:
        command: The command.
        texts: Keys of the command, and overrides of the runs.
        executor: The executor of the runs.

    Raises:
        RequestError: If a key or value is invalid.
    """
    keys: dict[str, Any] = {}
    overrides: list[Override] = []
    for o in parse_overrides(texts):
        if o.key in _KEYS[command]:
            keys[o.key] = list(o.values) or o.value
        else:
            _check_override(o, command)
            overrides.append(o)

    if "weights" in keys and any(o.key in WEIGHTS for o in overrides):
        raise RequestError(f"weights= sets {' and '.join(WEIGHTS)}; type one of them")

    table_seeds: tuple[int, ...] = ()
    seeds_key = "seeds"
    if command == "compare":
        table_seeds = _seeds("seeds", keys.get("seeds", TABLE_SEEDS), first=0)
        seeds_key = "tuning_seeds"
    seeds = _seeds(seeds_key, keys.get(seeds_key, 1), first=FIRST_TUNING_SEED)
    if both := sorted(set(seeds) & set(table_seeds)):
        raise RequestError(
            f"seed {both[0]} is one of the table and one of tuning; they must be apart"
        )

    options = {key: value for key, value in keys.items() if key in _OPTIONS}
    return TuningRequest(
        methods=_methods(command, keys),
        overrides=tuple(overrides),
        seeds=seeds,
        executor=executor,
        table_seeds=table_seeds,
        **checked(TuningRequest, options),
    )


def _check_override(o: Override, command: str) -> None:
    """Refuse an override of a key that the command sets itself.

    Raises:
        RequestError: If the override sets such a key.
    """
    if o.key == "algo":
        raise RequestError(f"{o.text}: compare takes the methods as methods=A,B,...")
    if o.key == "seed":
        example = "seeds=2"
        if command == "compare":
            table = f"seeds={TABLE_SEEDS} for those of the table"
            example = f"{table}, tuning_seeds=1 for those of tuning"
        raise RequestError(
            f"{o.text}: tuning has seeds of its own; type a number of them, such as {example}"
        )
    if o.key == "rounds" and o.sweeps:
        raise RequestError(
            f"{o.text}: trials are compared after the same number of rounds; type one value"
        )


def _methods(command: str, keys: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the methods of a request.

    Raises:
        RequestError: If there are too few methods, or one is named twice.
    """
    key, least, example = "algo", 1, "algo=fedprox"
    if command == "compare":
        key, least, example = "methods", 2, "methods=fedavg,fedprox"
    named = keys.get(key, [])
    methods = tuple(map(str, named if isinstance(named, list) else [named]))
    if len(methods) < least or len(set(methods)) < len(methods):
        needed = "different methods" if methods else "a method"
        raise RequestError(f"{command} needs {needed}, such as {example}")
    return methods


def _seeds(
    name: str,
    given: object,
    first: int,
) -> tuple[int, ...]:
    """Return the listed seeds or, for a number of seeds, consecutive seeds from ``first`` on."""
    if isinstance(given, list) and given and all(str(seed).isdecimal() for seed in given):
        return tuple(dict.fromkeys(map(int, given)))
    if not isinstance(given, int):
        raise RequestError(
            f"{name} must be a number of seeds, such as {name}=3, or a list, such as {name}=[7,8]"
        )
    return tuple(range(first, first + validate(name, given, Count)))

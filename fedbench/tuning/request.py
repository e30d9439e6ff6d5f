"""The request that the arguments of ``fedbench tune`` or ``fedbench compare`` make."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from fedbench.config.overrides import Override, parse_overrides
from fedbench.core.errors import RequestError, choice, integer

Sampler = Literal["random", "tpe"]
Pruning = Literal["none", "halving"]
FIRST_TUNING_SEED = 1000  # seeds of tables are small numbers
_BUDGET = 20
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
        jobs: Number of runs at a time; None is what cores, GPUs, memory and models suggest.
        table_seeds: The seeds of the table, for a comparison.
        metric: The metric of the table, for a comparison.
        baseline: The method that all others are compared with, or None for all pairs.
    """

    methods: tuple[str, ...]
    overrides: tuple[Override, ...]
    budget: int
    seeds: tuple[int, ...]
    sampler: Sampler
    pruning: Pruning
    jobs: int | None
    table_seeds: tuple[int, ...] = ()
    metric: str = "accuracy_mean"
    baseline: str | None = None

    @property
    def fixed(self) -> list[str]:
        """The overrides with one value."""
        return [o.text for o in self.overrides if not o.sweeps]


def read_request(word: Literal["tune", "compare"], args: Sequence[str], jobs: int | None) -> TuningRequest:
    """Return the request that arguments make.

    Args:
        word: The command.
        args: ``KEY=VALUE`` texts: keys of the command, and overrides of the runs.
        jobs: Number of runs at a time; None for the default.

    Raises:
        RequestError: If a key or value is wrong.
    """
    own = {k: v for k, eq, v in (a.partition("=") for a in args) if eq and k in _OURS[word]}
    overrides = parse_overrides([a for a in args if a.partition("=")[0] not in _OURS[word]])
    chosen = [o for o in overrides if o.key == "algo"]
    for o in overrides:
        if o.key == "seed":
            raise RequestError(f"{o.text}: {_seeds_hint(word)}")
        if o.key == "rounds" and o.sweeps:
            raise RequestError(f"{o.text}: trials are compared after the same number of rounds; type one value")
    if word == "tune":
        methods = [n for o in chosen[-1:] for n in (o.values if o.sweeps else (str(o.value),))]
    else:
        if chosen:
            raise RequestError(f"{chosen[0].text}: compare takes the methods as methods=A,B,...")
        methods = [m.strip() for m in own.get("methods", "").strip("[]").split(",") if m.strip()]
    if len(methods) < (2 if word == "compare" else 1) or len(set(methods)) < len(methods):
        example = "algo=fedprox" if word == "tune" else "methods=fedavg,fedprox"
        raise RequestError(f"{word} needs {'different methods' if methods else 'a method'}, such as {example}")
    tuning = _seeds("seeds" if word == "tune" else "tuning_seeds", own, 1, FIRST_TUNING_SEED)
    table = _seeds("seeds", own, 5, 0) if word == "compare" else ()
    if both := sorted(set(tuning) & set(table)):
        raise RequestError(f"seed {both[0]} is one of the table and one of tuning; they must be apart")
    return TuningRequest(
        methods=tuple(methods),
        overrides=tuple(o for o in overrides if o.key != "algo"),
        budget=_whole("budget", own.get("budget", str(_BUDGET))),
        seeds=tuning,
        sampler=choice("sampler", own.get("sampler", "random"), get_args(Sampler)),
        pruning=choice("pruning", own.get("pruning", "none"), get_args(Pruning)),
        jobs=jobs,
        table_seeds=table,
        metric=own.get("metric", "accuracy_mean"),
        baseline=own.get("baseline"),
    )


def _seeds_hint(word: str) -> str:
    if word == "tune":
        return "tuning has seeds of its own; type seeds=2 for two of them, or seeds=[1000,1001]"
    return "type seeds=5 for the seeds 0 to 4 of the table, and tuning_seeds=1 for those of tuning"


def _seeds(name: str, own: dict[str, str], default: int, first: int) -> tuple[int, ...]:
    """Return seeds: a number of them, counted from ``first``, or those of a list."""
    text = own.get(name, str(default))
    if text.isdecimal():
        return tuple(range(first, first + _whole(name, text)))
    listed = text.removeprefix("[").removesuffix("]").split(",")
    if not all(re.fullmatch(r"\s*\d+\s*", part) for part in listed):
        raise RequestError(f"{name} must be a number of seeds, such as {name}=3, or a list, such as {name}=[7,8]")
    return tuple(dict.fromkeys(int(part) for part in listed))


def _whole(name: str, text: str) -> int:
    return integer(name, int(text) if text.isdecimal() else text, at_least=1)

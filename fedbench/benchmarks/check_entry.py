"""Checks of published entries against the configurations that this version composes.

Configurations are composed from the benchmark and the chosen values. A published configuration is
compared with them and never used: nothing that it names is imported or read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import prod
from typing import Annotated, Any

from pandas.api.types import is_number, is_scalar
from pydantic import AfterValidator, StrictInt, TypeAdapter, ValidationError

from fedbench.benchmarks.entries import Entry, Trial
from fedbench.benchmarks.execution import RATE, BenchmarkContext, PlannedEntry
from fedbench.config.identity import setting
from fedbench.config.overrides import as_value, options, parse_overrides
from fedbench.config.schema import RunConfig
from fedbench.config.targets import present, renamed
from fedbench.core.config_values import Tree
from fedbench.core.errors import RequestError, shown
from fedbench.core.metrics import metric_info
from fedbench.core.validation import place_and_fault
from fedbench.runs.run import Run
from fedbench.tuning.space import Axis, axis_of

_LARGEST = 1e15  # of a number without a range
_ROUNDING = 1e-9  # a mean of shares may exceed 1 by rounding
_CHOICES = ("experiment", "algo", "data", "model")
_CLIENT_COLUMNS = {"round", "client", "accuracy"}


def _moment(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("must have a time zone")
    return text


@dataclass(frozen=True)
class _Facts:
    """The facts of a finished run on which pages and checks depend."""

    seed: StrictInt
    rounds: StrictInt
    started: Annotated[str, AfterValidator(_moment)]
    ended: Annotated[str, AfterValidator(_moment)]
    versions: dict[str, str]
    unofficial: tuple[str, ...] = ()


_FACTS = TypeAdapter(_Facts)


def check_entry(entry: Entry, shared: BenchmarkContext) -> str:
    """Check an entry of a benchmark.

    Returns:
        The reason why the entry is of no use to this version, which has no such method, or has it
        with another search space, other defaults or other code; empty if the method is the same.

    Raises:
        ValueError: If the entry contradicts itself, the benchmark or the label of one of its runs.
    """
    planned = shared.planned(entry.setting, entry.method)
    if reason := _difference(entry, planned):
        return reason
    _check_choice(entry, planned)
    if entry.chosen is None:
        return ""
    for runs, held_out in ((entry.runs, False), (entry.held_out, True)):
        try:
            config = planned.config(entry.chosen, held_out=held_out)
        except RequestError as error:
            raise ValueError(f"its values cannot be composed: {error}") from error
        for seed, run in enumerate(runs):
            try:
                _check_run(run, config, seed, shared.benchmark.metrics)
            except (KeyError, ValueError) as error:
                raise ValueError(f"run {'/'.join(run.path.parts[-2:])}: {error}") from error
    return ""


def _difference(entry: Entry, planned: PlannedEntry) -> str:
    """Return the difference between the methods of an entry and of this version, or ""."""
    own = options("algo", planned.composer.config_dir)
    if entry.method not in options("algo") + own:
        return "it is no method of this version or of --config-dir"
    try:
        expected = {"space": tuple(planned.axes.values()), "digests": planned.digests}
    except RequestError as error:
        return str(error)
    for name, value in expected.items():
        published = getattr(entry, name)
        if published != value:
            return f"{name} is {shown(published)}, and {shown(value)} in this version"
    return ""


def _check_choice(entry: Entry, planned: PlannedEntry) -> None:
    """Check the search of an entry and the number of its runs.

    Raises:
        ValueError: If the search is not the one of the benchmark, the chosen values are not those
            of the first of the best trials, or a seed is missing.
    """
    if entry.trials:
        _check_trials(entry, planned)
    best = planned.best(entry.trials)
    _require("the choice of the best trial", entry.chosen, best)
    if bool(entry.reason) != (best is None):
        raise ValueError("it must have either runs or the reason why it has none")
    seeds = 0 if best is None else planned.benchmark.seeds
    _require("the number of runs in the setting", len(entry.runs), seeds)
    _require("the number of held-out runs", len(entry.held_out), seeds)


def _check_trials(entry: Entry, planned: PlannedEntry) -> None:
    """Check that trials are those of both stages of a search.

    Raises:
        ValueError: If a trial has other keys, a value that is not on its axis, or a score out of
            range, or the number of trials is another one.
    """
    first = 0
    for axes, budget in _stages(entry.trials, planned):
        points = prod(len(axis.grid) for axis in axes.values())  # 0 with a range
        number = min(budget, points or budget)
        trials = entry.trials[first : first + number]
        first += number
        for trial in trials:
            _check_trial(trial, axes, planned.benchmark.search.metric)
        texts = {as_value(sorted(trial.values.items())) for trial in trials}
        if points and len(texts) < len(trials):
            raise ValueError("the same values are tried twice")
    _require("the number of trials", len(entry.trials), first)


def _stages(
    trials: Sequence[Trial],
    planned: PlannedEntry,
) -> Iterator[tuple[dict[str, Axis], int]]:
    """Yield the axes and the budget of each stage of a search.

    The trials of the first stage must be checked before the second one is asked for, whose rate is
    the best of the first.
    """
    search = planned.benchmark.search
    own = {o.key: axis_of(o) for o in parse_overrides(list(planned.axes.values()))}
    rates = own.pop(RATE, None)
    rate = {}
    if rates is not None:
        # defaults need not be on the grids
        defaults = {key: Axis(key, grid=(planned.defaults[key],)) for key in own}
        yield defaults | {RATE: rates}, len(search.rates)
        best = planned.best(trials[: len(search.rates)])
        if best is None:
            return
        rate = {RATE: Axis(RATE, grid=(best[RATE],))}
    if own:
        yield own | rate, search.budget


def _check_trial(
    trial: Trial,
    axes: Mapping[str, Axis],
    metric: str,
) -> None:
    """Raise a ValueError if a trial has other keys, a value off its axis or an impossible score."""
    _require("the list of a trial's keys", sorted(trial.values), sorted(axes))
    for key, axis in axes.items():
        value = trial.values[key]
        if not _is_on(axis, value):
            raise ValueError(f"{key} of a trial is {shown(value)}, which its axis does not have")
    if trial.score is not None:
        _check_number(metric, trial.score)


def _is_on(axis: Axis, value: Any) -> bool:
    """Return whether a search along an axis can try a value."""
    if axis.grid:
        return as_value(value) in map(as_value, axis.grid)
    return type(value) is float and axis.value(value) == value


def _check_number(name: str, value: object) -> None:
    """Raise a ValueError if the value of a metric is not a number or out of range."""
    is_share = metric_info(name).unit.startswith("%")
    low, high = (0.0, 1.0) if is_share else (-_LARGEST, _LARGEST)
    is_valid = isinstance(value, int | float) and low - _ROUNDING <= value <= high + _ROUNDING
    if not is_valid:
        raise ValueError(f"{name} is {shown(value)}; it must be a number from {low:g} to {high:g}")


def _require(
    name: str,
    value: object,
    expected: object,
) -> None:
    """Raise a ValueError if a value is not the expected one."""
    if value != expected:
        raise ValueError(f"{name} is {shown(value)} instead of {shown(expected)}")


def _check_run(
    run: Run,
    config: RunConfig,
    seed: int,
    metrics: Sequence[str],
) -> None:
    """Check that a finished run has a configuration, a seed and all metrics.

    Raises:
        ValueError: If it does not.
    """
    files = config.identity.facts["files"]
    expected: Tree = {name: getattr(config.names, name) for name in _CHOICES}
    expected |= {"seed": seed, "hash": config.digest, "files": files}
    for name, value in expected.items():
        _require(name, run.meta[name], value)

    published = setting(run.config) | {"seed": run.config["seed"]}
    composed = setting(renamed(config.stored_tree, present)) | {"seed": seed}
    # names of files are without their folders; their digests were compared above
    keys = published.keys() | composed.keys()
    for key in sorted(keys - files.keys()):
        _require(f"in its configuration, {key}", published.get(key), composed.get(key))

    if run.outcome not in ("done", "diverged"):
        raise ValueError(f"it is {run.outcome}; it must be finished")
    try:
        _FACTS.validate_python(run.meta)
    except ValidationError as error:
        raise ValueError(place_and_fault(error, "its facts")) from error
    if run.counts:
        _check_numbers(run, config.rounds, metrics)


def _check_numbers(
    run: Run,
    rounds: int,
    metrics: Sequence[str],
) -> None:
    """Check the last round and the table of clients of a run that is done.

    Raises:
        ValueError: If the last round is not the expected one, or a metric or the table is missing.
    """
    last = run.last_round()
    _require("the last round", last["round"], rounds)
    for metric in metrics:
        _check_number(metric, last.get(metric))
    for name, value in last.items():
        if value is not None and not is_number(value):
            raise ValueError(f"{name} is {shown(value)}; it must be a number")
    clients = run.clients()
    if clients.empty or not set(clients) >= _CLIENT_COLUMNS:
        raise ValueError("it has no table of its clients")
    columns = clients.select_dtypes(exclude="number")
    if not columns.map(is_scalar).all(axis=None):
        raise ValueError("the table of its clients has lists")

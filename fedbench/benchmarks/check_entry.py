"""Checks of published entries against the configurations that this version composes.

Configurations are composed from the benchmark and the chosen values. A published configuration is
compared with them and never used: nothing that it names is imported or read.
"""

import math
import re
from collections.abc import Sequence

from fedbench.benchmarks.entries import Entry
from fedbench.benchmarks.execution import BenchmarkContext, PlannedEntry
from fedbench.config.identity import setting
from fedbench.config.overrides import as_value, options
from fedbench.config.schema import RunConfig
from fedbench.config.targets import present, renamed
from fedbench.core.config_values import Tree
from fedbench.core.errors import RequestError, shown
from fedbench.runs.run import Run

_PLAIN = re.compile(r"[\w.+,\[\]-]*")  # a number, a word or a list; not the name of a variable
_CHOICES = ("experiment", "algo", "data", "model")
_CLIENT_COLUMNS = {"round", "client", "accuracy"}


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
        ValueError: If the search exceeds its budget or has other keys or values than an axis can
            have, the chosen values are not those of the first of the best trials, or a seed is
            missing.
    """
    search = planned.benchmark.search
    most = len(search.rates) + search.budget
    if len(entry.trials) > most:
        raise ValueError(f"it has {len(entry.trials)} trials, and the search has at most {most}")
    for trial in entry.trials:
        _require("the list of a trial's keys", sorted(trial.values), sorted(planned.axes))
        for key, value in trial.values.items():
            if not _PLAIN.fullmatch(as_value(value)):
                raise ValueError(f"{key} of a trial is {shown(value)}, which no axis has")
        if not math.isfinite(trial.score or 0):
            raise ValueError(f"the score of the trial {shown(trial.values)} is {trial.score}")
    best = planned.best(entry.trials)
    _require("the choice of the best trial", entry.chosen, best)
    if bool(entry.reason) != (best is None):
        raise ValueError("it must have either runs or the reason why it has none")
    seeds = 0 if best is None else planned.benchmark.seeds
    _require("the number of runs in the setting", len(entry.runs), seeds)
    _require("the number of held-out runs", len(entry.held_out), seeds)


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
    if run.counts:
        _check_numbers(run, config.rounds, metrics)


def _check_numbers(
    run: Run,
    rounds: int,
    metrics: Sequence[str],
) -> None:
    """Check the last round and the table of clients of a run that is done.

    Raises:
        ValueError: If the round has another number or lacks a metric, or there is no table.
    """
    last = run.last_round()
    _require("the last round", last["round"], rounds)
    for metric in metrics:
        value = last.get(metric)
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{metric} is {shown(value)}; it must be a finite number")
    clients = run.clients()
    if clients.empty or not set(clients) >= _CLIENT_COLUMNS:
        raise ValueError("it has no table of its clients")

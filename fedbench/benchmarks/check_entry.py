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
from fedbench.core.config_values import Tree, keys_text
from fedbench.core.errors import RequestError, shown
from fedbench.core.metrics import metric_info
from fedbench.runs.run import Run
from fedbench.tuning.space import Values

_PLAIN = re.compile(r"[\w.+,\[\]-]*")  # a number, a word or a list; not the name of a variable
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
            _check_run(run, config, seed, shared.benchmark.metrics)
    return ""


def _difference(entry: Entry, planned: PlannedEntry) -> str:
    """Return the difference between the methods of an entry and of this version, or ""."""
    if entry.method not in options("algo") + options("algo", planned.composer.config_dir):
        return "it is no method of this version or of --config-dir"
    try:
        expected = {"space": tuple(planned.axes.values()), "digests": planned.digests}
    except RequestError as error:
        return str(error)
    for name, value in expected.items():
        if getattr(entry, name) != value:
            return f"{name} is {shown(getattr(entry, name))}, and {shown(value)} in this version"
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
    best: Values | None = None
    highest = -math.inf
    for trial in entry.trials:
        texts = map(as_value, trial.values.values())
        if trial.values.keys() != planned.axes.keys() or not all(map(_PLAIN.fullmatch, texts)):
            keys = ", ".join(planned.axes)
            raise ValueError(f"a trial has {shown(trial.values)} instead of values of {keys}")
        score = 0.0 if trial.score is None else metric_info(search.metric).sign * trial.score
        if not math.isfinite(score):
            raise ValueError(f"the score of the trial {shown(trial.values)} is {trial.score}")
        if trial.score is not None and score > highest:
            best, highest = trial.values, score
    if entry.chosen != best:
        raise ValueError(
            f"its values are {shown(entry.chosen)}, and those of its best trial {shown(best)}"
        )
    if bool(entry.reason) != (best is None):
        raise ValueError("it must have either runs or the reason why it has none")
    seeds = 0 if best is None else planned.benchmark.seeds
    for name, runs in (("setting", entry.runs), ("held-out variant", entry.held_out)):
        if len(runs) != seeds:
            raise ValueError(f"it has {len(runs)} runs of the {name}, and needs {seeds}")


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
    names = config.names
    files = config.identity.facts["files"]
    facts: Tree = {
        "experiment": names.experiment,
        "algo": names.algo,
        "data": names.data,
        "model": names.model,
        "seed": seed,
        "hash": config.digest,
        "files": files,
    }
    where = f"the run {run.path.name} of {names.experiment}"
    for name, expected in facts.items():
        if run.meta[name] != expected:
            raise ValueError(f"{where}: {name} is {shown(run.meta[name])} instead of {expected}")
    if run.config["seed"] != seed:
        raise ValueError(f"{where}: its configuration has seed {shown(run.config['seed'])}")

    # names of files are without their folders; their digests were compared above
    found = setting(run.config)
    composed = setting(renamed(config.stored_tree, present))
    for key in sorted((found.keys() | composed.keys()) - files.keys()):
        if found.get(key) != composed.get(key):
            values = (keys_text({key: keys.get(key)}) for keys in (found, composed))
            raise ValueError(f"{where}: its configuration has {' instead of '.join(values)}")

    if run.outcome not in ("done", "diverged"):
        raise ValueError(f"{where} is {run.outcome}; it must be finished")
    if run.counts:
        _check_numbers(run.last_round(), config.rounds, metrics, where)
        clients = run.clients()
        if clients.empty or not set(clients) >= _CLIENT_COLUMNS:
            raise ValueError(f"{where}: it has no table of its clients")


def _check_numbers(
    last: Tree,
    rounds: int,
    metrics: Sequence[str],
    where: str,
) -> None:
    """Raise a ValueError if the last round has another number, or lacks a metric."""
    if last["round"] != rounds:
        raise ValueError(f"{where}: it ends with round {shown(last['round'])} instead of {rounds}")
    for metric in metrics:
        value = last.get(metric)
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{where}: {metric} is {shown(value)}; it must be a finite number")

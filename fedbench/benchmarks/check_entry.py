"""Checks of published entries against the configurations that this version composes.

Configurations are composed from the benchmark and the chosen values. A published configuration is
compared with them and never used: nothing that it names is imported or read.
"""

import math
from collections.abc import Sequence

from fedbench.benchmarks.definition import Benchmark
from fedbench.benchmarks.entries import Entry
from fedbench.benchmarks.execution import BenchmarkContext, PlannedEntry, best_of
from fedbench.config.identity import setting
from fedbench.config.overrides import options
from fedbench.config.schema import RunConfig
from fedbench.config.targets import present, renamed
from fedbench.core.config_values import Tree, keys_text
from fedbench.core.errors import RequestError, shown
from fedbench.core.metrics import lower_is_better
from fedbench.runs.run import Run


def check_entry(entry: Entry, shared: BenchmarkContext) -> str:
    """Check an entry of a benchmark.

    Returns:
        The reason why the entry is of no use to this version, which has another search space, other
        code or no such method; empty if it has the same.

    Raises:
        ValueError: If the entry contradicts itself, the benchmark or the label of one of its runs.
    """
    planned = PlannedEntry(entry.setting, entry.method, shared)
    if reason := _other_space(entry, planned):
        return reason
    _check_choice(entry, shared.benchmark)
    if entry.chosen is None:
        return ""

    for runs, held_out in ((entry.runs, False), (entry.held_out, True)):
        try:
            config = planned.config(entry.chosen, held_out=held_out)
        except RequestError as error:
            raise ValueError(f"its values cannot be composed: {error}") from error
        if reason := _other_code(runs[0], config):
            return reason
        for seed, run in enumerate(runs):
            _check_run(run, config, seed, shared.benchmark.metrics)
    return ""


def _other_space(entry: Entry, planned: PlannedEntry) -> str:
    """Return the difference between the search spaces of an entry and of this version, or ""."""
    config_dir = planned.shared.composer.config_dir
    known = options("algo")
    if config_dir is not None:
        known += options("algo", config_dir)
    if entry.method not in known:
        return "it is no method of this version or of --config-dir"
    try:
        space = tuple(planned.space)
    except RequestError as error:
        return str(error)
    if entry.trials and entry.space != space:
        return f"its search space is {shown(entry.space)} instead of {shown(space)}"
    return ""


def _other_code(run: Run, config: RunConfig) -> str:
    """Return the difference between the methods of a run and of this version, or ""."""
    for name in ("revision", "code"):
        found, expected = run.meta[name], config.identity.facts[name]
        if found != expected:
            return f"its code differs: {name} {shown(found)} instead of {shown(expected)}"
    return ""


def _check_choice(entry: Entry, benchmark: Benchmark) -> None:
    """Check the search of an entry and the number of its runs.

    Raises:
        ValueError: If the search exceeds its budget, the values are not those of the best trial, or
            a seed is missing.
    """
    search = benchmark.search
    most = len(search.rates) + search.budget
    if len(entry.trials) > most:
        raise ValueError(f"it has {len(entry.trials)} trials, and the search has at most {most}")
    for trial in entry.trials:
        if trial.score is not None and not math.isfinite(trial.score):
            raise ValueError(f"the score of the trial {shown(trial.values)} is {trial.score}")
    best = best_of(entry.trials, -1 if lower_is_better(search.metric) else 1)
    if entry.chosen != best:
        raise ValueError(
            f"its values are {shown(entry.chosen)}, and those of its best trial {shown(best)}"
        )
    seeds = 0 if best is None else benchmark.seeds
    if bool(entry.reason) != (best is None):
        raise ValueError("it must have either runs or the reason why it has none")
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

"""Repetition of published runs chosen at random: ``fedbench benchmark NAME --check K``.

Repeated runs are compared bit for bit with runs of the same versions and platform. Elsewhere
rounding differs, and the metrics of the benchmark must agree within its tolerance.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import pandas as pd

from fedbench.benchmarks.entries import Entry
from fedbench.benchmarks.execution import BenchmarkContext, PlannedEntry
from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError
from fedbench.runs.executors.base import RunBatch
from fedbench.runs.results import CHECKS
from fedbench.runs.run import Fields, Run, read_run

_CLOCKS = ("seconds_train", "seconds_eval")
_VERSIONS = ("python", "torch", "numpy")
_MACHINE = ("platform", "device_name")


class Drawn(NamedTuple):
    """A published run that is repeated."""

    entry: Entry
    run: Run
    held_out: bool


@dataclass(frozen=True)
class CheckedRun:
    """The comparison of a published run with its repetition.

    Attributes:
        setting: Name of the setting.
        method: The method.
        seed: The seed.
        held_out: Whether the run is one of the held-out variant.
        outcome: ``identical`` bit for bit, ``within`` the tolerance on another kind of machine, or
            ``differs``.
        difference: The largest difference of a number, relative for numbers above 1; 0 if identical,
            infinite if a number is missing in one of the runs.
        reason: The number with the largest difference, or the reason why there is none.
        same_environment: Whether versions, platform and device are those of the published run.
    """

    setting: str
    method: str
    seed: int
    held_out: bool
    outcome: Literal["identical", "within", "differs"]
    difference: float = 0.0
    reason: str = ""
    same_environment: bool = True


@dataclass(frozen=True)
class Checked:
    """The result of a check.

    Attributes:
        draw: Seed of the draw, which repeats it.
        population: Number of runs from which was drawn.
        tolerance: The tolerance on another kind of machine.
        runs: The repeated runs.
    """

    draw: int
    population: int
    tolerance: float
    runs: tuple[CheckedRun, ...]

    @property
    def agrees(self) -> bool:
        """Whether no run differs."""
        return all(run.outcome != "differs" for run in self.runs)


def check_runs(
    entries: Sequence[Entry],
    number: int,
    draw: int,
    shared: BenchmarkContext,
) -> Checked:
    """Repeat published runs and compare all numbers.

    The repeated runs are in DIR/checks/<name>@<version>/<draw>; their configurations come from the
    benchmark and the chosen values, never from the published run.

    Args:
        entries: The entries, published or run here.
        number: Number of runs.
        draw: Seed of the draw.
        shared: The benchmark, results directory and executor.

    Raises:
        RequestError: If there is no run to repeat.
    """
    population = []
    for entry in entries:
        population += [Drawn(entry, run, False) for run in entry.runs if run.done]
        population += [Drawn(entry, run, True) for run in entry.held_out if run.done]
    if not population:
        raise RequestError(
            f"--check found no run of {shared.benchmark.label}; type --baselines DIR or URL with "
            "published runs, or run the benchmark first"
        )
    drawn = random.Random(draw).sample(population, min(number, len(population)))

    folder = shared.folder / CHECKS / shared.benchmark.label / str(draw)
    context = replace(shared, folder=folder)
    configs = [_config(one, context) for one in drawn]
    same = [c for c, one in zip(configs, drawn, strict=True) if c.digest == one.run.meta["hash"]]
    batch = RunBatch(same, context.composer.config_dir, context.debug)
    context.executor.execute(batch)
    errors = {result.overrides: result.error for result in batch.results}

    checked = []
    for one, config in zip(drawn, configs, strict=True):
        error = errors.get(config.overrides, "")
        if config.digest != one.run.meta["hash"]:
            error = f"its digest is {one.run.meta['hash']}, and {config.digest} here"
        checked.append(_checked(one, config, error, shared))
    return Checked(draw, len(population), shared.benchmark.tolerance, tuple(checked))


def _config(one: Drawn, context: BenchmarkContext) -> RunConfig:
    """Return the configuration that repeats a run."""
    planned = PlannedEntry(one.entry.setting, one.entry.method, context)
    return planned.config(one.entry.chosen or {}, int(one.run.meta["seed"]), one.held_out)


def _checked(
    one: Drawn,
    config: RunConfig,
    error: str,
    shared: BenchmarkContext,
) -> CheckedRun:
    """Return the comparison of a run with its repetition, or with the error that prevented it."""
    result = CheckedRun(
        one.entry.setting,
        one.entry.method,
        int(one.run.meta["seed"]),
        one.held_out,
        "differs",
        math.inf,
        error,
    )
    if error:
        return result
    repeated = read_run(config.path)
    same = environment_of(one.run) == environment_of(repeated)
    result = replace(result, same_environment=same)
    if (one.run.outcome, one.run.meta["rounds"]) != (repeated.outcome, repeated.meta["rounds"]):
        ended = [f"{r.outcome} after round {r.meta['rounds']}" for r in (one.run, repeated)]
        return replace(result, reason=f"published {ended[0]}, here {ended[1]}")

    published = numbers_of(one.run)
    here = numbers_of(repeated)
    metrics = {}  # a metric that the published run lacks is a difference
    if one.run.counts:
        metrics = {metric: published.get(metric) for metric in shared.benchmark.metrics}
    difference, name = largest_difference(metrics | published, here)
    if difference == 0:
        return replace(result, outcome="identical", difference=0.0)
    if not same:
        difference, name = largest_difference(metrics, here)
        if difference <= shared.benchmark.tolerance:
            return replace(result, outcome="within", difference=difference, reason=name)
    return replace(result, difference=difference, reason=name)


def environment_of(run: Run) -> Fields:
    """Return the versions and the machine on which a run's bits depend."""
    versions = run.meta.get("versions", {})
    facts = {name: versions.get(name) for name in _VERSIONS}
    return facts | {name: run.meta.get(name) for name in _MACHINE}


def numbers_of(run: Run) -> Fields:
    """Return all numbers of the last round by name, and those of all clients as columns."""
    if not run.counts:
        return {}
    numbers = {key: value for key, value in run.last_round().items() if key not in _CLOCKS}
    if run.has_clients:
        table = run.last_clients().sort_values("client")
        for column in table:
            for client, value in zip(table["client"], table[column], strict=True):
                numbers[f"{column} of client {client}"] = value
    return numbers


def largest_difference(published: Fields, here: Fields) -> tuple[float, str]:
    """Return the largest difference of numbers, and the name of the first number that has it.

    Differences of numbers above 1 are relative to the published number. Two missing numbers agree.
    """
    largest, where = 0.0, ""
    for name, value in published.items():
        difference = _difference(value, here.get(name))
        if difference > largest:
            largest, where = difference, name
    return largest, where


def _difference(published: Any, here: Any) -> float:
    if pd.isna(published) and pd.isna(here):
        return 0.0
    if published == here:
        return 0.0
    if any(isinstance(value, str) or pd.isna(value) for value in (published, here)):
        return math.inf
    return float(abs(here - published)) / max(1.0, abs(published))

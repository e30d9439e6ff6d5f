"""Repetition of published runs chosen at random: ``fedbench benchmark NAME --check K``.

Runs are compared bit for bit with those of the same versions, machine and engine. Elsewhere numbers
are rounded differently, and the metrics of the benchmark must agree within its tolerance.
"""

import math
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from fedbench.benchmarks.definition import Benchmark
from fedbench.benchmarks.entries import Entry
from fedbench.benchmarks.execution import BenchmarkContext
from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError
from fedbench.runs.results import CHECKS
from fedbench.runs.run import Fields, Run, read_run

_CLOCKS = ("seconds_train", "seconds_eval")
_VERSIONS = ("python", "torch", "numpy")
# facts of the engine that change the order of sums; its precision is part of the configuration
_ENGINE = ("mode", "cohort_size", "workers")


@dataclass(frozen=True)
class CheckedRun:
    """The comparison of a published run with its repetition.

    Attributes:
        entry: The entry.
        run: The published run.
        held_out: Whether the run is one of the held-out variant.
        outcome: ``identical`` bit for bit, ``within`` the tolerance on another kind of machine, or
            ``differs``.
        difference: The largest difference of a number, relative for numbers above 1. It is 0 for an
            identical run, and infinite if a number is missing.
        reason: The number with the largest difference and how the environment differs, or why
            nothing could be compared.
    """

    entry: Entry
    run: Run
    held_out: bool
    outcome: Literal["identical", "within", "differs"] = "identical"
    difference: float = 0.0
    reason: str = ""

    @property
    def seed(self) -> int:
        """The seed."""
        return int(self.run.meta["seed"])

    @property
    def digest(self) -> str:
        """The digest of the published run's configuration."""
        return str(self.run.meta["hash"])

    def config(self, context: BenchmarkContext) -> RunConfig:
        """Return the configuration that repeats the run.

        Raises:
            RequestError: If a chosen value is invalid.
        """
        planned = context.planned(self.entry.setting, self.entry.method)
        return planned.config(
            self.entry.chosen or {},
            self.seed,
            self.held_out,
        )


@dataclass(frozen=True)
class Checked:
    """The result of a check.

    Attributes:
        draw: Seed of the draw.
        population: Number of runs from which was drawn.
        tolerance: The tolerance on another kind of machine.
        runs: The repeated runs.
    """

    draw: int
    population: int
    tolerance: float
    runs: tuple[CheckedRun, ...]

    def count(self, outcome: str) -> int:
        """Return the number of runs with an outcome."""
        return sum(run.outcome == outcome for run in self.runs)


def check_runs(
    entries: Iterable[Entry],
    number: int,
    draw: int,
    context: BenchmarkContext,
) -> Checked:
    """Repeat runs chosen at random and compare all numbers.

    The repeated runs are in DIR/checks/<name>@<version>/<draw>. Their configurations come from the
    benchmark and the chosen values, never from the published runs. A run of an earlier check with
    the same draw is removed and trained again: other versions may be installed now.

    Args:
        entries: The entries.
        number: Number of runs.
        draw: Seed of the draw.
        context: The benchmark, results directory and executor.

    Raises:
        RequestError: If there is no run to repeat.
    """
    population = []
    for entry in entries:
        population += [CheckedRun(entry, run, False) for run in entry.runs]
        population += [CheckedRun(entry, run, True) for run in entry.held_out]
    if not population:
        raise RequestError(
            f"there is no run of {context.benchmark.label} to check; type --baselines DIR or URL "
            "with published runs"
        )
    order = np.random.default_rng(draw).permutation(len(population))
    drawn = [population[place] for place in order[:number]]

    place = context.folder / CHECKS / context.benchmark.label / str(draw)
    repeating = replace(context, folder=place)
    pairs = [(one, one.config(repeating)) for one in drawn]
    configs = [config for one, config in pairs if one.digest == config.digest]
    for config in configs:
        if config.path.exists():
            shutil.rmtree(config.path)
    repeating.batch(configs)
    return Checked(
        draw,
        len(population),
        context.benchmark.tolerance,
        tuple(_compared(one, config, context.benchmark) for one, config in pairs),
    )


def _compared(
    one: CheckedRun,
    config: RunConfig,
    benchmark: Benchmark,
) -> CheckedRun:
    """Return the comparison of a run with its repetition."""

    def result(
        outcome: Literal["within", "differs"],
        reason: str,
        difference: float = math.inf,
    ) -> CheckedRun:
        return replace(
            one,
            outcome=outcome,
            reason=reason,
            difference=difference,
        )

    if one.digest != config.digest:
        return result("differs", f"its digest is {one.digest}, and {config.digest} here")
    if not (config.path / "meta.json").exists():
        return result("differs", "it is refused here")
    repeated = read_run(config.path)
    ends = [f"{run.outcome} in round {run.meta['rounds']}" for run in (one.run, repeated)]
    if ends[0] != ends[1]:
        return result("differs", f"it is {ends[0]}, and {ends[1]} here")

    measured = numbers_of(repeated)
    published = numbers_of(one.run)
    reason, difference = largest_difference(published, measured)
    if not difference:
        return one
    environment = environment_of(repeated)
    changed = []
    for name, value in environment_of(one.run).items():
        if value != environment[name]:
            changed.append(name)
    if changed:
        metrics = [
            {name: numbers.get(name) for name in benchmark.metrics}
            for numbers in (published, measured)
        ]
        reason, difference = largest_difference(*metrics)
        reason = f"{reason or 'other numbers'}, with another {', '.join(changed)}"
        if difference <= benchmark.tolerance:
            return result("within", reason, difference)
    return result("differs", reason, difference)


def environment_of(run: Run) -> dict[str, Any]:
    """Return the versions, the machine and the engine on which a run's bits depend."""
    versions = run.meta.get("versions", {})
    engine = run.meta.get("engine", {})
    return {
        **{f"engine.{name}": engine.get(name) for name in _ENGINE},
        "processes": engine.get("processes", 1),
        **{name: versions.get(name) for name in _VERSIONS},
        "platform": run.meta.get("platform"),
        "device": run.meta.get("device_name"),
    }


def numbers_of(run: Run) -> Fields:
    """Return the numbers of the last round and of all clients by name; none if the run diverged."""
    if not run.counts:
        return {}
    numbers = run.last_round()
    for clock in _CLOCKS:
        numbers.pop(clock, None)
    if run.has_clients:
        for row in run.last_clients().to_dict("records"):
            for column, value in row.items():
                numbers[f"{column} of client {row['client']}"] = value
    return numbers


def largest_difference(
    published: Fields,
    repeated: Fields,
) -> tuple[str, float]:
    """Return the name of the number that differs most, and the difference.

    The difference is relative to published numbers above 1. Two missing numbers agree; a number
    that only one of the runs has is a difference.
    """
    where = ""
    largest = 0.0
    for name in published | repeated:
        difference = _difference(published.get(name), repeated.get(name))
        if difference > largest:
            where = name
            largest = difference
    return where, largest


def _difference(published: Any, repeated: Any) -> float:
    missing = [pd.isna(value) for value in (published, repeated)]
    if all(missing) or published == repeated:
        return 0.0
    if any(missing) or isinstance(published, str):
        return math.inf
    if math.isinf(published) or math.isinf(repeated):
        return math.inf
    return float(abs(repeated - published) / max(1.0, abs(published)))

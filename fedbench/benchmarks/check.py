"""Repetition of published runs chosen at random: ``fedbench benchmark NAME --check K``.

Runs are compared bit for bit with those of the same versions and machine. Elsewhere numbers are
rounded differently, and the metrics of the benchmark must agree within its tolerance.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from fedbench.benchmarks.entries import Entry
from fedbench.benchmarks.execution import BenchmarkContext
from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError
from fedbench.runs.results import CHECKS
from fedbench.runs.run import Fields, Run, read_run

_CLOCKS = ("seconds_train", "seconds_eval")
_VERSIONS = ("python", "torch", "numpy")


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
        reason: The number with the largest difference, or why there is no number.
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
    benchmark and the chosen values, never from the published runs.

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
    configs = []
    for one in drawn:
        planned = repeating.planned(one.entry.setting, one.entry.method)
        configs.append(planned.config(one.entry.chosen or {}, one.seed, one.held_out))
    repeating.batch([c for c, one in zip(configs, drawn, strict=True) if _is_same(c, one.run)])
    checked = [_compared(*pair, context) for pair in zip(drawn, configs, strict=True)]
    return Checked(draw, len(population), context.benchmark.tolerance, tuple(checked))


def _is_same(config: RunConfig, run: Run) -> bool:
    return config.digest == str(run.meta["hash"])


def _compared(one: CheckedRun, config: RunConfig, context: BenchmarkContext) -> CheckedRun:
    """Return the comparison of a run with its repetition."""

    def differs(reason: str, difference: float = math.inf) -> CheckedRun:
        return replace(one, outcome="differs", difference=difference, reason=reason)

    if not _is_same(config, one.run):
        return differs(f"its digest is {one.run.meta['hash']}, and {config.digest} here")
    if not (config.path / "meta.json").exists():
        return differs("it is refused here")
    repeated = read_run(config.path)
    if (one.run.outcome, one.run.meta["rounds"]) != (repeated.outcome, repeated.meta["rounds"]):
        ends = [f"{run.outcome} in round {run.meta['rounds']}" for run in (one.run, repeated)]
        return differs(f"it is {ends[0]}, and {ends[1]} here")

    here = numbers_of(repeated)
    published = numbers_of(one.run)
    # a published run without a metric differs
    metrics = {name: published.get(name) for name in context.benchmark.metrics if name in here}
    reason, difference = largest_difference(metrics | published, here)
    if not difference:
        return one
    if environment_of(one.run) != environment_of(repeated):
        reason, difference = largest_difference(metrics, here)
        if difference <= context.benchmark.tolerance:
            return replace(one, outcome="within", difference=difference, reason=reason)
    return differs(reason, difference)


def environment_of(run: Run) -> list[Any]:
    """Return the versions and the machine on which a run's bits depend."""
    versions = run.meta.get("versions", {})
    machine = [run.meta.get("platform"), run.meta.get("device_name")]
    return [versions.get(name) for name in _VERSIONS] + machine


def numbers_of(run: Run) -> Fields:
    """Return the numbers of the last round and of all clients by name; none if the run diverged."""
    if not run.counts:
        return {}
    numbers = {key: value for key, value in run.last_round().items() if key not in _CLOCKS}
    if run.has_clients:
        for row in run.last_clients().to_dict("records"):
            for column, value in row.items():
                numbers[f"{column} of client {row['client']}"] = value
    return numbers


def largest_difference(
    published: Mapping[str, Any],
    here: Mapping[str, Any],
) -> tuple[str, float]:
    """Return the name of the number that differs most, and the difference.

    The difference is relative to published numbers above 1. Two missing numbers agree.
    """
    differences = {key: _difference(value, here.get(key)) for key, value in published.items()}
    return max(differences.items(), key=lambda item: item[1], default=("", 0.0))


def _difference(published: Any, here: Any) -> float:
    missing = [pd.isna(value) for value in (published, here)]
    if all(missing) or published == here:
        return 0.0
    if any(missing) or isinstance(published, str):
        return math.inf
    return float(abs(here - published) / max(1.0, abs(published)))

"""Execution of a benchmark: the search for a method's values, and its runs with the chosen ones.

Studies and runs are those of ``fedbench compare``, in DIR/<setting> for each setting.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

from fedbench.benchmarks.definition import Benchmark
from fedbench.benchmarks.entries import Entry, Trial, entry_file, read_entry, write_entry
from fedbench.config.compose import Composer
from fedbench.config.identity import setting as setting_of
from fedbench.config.overrides import CONFIG_DIR, as_value, options, parse_overrides
from fedbench.config.schema import RunConfig
from fedbench.core.config_values import config_value, leaves, read_yaml
from fedbench.core.errors import RequestError, nearest
from fedbench.core.metrics import metric_info
from fedbench.core.validation import choice
from fedbench.runs.executors.base import Executor, RunBatch, RunResult
from fedbench.runs.run import DamagedRun, Run, read_run
from fedbench.tuning.request import read_request
from fedbench.tuning.search import Study
from fedbench.tuning.space import Values, search_space, weight_overrides

RATE = "local.lr"


def methods_of(benchmark: Benchmark) -> list[str]:
    """Return the methods of a benchmark.

    All methods are the choices of ``algo`` whose files stand alone; a file that extends another one
    combines two methods.
    """
    if benchmark.methods != "all":
        return list(benchmark.methods)
    methods = []
    for name in options("algo"):
        file = CONFIG_DIR / "algo" / f"{name}.yaml"
        if "defaults" not in read_yaml(file):
            methods.append(name)
    return methods


@dataclass(frozen=True)
class BenchmarkContext:
    """The facts that all entries of a command share.

    Attributes:
        benchmark: The benchmark.
        composer: Composer of the configurations.
        executor: The executor of the runs.
        folder: The results directory DIR.
        overrides: Overrides of every run, which do not change results.
    """

    benchmark: Benchmark
    composer: Composer
    executor: Executor
    folder: Path
    overrides: tuple[str, ...] = ()

    def planned(self, setting: str, method: str) -> "PlannedEntry":
        """Return the plan of a method in a setting."""
        return PlannedEntry(
            **vars(self),
            name=setting,
            method=method,
        )

    def batch(self, configs: Sequence[RunConfig]) -> list[RunResult]:
        """Execute runs and return their results."""
        batch = RunBatch(configs, self.composer.config_dir)
        self.executor.execute(batch)
        return batch.results

    def check_settings(self) -> None:
        """Refuse a benchmark whose settings are not those of its version.

        Raises:
            RequestError: If the baseline's configuration has changed in a setting or its variant,
                or the baseline is none of the methods.
        """
        choice("baseline", self.benchmark.baseline, methods_of(self.benchmark))
        version = self.benchmark.version
        for name, setting in self.benchmark.settings.items():
            digests = self.planned(name, self.benchmark.baseline).digests
            if digests != setting.digests:
                raise RequestError(
                    f"the setting {name} is not that of {self.benchmark.label}: the digests of its "
                    f"configurations are {list(digests)}, those of this version "
                    f"{list(setting.digests)}. Results of different settings are never in one "
                    f"table: undo the change to {setting.experiment}, or set version: "
                    f"{version + 1}, digests: {list(digests)}, and say under changes what changed"
                )


@dataclass(frozen=True, kw_only=True)
class PlannedEntry(BenchmarkContext):
    """A method in a setting that is to be searched and run.

    Attributes:
        name: Name of the setting.
        method: The method.
    """

    name: str
    method: str

    @property
    def is_own(self) -> bool:
        """Whether the method is the user's."""
        return self.method not in options("algo")

    @property
    def choices(self) -> list[str]:
        """The overrides that choose the setting and the method."""
        experiment = self.benchmark.settings[self.name].experiment
        return [f"experiment={experiment}", f"algo={self.method}"]

    @cached_property
    def defaults(self) -> Values:
        """The method's values in this setting by dotted key."""
        return leaves(self.composer.config(self.choices).tree)

    @property
    def fixed(self) -> list[str]:
        """The overrides of every run; a method with a rule of its own has none for the weights."""
        weights = weight_overrides(self.defaults, self.benchmark.weights)
        results_dir = f"results_dir={as_value(str(self.folder / self.name))}"
        return [*self.choices, *weights, *self.overrides, results_dir]

    @cached_property
    def axes(self) -> dict[str, str]:
        """The axes of the search by key, as typed.

        Raises:
            RequestError: For a key that the method does not have.
        """
        axes = {}
        place = self.composer.config_dir if self.is_own else None
        for axis in search_space(self.method, place, ()):
            axes[axis.key] = axis.text
            if self.is_own and axis.key != RATE and not axis.key.startswith("algo."):
                raise RequestError(
                    f"tune/{self.method}.yaml: {axis.key} belongs to the setting, which is the "
                    f"same for all methods; search {RATE} and keys of algo"
                )
        if RATE in axes:
            rates = map(config_value, self.benchmark.search.rates)
            axes[RATE] = f"{RATE}={','.join(rates)}"
        for key in axes:
            if key not in self.defaults:
                known = [name for name in self.defaults if name.startswith(("algo.", "local."))]
                raise RequestError(
                    f"tune/{self.method}.yaml: {key} is no key of algo={self.method}"
                    f"{nearest(key, known)}; its keys are {', '.join(known)}"
                )
        return axes

    @cached_property
    def digests(self) -> tuple[str, str]:
        """Digests of the method's configuration in the setting and in its variant."""
        return self.config({}).digest, self.config({}, held_out=True).digest

    @property
    def plan(self) -> dict[str, Any]:
        """The benchmark's numbers of trials and seeds, its tuning seeds and its metric."""
        search = self.benchmark.search
        return {
            "budget": search.budget,
            "tuning_seeds": list(search.seeds),
            "metric": search.metric,
            "seeds": self.benchmark.seeds,
        }

    @property
    def most_runs(self) -> int:
        """The maximum number of runs, with those of the search."""
        search = self.benchmark.search
        trials = 0
        if RATE in self.axes:
            trials += len(search.rates)
        if set(self.axes) - {RATE}:
            trials += search.budget
        return trials * len(search.seeds) + 2 * self.benchmark.seeds

    def config(
        self,
        values: Values,
        seed: int = 0,
        held_out: bool = False,
    ) -> RunConfig:
        """Return the configuration of a run of the table.

        Args:
            values: The chosen values by key.
            seed: The seed.
            held_out: Whether the run is one of the held-out variant.

        Raises:
            RequestError: If a value is invalid, or for a key that is not searched.
        """
        for key in values:
            choice(f"a chosen key of {self.method}", key, self.axes)
        overrides = [*self.fixed, *_typed(values)]
        if held_out:
            overrides += self.benchmark.settings[self.name].held_out
        tuned_on = as_value(self.benchmark.search.seeds)
        overrides += [f"tuned_on={tuned_on}", f"seed={seed}"]
        return self.composer.config(overrides)

    def refusal(self) -> str:
        """Return the reason why the method cannot run in the setting, or an empty string.

        A user's method whose clients have other weights than the benchmark's is named on standard
        error.

        Raises:
            RequestError: If the method is unknown or has no search space, if it is the user's and
                changes the setting, if the user's files widen the search of a method of fedbench,
                or if the baseline cannot run either, for example because data are missing.
        """
        if self.is_own:
            self._check_own()
        for axis in search_space(self.method, self.composer.config_dir, ()):
            if axis.key not in self.axes:
                raise RequestError(
                    f"tune/{self.method}.yaml in {self.composer.config_dir}: {axis.key} is not in "
                    f"the search of {self.method} in {self.benchmark.label}, which is the same "
                    "everywhere; remove the file"
                )
        try:
            weights = self._build()
        except RequestError as error:
            replace(self, method=self.benchmark.baseline)._build()
            return str(error)
        if self.is_own and weights != {self.benchmark.weights}:
            print(
                f"fedbench: {self.method} weights clients by {', '.join(sorted(weights))}, and "
                f"{self.benchmark.label} has {self.benchmark.weights} weights: give its function "
                "an argument weights, or pass weights to its Algorithm, unless it uses none",
                file=sys.stderr,
            )
        return ""

    def _check_own(self) -> None:
        """Raise a RequestError if the user's method changes keys outside its own section."""
        baseline = replace(self, method=self.benchmark.baseline)
        mine = setting_of(self.config({}).tree)
        theirs = setting_of(baseline.config({}).tree)
        changed = []
        for key in sorted(mine.keys() | theirs.keys()):
            is_shared = key != RATE and not key.startswith("algo.")
            if is_shared and mine.get(key) != theirs.get(key):
                changed.append(key)
        if changed:
            raise RequestError(
                f"algo={self.method} changes {', '.join(changed)} of the setting {self.name}, "
                "which is the same for all methods; a method's file may have keys of its own alone"
            )

    def _build(self) -> set[str]:
        """Build a run in the setting and one in its variant, and return the clients' weights.

        Raises:
            RequestError: If a run is invalid, or its data are missing.
        """
        from fedbench.runs.build import build  # imports torch, which takes seconds

        weights: set[str] = set()
        for held_out in (False, True):
            run = build(self.config({}, held_out=held_out))
            weights |= {stage.algorithm.weights for stage in run.stages}
        return weights

    def finished(self) -> Entry | None:
        """Return the entry on disk; None if it is missing, incomplete or of another configuration.

        An entry without its runs, or that cannot be read, is named on standard error.
        """
        file = entry_file(self.folder, self.benchmark, self.name, self.method)
        if not file.exists():
            return None
        try:
            entry = read_entry(file, self.folder)
        except RequestError as error:
            print(f"fedbench: {error}", file=sys.stderr)
            return None
        present = self._entry()
        for name in ("digests", "space", "plan"):
            if getattr(entry, name) != getattr(present, name):
                return None
        return entry if entry.is_complete(self.benchmark.seeds) else None

    def execute(self) -> tuple[Entry, list[RunResult]]:
        """Search, run the seeds with the chosen values, and write the entry.

        Finished runs are not repeated. If runs of the search fail, nothing is chosen and no entry
        is written, so that the next call trains them again.

        Returns:
            The entry, and the results of the runs, or those of the search that failed.

        Raises:
            RefusedTrial: If the method refuses a trial.
            RequestError: If the executor cannot be reached, or a tuning seed has results.
            KeyboardInterrupt: On Ctrl-C; the same command resumes the work.
        """
        searched, failed = self._search()
        if failed:
            reason = f"failed runs of the search: {len(failed)}; run the same command again"
            return self._entry(reason=reason), failed
        trials = tuple(searched)
        chosen = self.best(trials)
        if chosen is None:
            return self.write(reason="every trial diverged", trials=trials), []
        configs = []
        held_out = []
        for seed in range(self.benchmark.seeds):
            configs.append(self.config(chosen, seed))
            held_out.append(self.config(chosen, seed, held_out=True))
        results = self.batch([*configs, *held_out])
        entry = self.write(
            trials=trials,
            chosen=chosen,
            runs=_runs(configs),
            held_out=_runs(held_out),
        )
        return entry, results

    def write(self, **fields: Any) -> Entry:
        """Write and return the entry.

        Args:
            fields: The fields of the entry besides its name and configuration.
        """
        entry = self._entry(**fields)
        write_entry(entry, self.folder, self.benchmark)
        return entry

    def _entry(self, **fields: Any) -> Entry:
        """Return the entry with further fields."""
        return Entry(
            self.name,
            self.method,
            tuple(self.axes.values()),
            digests=self.digests,
            plan=self.plan,
            **fields,
        )

    def _search(self) -> tuple[list[Trial], list[RunResult]]:
        """Return all trials, and the results of failed runs.

        Rates are tried at the defaults of the other keys, then those keys at the best rate.
        """
        search = self.benchmark.search
        own = dict(self.axes)
        rates = own.pop(RATE, None)
        if rates is None:
            return self._trials(list(own.values()), search.budget)

        own_defaults = {key: self.defaults[key] for key in own}
        overrides = [*_typed(own_defaults), rates]
        trials, failed = self._trials(overrides, len(search.rates))
        best = self.best(trials)
        # with a failed rate, another one may be the best
        if best is not None and own and not failed:
            rate = _typed({RATE: best[RATE]})
            more, failed = self._trials([*rate, *own.values()], search.budget)
            trials += more
        return trials, failed

    def _trials(
        self,
        overrides: Sequence[str],
        budget: int,
    ) -> tuple[list[Trial], list[RunResult]]:
        """Return the trials of one search with all values of its overrides, and failed runs."""
        search = self.benchmark.search
        seeds = as_value(search.seeds)
        typed = [
            *self.fixed,
            *overrides,
            f"tuned_by={search.metric}",
            f"budget={budget}",
            f"seeds={seeds}",
        ]
        request = read_request("tune", typed, self.executor)
        study = Study(request, self.method, self.composer)
        study.check()

        constants = {}
        for override in parse_overrides(overrides):
            if not override.sweeps:
                constants[override.key] = override.value
        trials = []
        for trial in study.search().trials:
            trials.append(Trial(constants | trial.values, trial.mean()))
        return trials, study.failed

    def best(self, trials: Sequence[Trial]) -> Values | None:
        """Return the values of the first of the best trials; None if no trial has a score."""
        metric = metric_info(self.benchmark.search.metric)
        best: Values | None = None
        highest = -inf
        for trial in trials:
            if trial.score is not None and metric.sign * trial.score > highest:
                highest = metric.sign * trial.score
                best = trial.values
        return best


def _runs(configs: Sequence[RunConfig]) -> tuple[Run, ...]:
    """Return the runs that can be read; a run that was refused has no files."""
    runs = []
    for config in configs:
        with suppress(DamagedRun):  # its result has the fault
            runs.append(read_run(config.path))
    return tuple(runs)


def _typed(values: Values) -> list[str]:
    return [f"{key}={as_value(value)}" for key, value in values.items()]

"""Execution of a benchmark: the search for a method's values, and its runs with the chosen ones.

Studies and runs are those of ``fedbench compare``, in DIR/<setting> for each setting.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from fedbench.benchmarks.definition import Benchmark
from fedbench.benchmarks.entries import Entry, Trial, entry_file, read_entry, write_entry
from fedbench.config.compose import Composer
from fedbench.config.overrides import CONFIG_DIR, as_value, options, parse_overrides
from fedbench.config.schema import RunConfig
from fedbench.core.config_values import config_value, leaves, read_yaml
from fedbench.core.errors import RequestError
from fedbench.core.metrics import metric_info
from fedbench.core.validation import choice
from fedbench.runs.executors.base import Executor, RunBatch, RunResult
from fedbench.runs.run import Run, read_run
from fedbench.tuning.request import read_request
from fedbench.tuning.search import Study
from fedbench.tuning.space import Values, search_space

RATE = "local.lr"
# keys that choose between weights by size and uniform ones
_WEIGHTS = ("algo.weights", "algo.prior")


def methods_of(benchmark: Benchmark) -> list[str]:
    """Return the methods of a benchmark.

    All methods are the choices of ``algo`` whose files stand alone; a file that extends another one
    combines two methods.
    """
    if benchmark.methods != "all":
        return list(benchmark.methods)
    folder = CONFIG_DIR / "algo"
    return [
        name for name in options("algo") if "defaults" not in read_yaml(folder / f"{name}.yaml")
    ]


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
        return PlannedEntry(**vars(self), name=setting, method=method)

    def batch(self, configs: Sequence[RunConfig]) -> list[RunResult]:
        """Execute runs and return their results."""
        batch = RunBatch(configs, self.composer.config_dir)
        self.executor.execute(batch)
        return batch.results

    def check_settings(self) -> None:
        """Refuse a benchmark whose settings are not those of its version.

        Raises:
            RequestError: If the baseline's configuration has changed in a setting or its variant.
        """
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
        weights = []
        for key in _WEIGHTS:
            if self.defaults.get(key) in ("size", "uniform"):
                weights.append(f"{key}={self.benchmark.weights}")
        results_dir = f"results_dir={as_value(str(self.folder / self.name))}"
        return [*self.choices, *weights, *self.overrides, results_dir]

    @cached_property
    def axes(self) -> dict[str, str]:
        """The axes of the search by key, as typed."""
        axes = {
            axis.key: axis.text for axis in search_space(self.method, self.composer.config_dir, ())
        }
        if RATE in axes:
            rates = map(config_value, self.benchmark.search.rates)
            axes[RATE] = f"{RATE}={','.join(rates)}"
        return axes

    @cached_property
    def digests(self) -> tuple[str, str]:
        """Digests of the method's configuration in the setting and in its variant."""
        return self.config({}).digest, self.config({}, held_out=True).digest

    @property
    def most_runs(self) -> int:
        """The maximum number of runs, with those of the search."""
        search = self.benchmark.search
        trials = search.budget * (len(self.axes) > (RATE in self.axes))
        if RATE in self.axes:
            trials += len(search.rates)
        return trials * len(search.seeds) + 2 * self.benchmark.seeds

    def config(self, values: Values, seed: int = 0, held_out: bool = False) -> RunConfig:
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
        variant = self.benchmark.settings[self.name].held_out if held_out else ()
        tuned_on = f"tuned_on={as_value(self.benchmark.search.seeds)}"
        return self.composer.config(
            [*self.fixed, *_typed(values), *variant, tuned_on, f"seed={seed}"]
        )

    def refusal(self) -> str:
        """Return the reason why the method cannot run in the setting, or an empty string.

        Raises:
            RequestError: If the method is unknown or has no search space, or if the baseline cannot
                run either, for example because data are missing.
        """
        configs = [self.config({}), self.config({}, held_out=True)]
        try:
            _build(configs)
        except RequestError as error:
            baseline = replace(self, method=self.benchmark.baseline)
            _build([baseline.config({}), baseline.config({}, held_out=True)])
            return str(error)
        return ""

    def finished(self) -> Entry | None:
        """Return the entry on disk; None if it is missing, incomplete or of another configuration.

        Raises:
            RequestError: If the entry or one of its runs cannot be read.
        """
        file = entry_file(self.folder, self.benchmark, self.name, self.method)
        if not file.exists():
            return None
        entry = read_entry(file, self.folder)
        present = (tuple(self.axes.values()), self.digests)
        is_present = (entry.space, entry.digests) == present
        return entry if is_present and entry.is_complete(self.benchmark.seeds) else None

    def execute(self) -> tuple[Entry, list[RunResult]]:
        """Search, run the seeds with the chosen values, and write the entry.

        Finished runs are not repeated.

        Returns:
            The entry, and the results of the runs.

        Raises:
            RequestError: If the method refuses a trial.
            KeyboardInterrupt: On Ctrl-C; the same command resumes the work.
        """
        trials = tuple(self._search())
        chosen = self.best(trials)
        if chosen is None:
            return self.write("every trial diverged or failed", trials), []
        seeds = range(self.benchmark.seeds)
        configs = [self.config(chosen, seed) for seed in seeds]
        held_out = [self.config(chosen, seed, held_out=True) for seed in seeds]
        results = self.batch([*configs, *held_out])
        entry = self.write("", trials, chosen, _runs(configs), _runs(held_out))
        return entry, results

    def write(
        self,
        reason: str,
        trials: tuple[Trial, ...] = (),
        chosen: Values | None = None,
        runs: tuple[Run, ...] = (),
        held_out: tuple[Run, ...] = (),
    ) -> Entry:
        """Write and return the entry; the arguments are its fields."""
        space = tuple(self.axes.values())
        fields = (self.name, self.method, space, trials, chosen, reason, runs, held_out)
        entry = Entry(*fields, digests=self.digests)
        write_entry(entry, self.folder, self.benchmark)
        return entry

    def _search(self) -> list[Trial]:
        """Return all trials.

        Rates are tried at the defaults of the other keys, then those keys at the best rate.
        """
        search = self.benchmark.search
        own = {key: axis for key, axis in self.axes.items() if key != RATE}
        if RATE not in self.axes:
            return self._trials(list(own.values()), search.budget)

        own_defaults = _typed({key: self.defaults[key] for key in own})
        trials = self._trials([*own_defaults, self.axes[RATE]], len(search.rates))
        best = self.best(trials)
        if best is not None and own:
            rate = _typed({RATE: best[RATE]})
            trials += self._trials([*rate, *own.values()], search.budget)
        return trials

    def _trials(self, overrides: Sequence[str], budget: int) -> list[Trial]:
        """Return the trials of one search, each with all values of its overrides."""
        search = self.benchmark.search
        seeds = as_value(search.seeds)
        keys = [f"tuned_by={search.metric}", f"budget={budget}", f"seeds={seeds}"]
        request = read_request("tune", [*self.fixed, *overrides, *keys], self.executor)
        study = Study(request, self.method, self.composer)
        study.check()
        constants = {o.key: o.value for o in parse_overrides(overrides) if not o.sweeps}
        trials = study.search().trials
        return [Trial(constants | trial.values, trial.mean()) for trial in trials]

    def best(self, trials: Sequence[Trial]) -> Values | None:
        """Return the values of the first of the best trials; None if no trial has a score."""
        sign = metric_info(self.benchmark.search.metric).sign
        scored = [(sign * t.score, t.values) for t in trials if t.score is not None]
        return max(scored, key=lambda pair: pair[0])[1] if scored else None


def _build(configs: Sequence[RunConfig]) -> None:
    """Build runs as far as their first round.

    Raises:
        RequestError: If a run is invalid, or its data are missing.
    """
    from fedbench.runs.build import build  # imports torch, which takes seconds

    for config in configs:
        build(config)


def _runs(configs: Sequence[RunConfig]) -> tuple[Run, ...]:
    """Return the runs that have files; a run that was refused has none."""
    return tuple(read_run(c.path) for c in configs if (c.path / "meta.json").exists())


def _typed(values: Values) -> list[str]:
    return [f"{key}={as_value(value)}" for key, value in values.items()]

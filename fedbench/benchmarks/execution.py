"""Execution of a benchmark: the search for a method's values, and its runs with the chosen ones.

Studies and runs are those of ``fedbench compare``. A setting has the directory DIR/<setting> below
the results directory DIR, and DIR/benchmark/<name>@<version>/<setting>/<method>.json is the entry of
a method: it tells the search and lists the runs, so that a page needs no search.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

from fedbench.benchmarks.definition import Benchmark, Setting
from fedbench.benchmarks.entries import Entry, Trial
from fedbench.config.compose import Composer
from fedbench.config.overrides import CONFIG_DIR, as_value, options, parse_overrides
from fedbench.config.schema import RunConfig
from fedbench.core.atomic_files import replace_file
from fedbench.core.config_values import config_value, leaves, read_yaml
from fedbench.core.errors import RequestError
from fedbench.core.files import reading
from fedbench.core.validation import choice
from fedbench.runs.executors.base import Executor, RunBatch, RunResult
from fedbench.runs.run import Fields, Run, read_run
from fedbench.tuning.request import read_request
from fedbench.tuning.search import Study
from fedbench.tuning.space import Axis, Values, search_space

FOLDER = "benchmark"  # directory of the entries, below the results directory
RATE = "local.lr"
# keys that choose between weights by size and uniform ones
_WEIGHTS = ("algo.weights", "algo.prior")


def methods_of(benchmark: Benchmark) -> list[str]:
    """Return the methods of a benchmark, in alphabetical order.

    All methods are the choices of ``algo`` whose files stand alone; a file that extends another one
    combines two methods.
    """
    if benchmark.methods != "all":
        return sorted(benchmark.methods)
    folder = CONFIG_DIR / "algo"
    return [
        name for name in options("algo") if "defaults" not in read_yaml(folder / f"{name}.yaml")
    ]


def check_methods(names: Sequence[str], config_dir: Path | None) -> None:
    """Refuse unknown methods.

    Raises:
        RequestError: If a method is neither fedbench's nor in the user's directory.
    """
    known = options("algo")
    if config_dir is not None:
        known += options("algo", config_dir)
    for name in names:
        choice("algo", name, known)


@dataclass(frozen=True)
class BenchmarkContext:
    """The benchmark, directory and executor that all entries of a command share.

    Attributes:
        benchmark: The benchmark.
        composer: Composer of the configurations.
        executor: The executor of the runs.
        folder: The results directory DIR.
        overrides: Overrides of every run, which do not change results.
        debug: Whether to print the traceback of a failed run.
    """

    benchmark: Benchmark
    composer: Composer
    executor: Executor
    folder: Path
    overrides: tuple[str, ...] = ()
    debug: bool = False


@dataclass(frozen=True)
class PlannedEntry:
    """A method in a setting that is to be searched and run.

    Attributes:
        name: Name of the setting.
        method: The method.
        shared: The benchmark, directory and executor that all entries share.
    """

    name: str
    method: str
    shared: BenchmarkContext

    @property
    def setting(self) -> Setting:
        """The setting."""
        return self.shared.benchmark.settings[self.name]

    @property
    def choices(self) -> list[str]:
        """The overrides that choose the setting and the method."""
        return [f"experiment={self.setting.experiment}", f"algo={self.method}"]

    @cached_property
    def defaults(self) -> Values:
        """The method's values in this setting by dotted key."""
        return leaves(self.shared.composer.config(self.choices).tree)

    @property
    def fixed(self) -> list[str]:
        """The overrides of every run; a method with a rule of its own has none for the weights."""
        weights = []
        for key in _WEIGHTS:
            if self.defaults.get(key) in ("size", "uniform"):
                weights.append(f"{key}={self.shared.benchmark.weights}")
        results_dir = f"results_dir={as_value(str(self.shared.folder / self.name))}"
        return [*self.choices, *weights, *self.shared.overrides, results_dir]

    @cached_property
    def axes(self) -> dict[str, Axis]:
        """The method's own axes by key, without the rate, and the axis of the rate if it has one."""
        return {a.key: a for a in search_space(self.method, self.shared.composer.config_dir, ())}

    @property
    def own_axes(self) -> list[Axis]:
        """The axes of the method's own keys."""
        return [axis for key, axis in self.axes.items() if key != RATE]

    @property
    def space(self) -> list[str]:
        """The axes of the search as typed."""
        rates = ",".join(map(config_value, self.shared.benchmark.search.rates))
        own = [axis.text for axis in self.own_axes]
        return [f"{RATE}={rates}", *own] if RATE in self.axes else own

    def digests(self) -> tuple[str, str]:
        """Return the digests of the method's configuration in the setting and in its variant."""
        return self.config({}).digest, self.config({}, held_out=True).digest

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
            choice(f"{self.method} in {self.name}: a chosen key", key, self.axes)
        variant = self.setting.held_out if held_out else ()
        tuned_on = as_value(list(self.shared.benchmark.search.seeds))
        typed = [*_typed(values), *variant, f"tuned_on={tuned_on}", f"seed={seed}"]
        return self.shared.composer.config([*self.fixed, *typed])

    def refusal(self) -> str:
        """Return the reason why the method cannot run in the setting, or an empty string."""
        from fedbench.runs.build import build  # imports torch, which takes seconds

        try:
            for held_out in (False, True):
                build(self.config({}, held_out=held_out))
        except RequestError as error:
            return str(error)
        return ""

    def most_runs(self) -> int:
        """Return the maximum number of runs, with those of the search."""
        search = self.shared.benchmark.search
        own = self.own_axes
        tried = search.budget if own else 0
        if own and all(axis.grid for axis in own):
            tried = min(tried, prod(len(axis.grid) for axis in own))
        rates = len(search.rates) if RATE in self.axes else 0
        return (rates + tried) * len(search.seeds) + 2 * self.shared.benchmark.seeds

    # ---- the entry on disk

    @property
    def file(self) -> Path:
        """The file of the entry."""
        folder = entries_folder(self.shared.folder, self.shared.benchmark)
        return folder / self.name / f"{self.method}.json"

    def finished(self) -> Entry | None:
        """Return the entry on disk; None if it is missing, incomplete or of another method."""
        if not self.file.exists():
            return None
        facts = _read(self.file)
        if facts["digests"] != list(self.digests()) or facts["space"] != self.space:
            return None
        runs = [self.shared.folder / path for path in (*facts["runs"], *facts["held_out"])]
        wanted = 2 * self.shared.benchmark.seeds if facts["chosen"] is not None else 0
        if not facts["trials"] or len(runs) < wanted or not all(map(_is_complete, runs)):
            return None
        return _entry(facts, self.shared.folder)

    def refuse(self, reason: str) -> Entry:
        """Write and return the entry of a method that cannot run in the setting."""
        return self._write((), None, reason, [])

    def execute(self) -> tuple[Entry, list[RunResult]]:
        """Search, run the seeds with the chosen values, and write the entry.

        Finished runs are not repeated.

        Returns:
            The entry, and the results of the runs.

        Raises:
            RequestError: If the method refuses a trial.
            KeyboardInterrupt: On Ctrl-C; the same command resumes the work.
        """
        trials, sign = self._search()
        chosen = best_of(trials, sign)
        if chosen is None:
            return self._write(trials, None, "every trial diverged or failed", []), []
        seeds = range(self.shared.benchmark.seeds)
        configs = [self.config(chosen, seed, held_out=h) for h in (False, True) for seed in seeds]
        batch = RunBatch(configs, self.shared.composer.config_dir, self.shared.debug)
        self.shared.executor.execute(batch)
        return self._write(trials, chosen, "", configs), batch.results

    def _write(
        self,
        trials: Sequence[Trial],
        chosen: Values | None,
        reason: str,
        configs: Sequence[RunConfig],
    ) -> Entry:
        """Write and return an entry; runs without files are left out."""
        places = [c.path.relative_to(self.shared.folder) for c in configs]
        there = [(self.shared.folder / place / "meta.json").exists() for place in places]
        seeds = self.shared.benchmark.seeds
        paths = [str(place) if found else "" for place, found in zip(places, there, strict=True)]
        facts = {
            "setting": self.name,
            "method": self.method,
            "digests": self.digests(),
            "space": self.space,
            "trials": [{"values": trial.values, "score": trial.score} for trial in trials],
            "chosen": chosen,
            "reason": reason,
            "runs": [path for path in paths[:seeds] if path],
            "held_out": [path for path in paths[seeds:] if path],
        }
        self.file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.file, json.dumps(facts, indent=1) + "\n")
        return _entry(facts, self.shared.folder)

    # ---- the search

    def _search(self) -> tuple[list[Trial], int]:
        """Return all trials, and the sign of the metric: 1 if higher is better, else -1.

        Rates are tried at the defaults of the other keys, then those keys at the best rate.
        """
        own = [axis.text for axis in self.own_axes]
        budget = self.shared.benchmark.search.budget
        if RATE not in self.axes:
            return self._trials(own, budget)

        own_defaults = {axis.key: self.defaults[axis.key] for axis in self.own_axes}
        rates, *_ = self.space
        tried = len(self.shared.benchmark.search.rates)
        trials, sign = self._trials([*_typed(own_defaults), rates], tried)
        best = best_of(trials, sign)
        if best is not None and own:
            at_best, _ = self._trials([*_typed({RATE: best[RATE]}), *own], budget)
            trials += at_best
        return trials, sign

    def _trials(self, overrides: Sequence[str], budget: int) -> tuple[list[Trial], int]:
        """Return the trials of one search with all values of its overrides, and the metric's sign."""
        search = self.shared.benchmark.search
        keys = [f"budget={budget}", f"seeds={as_value(list(search.seeds))}"]
        typed = [*self.fixed, *overrides, f"tuned_by={search.metric}", *keys]
        request = read_request("tune", typed, self.shared.executor)
        study = Study(request, self.method, self.shared.composer, self.shared.debug)
        study.check()
        constants = {o.key: o.value for o in parse_overrides(overrides) if not o.sweeps}
        trials = []
        for trial in study.search().trials:
            trials.append(Trial(constants | trial.values, trial.mean()))
        return trials, study.metric.sign


def best_of(trials: Sequence[Trial], sign: int = 1) -> Values | None:
    """Return the values of the first of the best trials; None if no trial has a score.

    Args:
        trials: The trials.
        sign: 1 if a higher score is better, -1 if a lower one is.
    """
    scored = [(sign * trial.score, trial.values) for trial in trials if trial.score is not None]
    return max(scored, key=lambda pair: pair[0])[1] if scored else None


def check_settings(shared: BenchmarkContext) -> None:
    """Refuse a benchmark whose settings are not those of its version.

    Raises:
        RequestError: If the baseline's configuration has changed in a setting or its variant.
    """
    benchmark = shared.benchmark
    for name, setting in benchmark.settings.items():
        digests = PlannedEntry(name, benchmark.baseline, shared).digests()
        if digests == setting.digests:
            continue
        present, written = (", ".join(map(repr, pair)) for pair in (digests, setting.digests))
        raise RequestError(
            f"the setting {name} is not that of {benchmark.label}: its configurations have the "
            f"digests {present}, and those of this version are {written}. Results of different "
            f"settings are never in one table: undo the change to {setting.experiment}, or raise "
            f"version to {benchmark.version + 1}, add what it changed to changes and set "
            f"digests: [{present}]"
        )


def entries_folder(folder: Path, benchmark: Benchmark) -> Path:
    """Return the directory of a benchmark's entries below a results directory."""
    return folder / FOLDER / benchmark.label


def entries_of(folder: Path, benchmark: Benchmark) -> list[Entry]:
    """Return the entries below a results directory, by setting and method, with their runs.

    Args:
        folder: The results directory.
        benchmark: The benchmark; entries of other versions are left out.

    Raises:
        RequestError: If the file of an entry cannot be read.
        DamagedRun: If a run cannot be read.
    """
    entries = []
    for setting in benchmark.settings:
        for file in sorted((entries_folder(folder, benchmark) / setting).glob("*.json")):
            entries.append(_entry(_read(file), folder))
    return entries


def _read(file: Path) -> Fields:
    with reading(file, "is not an entry of a benchmark", "remove it; the runs remain"):
        facts: Fields = json.loads(file.read_text(encoding="utf-8"))
        missing = {"digests", "space", "trials", "chosen", "reason", "runs", "held_out"} - set(
            facts
        )
        if missing:
            raise ValueError(f"{min(missing)} is missing")
        return facts


def _entry(facts: Fields, folder: Path) -> Entry:
    """Return an entry from the facts in its file."""

    def runs(key: str) -> tuple[Run, ...]:
        return tuple(read_run(folder / path) for path in facts[key])

    return Entry(
        facts["setting"],
        facts["method"],
        tuple(facts["space"]),
        tuple(Trial(trial["values"], trial["score"]) for trial in facts["trials"]),
        facts["chosen"],
        facts["reason"],
        runs("runs"),
        runs("held_out"),
    )


def _is_complete(path: Path) -> bool:
    return (path / "DONE").exists()


def _typed(values: Values) -> list[str]:
    return [f"{key}={as_value(value)}" for key, value in values.items()]

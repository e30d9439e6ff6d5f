"""Run the fairness benchmark: tune and measure all methods on four settings.

``python scripts/fairness_benchmark.py DIR`` writes runs, trials and chosen values to DIR/<setting>;
run the same command again to resume. The settings are in conf/experiment/fairness. There are three
tables:

- ``uniform``: clients weighted uniformly where the method allows it, tuned for the mean over
  clients;
- ``size``: the methods with a choice of weights, clients weighted by their training examples, tuned
  for the mean;
- ``worst10``: weights as in ``uniform``, tuned for the worst 10 % of the clients.

Every method has the same search on one tuning seed: six rates with the method's own keys at their
defaults, then six values of its own keys at the best rate.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fedbench.config.compose import Composer
from fedbench.config.overrides import as_value, options, parse_overrides
from fedbench.core.atomic_files import replace_file
from fedbench.core.config_values import leaves
from fedbench.core.errors import RequestError
from fedbench.runs.build import build
from fedbench.runs.executors.base import RunBatch
from fedbench.runs.executors.local import LocalExecutor
from fedbench.runs.run import read_run
from fedbench.tuning.request import FIRST_TUNING_SEED, read_request
from fedbench.tuning.search import Study
from fedbench.tuning.space import Values, search_space

SETTINGS = ("synthetic", "mnist_2class", "femnist", "cifar10")
SEEDS = 10
RATE = "local.lr"
RATES = f"{RATE}=0.003,0.01,0.03,0.1,0.3,1"
_BUDGET = 6  # values of a method's own keys
ENTRIES = "entries"
REFUSED = "refused.json"
# weights of the clients, and the metric on validation examples that chooses the values
TABLES = {
    "uniform": ("uniform", "val_accuracy_mean"),
    "size": ("size", "val_accuracy_mean"),
    "worst10": ("uniform", "val_accuracy_worst10"),
}
_VARIANTS = ("fedcorr_adafed",)  # choices of algo that combine two of the methods
# keys that choose between weights by size and uniform ones
_WEIGHTS = ("algo.weights", "algo.prior")


class Trial(NamedTuple):
    """One trial of a search.

    Attributes:
        values: The values by key.
        scores: The metrics of ``TABLES`` on validation examples after the last round; None if the
            run diverged.
    """

    values: Values
    scores: dict[str, float | None]


def best_of(trials: Sequence[Trial], metric: str) -> Values | None:
    """Return the values of the best trial by a metric; None if no trial has a number."""
    best = None
    highest = -1.0
    for trial in trials:
        score = trial.scores[metric]
        if score is not None and score > highest:
            highest = score
            best = trial.values
    return best


def main() -> int:
    """Run the benchmark and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path, help="directory of the results")
    parser.add_argument(
        "--settings",
        default=",".join(SETTINGS),
        help="settings, separated by commas",
    )
    parser.add_argument(
        "--methods",
        default=",".join(methods()),
        help="methods, separated by commas",
    )
    parser.add_argument(
        "--tables",
        default=",".join(TABLES),
        help="tables, separated by commas",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        help="runs at a time; the default is what cores and memory suggest",
    )
    parser.add_argument("overrides", nargs="*", help="overrides of every run, such as rounds=5")
    args = parser.parse_intermixed_args()
    names = args.methods.split(",")
    tables = args.tables.split(",")
    for setting in args.settings.split(","):
        folder = args.directory / setting
        refused = refusals(setting, names, args.overrides)
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / REFUSED, json.dumps(refused, indent=1) + "\n")
        for table in tables:
            for method in names:
                if method in refused:
                    continue
                entry = Entry(
                    setting,
                    table,
                    method,
                    folder,
                    tuple(args.overrides),
                    args.jobs,
                )
                if entry.weights or table != "size":
                    entry.execute(SEEDS)
    return 0


def methods() -> list[str]:
    """Return all methods, in alphabetical order."""
    return [name for name in options("algo") if name not in _VARIANTS]


def refusals(
    setting: str,
    names: Sequence[str],
    overrides: Sequence[str],
) -> dict[str, str]:
    """Return the methods that cannot run in a setting, with the reason that a run would print."""
    composer = Composer(None)
    reasons = {}
    for method in names:
        try:
            build(composer.config([f"experiment=fairness/{setting}", f"algo={method}", *overrides]))
        except RequestError as error:
            reasons[method] = str(error)
    return reasons


@dataclass(frozen=True)
class Entry:
    """A method in one table of a setting: its search, and its runs with the chosen values.

    Attributes:
        setting: The setting.
        table: The table.
        method: The method.
        folder: The results directory of the setting.
        overrides: Further overrides of every run.
        jobs: Number of runs at a time; None is what cores and memory suggest.
    """

    setting: str
    table: str
    method: str
    folder: Path
    overrides: tuple[str, ...] = ()
    jobs: int | None = None

    @cached_property
    def composer(self) -> Composer:
        """The composer of the configurations."""
        return Composer(None)

    @property
    def choices(self) -> list[str]:
        """The overrides that choose the setting and the method."""
        return [f"experiment=fairness/{self.setting}", f"algo={self.method}"]

    @cached_property
    def defaults(self) -> Values:
        """The method's values in this setting by dotted key."""
        return leaves(self.composer.config(self.choices).tree)

    @property
    def metric(self) -> str:
        """The metric that values are chosen by."""
        return TABLES[self.table][1]

    @property
    def weights(self) -> list[str]:
        """The override of the clients' weights; none for a method with a rule of its own."""
        chosen = TABLES[self.table][0]
        overrides = []
        for key in _WEIGHTS:
            if self.defaults.get(key) in ("size", "uniform"):
                overrides.append(f"{key}={chosen}")
        return overrides

    @property
    def fixed(self) -> list[str]:
        """The overrides of every run."""
        return [
            *self.choices,
            *self.weights,
            *self.overrides,
            f"results_dir={self.folder}",
        ]

    def execute(self, seeds: int) -> None:
        """Search, run the seeds with the chosen values, and write the entry.

        Finished runs are not repeated.
        """
        trials, space = self.search()
        chosen = best_of(trials, self.metric)
        digest = None
        if chosen is not None:
            fixed = [*self.fixed, *_typed(chosen), f"tuned_on=[{FIRST_TUNING_SEED}]"]
            configs = [self.composer.config([*fixed, f"seed={seed}"]) for seed in range(seeds)]
            LocalExecutor(self.jobs).execute(RunBatch(configs))
            digest = configs[0].digest

        facts = {
            "table": self.table,
            "method": self.method,
            "weights": self.weights,
            "space": space,
            "trials": [trial._asdict() for trial in trials],
            "chosen": chosen,
            "digest": digest,
        }
        file = self.folder / ENTRIES / f"{self.table}.{self.method}.json"
        file.parent.mkdir(exist_ok=True)
        replace_file(file, json.dumps(facts, indent=1) + "\n")

    def search(self) -> tuple[list[Trial], list[str]]:
        """Return all trials and the axes.

        Rates are tried at the defaults of the other keys, then those keys at the best rate.
        """
        axes = {axis.key: axis.text for axis in search_space(self.method, None, ())}
        has_rate = axes.pop(RATE, None) is not None  # FedSPS has none
        own_axes = list(axes.values())
        if not has_rate:
            return self._trials(own_axes), own_axes

        own_defaults = {key: self.defaults[key] for key in axes}
        trials = self._trials([*_typed(own_defaults), RATES])
        best = best_of(trials, self.metric)
        if best is not None and own_axes:
            rate = _typed({RATE: best[RATE]})
            trials += self._trials([*rate, *own_axes])
        return trials, [RATES, *own_axes]

    def _trials(self, overrides: list[str]) -> list[Trial]:
        """Return the trials of one search, each with all values of its overrides and its scores."""
        typed = [*self.fixed, *overrides, f"budget={_BUDGET}"]
        request = read_request("tune", typed, LocalExecutor(self.jobs))
        study = Study(request, self.method, self.composer)
        study.check()

        constants = {}
        for override in parse_overrides(overrides):
            if not override.sweeps:
                constants[override.key] = override.value
        trials = []
        for trial in study.search().trials:
            config = self.composer.config(study.overrides(trial.values, FIRST_TUNING_SEED))
            run = read_run(config.path)
            last: dict[str, Any] = run.last_round() if run.outcome == "done" else {}
            scores = {metric: last.get(metric) for _, metric in TABLES.values()}
            trials.append(Trial(constants | trial.values, scores))
        return trials


def _typed(values: Values) -> list[str]:
    return [f"{key}={as_value(value)}" for key, value in values.items()]


if __name__ == "__main__":
    sys.exit(main())

"""Run the fairness benchmark: tune and measure all methods on four settings (conf/experiment/fairness).

``python scripts/fairness_benchmark.py DIR`` writes runs, trials and what was chosen to
DIR/<setting>, and, when all settings are done, the page to DIR/page (scripts/benchmark_page.py);
type it again to resume. There are three tables:

- ``uniform``: clients weighted uniformly where the method lets them be, tuned for the mean over
  clients;
- ``size``: the methods with such a choice, clients weighted by their training examples, tuned for
  the mean;
- ``worst10``: weights as in ``uniform``, tuned for the worst 10 % of the clients.

A search is the same for every method: six rates with the method's own keys at their defaults, then
six values of its own keys at the best rate, on one tuning seed. Methods that refuse a setting are
left out of it, with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmark.comparisons import ENTRIES, TABLES, Trial

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
RATES = "local.lr=0.003,0.01,0.03,0.1,0.3,1"
_BUDGET = 6  # values of a method's own keys
_NOTES = Path(__file__).parents[1] / "results" / "published" / "fairness" / "notes.yaml"
_VARIANTS = ("fedcorr_adafed",)  # choices of algo that combine two of the methods
# keys that choose between weights by size and uniform ones
_WEIGHTS = ("algo.weights", "algo.prior")


def main() -> int:
    """Carry out what the command line asks for, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path, help="directory of the results")
    parser.add_argument(
        "--settings", default=",".join(SETTINGS), help="settings, separated by commas"
    )
    parser.add_argument(
        "--methods", default=",".join(methods()), help="methods, separated by commas"
    )
    parser.add_argument("--tables", default=",".join(TABLES), help="tables, separated by commas")
    parser.add_argument("--seeds", type=int, default=10, help="seeds of the tables")
    parser.add_argument(
        "--jobs", type=int, help="runs at a time; the default is what cores and memory suggest"
    )
    parser.add_argument("overrides", nargs="*", help="overrides of every run, such as rounds=5")
    args = parser.parse_intermixed_args()
    for setting in args.settings.split(","):
        folder = args.directory / setting
        refused = refusals(setting, args.methods.split(","), args.overrides)
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / "refused.json", json.dumps(refused, indent=1) + "\n")
        for table in args.tables.split(","):
            for method in (m for m in args.methods.split(",") if m not in refused):
                entry = Entry(setting, table, method, folder, tuple(args.overrides), args.jobs)
                if entry.weights or table != "size":
                    entry.execute(args.seeds)
    return _page(args.directory)


def methods() -> list[str]:
    """Return all methods, in alphabetical order."""
    return [name for name in options("algo") if name not in _VARIANTS]


def refusals(setting: str, given: list[str], overrides: list[str]) -> dict[str, str]:
    """Return the methods that cannot run in a setting, with the reason that a run would print."""
    composer, found = Composer(None), {}
    for method in given:
        try:
            build(composer.config([f"experiment=fairness/{setting}", f"algo={method}", *overrides]))
        except RequestError as error:
            found[method] = str(error)
    return found


@dataclass(frozen=True)
class Entry:
    """A method in one table of a setting: its search, and its runs with what was chosen.

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
        """Composes the configurations."""
        return Composer(None)

    @cached_property
    def defaults(self) -> Values:
        """The method's values in this setting by dotted key."""
        setting = [f"experiment=fairness/{self.setting}", f"algo={self.method}"]
        return leaves(self.composer.config(setting).tree)

    @property
    def weights(self) -> list[str]:
        """The override that sets the weights of the clients; none for a method with a rule of its own."""
        keys = [key for key in _WEIGHTS if self.defaults.get(key) in ("size", "uniform")]
        return [f"{key}={TABLES[self.table][0]}" for key in keys]

    @property
    def fixed(self) -> list[str]:
        """The overrides of every run."""
        return [
            f"experiment=fairness/{self.setting}",
            f"algo={self.method}",
            *self.weights,
            *self.overrides,
        ]

    def execute(self, seeds: int) -> None:
        """Search, run the seeds with what was chosen, and write down both; what is done is not repeated."""
        trials, space = self.searched()
        metric = TABLES[self.table][1]
        good = [t for t in trials if t.scores[metric] is not None]
        chosen = max(good, key=lambda t: t.scores[metric] or 0.0).values if good else None
        facts = {
            "table": self.table,
            "method": self.method,
            "weights": self.weights,
            "space": space,
        }
        facts |= {"trials": [vars(t) for t in trials], "chosen": chosen, "digest": None}
        if chosen is not None:
            typed = [f"{key}={as_value(value)}" for key, value in chosen.items()]
            fixed = [
                *self.fixed,
                *typed,
                f"results_dir={self.folder}",
                f"tuned_on=[{FIRST_TUNING_SEED}]",
            ]
            configs = [self.composer.config([*fixed, f"seed={seed}"]) for seed in range(seeds)]
            LocalExecutor(self.jobs).execute(RunBatch(configs))
            facts["digest"] = configs[0].digest
        place = self.folder / ENTRIES / f"{self.table}.{self.method}.json"
        place.parent.mkdir(exist_ok=True)
        replace_file(place, json.dumps(facts, indent=1) + "\n")

    def searched(self) -> tuple[list[Trial], list[str]]:
        """Return all trials and the axes: rates at the defaults of the other keys, then those keys at the best rate."""
        space = [axis for axis in search_space(self.method, None, ()) if axis.key != "local.lr"]
        texts = [axis.text for axis in space]
        rates = any(axis.key == "local.lr" for axis in search_space(self.method, None, ()))
        metric, trials, best = TABLES[self.table][1], [], []
        if rates:  # FedSPS has none
            own = [f"{axis.key}={as_value(self.defaults[axis.key])}" for axis in space]
            trials = self._trials([*own, RATES])
            good = [t for t in trials if t.scores[metric] is not None]
            if not good:
                return trials, [RATES, *texts]
            best = [
                f"local.lr={max(good, key=lambda t: t.scores[metric] or 0.0).values['local.lr']}"
            ]
        if space:
            trials += self._trials([*best, *texts])
        return trials, [RATES, *texts] if rates else texts

    def _trials(self, texts: list[str]) -> list[Trial]:
        """Return the trials of one search, each with all values that were typed for it and its scores."""
        typed = [*self.fixed, *texts, f"results_dir={self.folder}", f"budget={_BUDGET}"]
        study = Study(
            read_request("tune", typed, LocalExecutor(self.jobs)), self.method, self.composer
        )
        study.check()
        found = []
        for trial in study.search().trials:
            config = self.composer.config(study.overrides(trial.values, FIRST_TUNING_SEED))
            run = read_run(config.path)
            last = run.last_round() if run.outcome == "done" else {}
            values = {o.key: o.value for o in parse_overrides(texts) if not o.sweeps} | trial.values
            scores = {metric: last.get(metric) for _, metric in TABLES.values()}
            found.append(Trial(values, scores))
        return found


def _page(folder: Path) -> int:
    missing = [s for s in SETTINGS if not (folder / s / ENTRIES).is_dir()]
    if missing:
        print(f"no page yet: {', '.join(missing)} not done in {folder}")
        return 0
    page = [
        str(Path(__file__).with_name("benchmark_page.py")),
        str(folder / "page"),
        "--notes",
        str(_NOTES),
    ]
    settings = [str(folder / s) for s in SETTINGS]
    return subprocess.run(
        [sys.executable, *page, "--from", *settings], env=os.environ, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())

"""The search for one method: Optuna draws, prunes and keeps trials; each is trained on the tuning seeds."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import ceil
from pathlib import Path
from zlib import crc32

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from fedbench.config.compose import Composer
from fedbench.config.overrides import as_value
from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError
from fedbench.core.files import config_value
from fedbench.core.metrics import MetricInfo, metric_info
from fedbench.runs.cached_run import depends_on_rounds
from fedbench.runs.pool import Ended, Runs, carry_out_all, jobs_by_default, shared_gpus
from fedbench.runs.results import TUNING
from fedbench.runs.run import is_done, read_run
from fedbench.tuning.request import TuningRequest
from fedbench.tuning.space import Axis, Values, search_space
from fedbench.tuning.trials import Trial, Tuned, objective_of

_VALIDATION = 0.2  # fraction of the training examples, where none is typed
_AT_ONCE = 4  # trials that the estimator suggests before it sees their results
_STARTUP = 8  # trials of the estimator that are drawn at random
_KEPT = 3  # of this many trials one goes on, with this many times the rounds
_NAME = "search"
_ONLY_HERE = ("data.validation", "objective", "keep_state")  # typed for the search, not for what follows it


@dataclass(frozen=True)
class Study:
    """The search for one method.

    Args:
        request: The request.
        method: The method.
        composer: Composes the configurations.
        loud: Print the traceback of a failed run.
    """

    request: TuningRequest
    method: str
    composer: Composer
    loud: bool = False

    @cached_property
    def config(self) -> RunConfig:
        """The configuration of a trial at the method's defaults."""
        return self.composer.config([*self._base, f"seed={self.request.seeds[0]}"])

    @cached_property
    def space(self) -> tuple[Axis, ...]:
        """The axes of the search."""
        return search_space(self.method, self.composer.own, self.request.overrides)

    @cached_property
    def metric(self) -> MetricInfo:
        """The metric that trials are judged by."""
        return metric_info(objective_of(self.config))

    @cached_property
    def folder(self) -> Path:
        """The directory of the study; a larger budget goes on in the same one."""
        request = self.request
        facts = [self.config.digest, [axis.text for axis in self.space], list(request.seeds), self.metric.name]
        digest = hashlib.sha256(json.dumps([*facts, request.sampler, request.pruning]).encode()).hexdigest()[:10]
        return self.config.results_dir / TUNING / "studies" / self.config.task_name / self.method / digest

    @property
    def after(self) -> list[str]:
        """The overrides of a run that is no trial, without its seed and what is tuned."""
        kept = [o.text for o in self.request.overrides if not o.sweeps and o.key not in _ONLY_HERE]
        return [f"algo={self.method}", *kept]

    @cached_property
    def _base(self) -> list[str]:
        held_out = []
        if not any(o.key == "data.validation" for o in self.request.overrides):
            held_out = [f"data.validation={self.composer.config(self.after).data.validation or _VALIDATION}"]
        return [f"algo={self.method}", *self.request.fixed, *held_out]

    @property
    def _rungs(self) -> list[int]:
        """The numbers of rounds after which trials are compared, the last one being all."""
        rounds = self.config.rounds
        first = ceil(rounds / _KEPT**2)
        early = [first, _KEPT * first] if self.request.pruning == "halving" else []
        return [*(r for r in early if r < rounds), rounds]

    def check(self) -> None:
        """Refuse what cannot be searched for, before anything is trained.

        Raises:
            RequestError: If a key is wrong, a tuning seed has results, or the method cannot be pruned.
        """
        for end in (0, -1):
            self.composer.config(
                self.overrides({axis.key: axis.ends[end] for axis in self.space}, self.request.seeds[0])
            )
        if not self.metric.name.startswith("val_"):
            raise RequestError(
                f"objective={self.metric.name} is not measured on validation examples, and nothing else may judge a "
                f"trial; choose val_{self.metric.name.removeprefix('test_')}"
            )
        self._refuse_pruning()
        place = self.config.results_dir / self.config.task_name / self.method
        for seed in self.request.seeds:
            if found := next((p for p in sorted(place.glob(f"*/seed_{seed}")) if is_done(p)), None):
                raise RequestError(
                    f"seed {seed} has results in {found}; tuning seeds must be apart from those of results, such as "
                    "seeds=[2000]"
                )

    def _refuse_pruning(self) -> None:
        schedules = next((axis.grid for axis in self.space if axis.key == "local.schedule"), ())
        cosine = "cosine" in schedules or self.config.local.schedule.depends_on_rounds
        if self.request.pruning == "halving" and (cosine or depends_on_rounds(self.config)):
            what = "local.schedule=cosine" if cosine else f"algo={self.method}"
            raise RequestError(
                f"pruning=halving compares trials after fewer rounds, and {what} is made for its total number of "
                "rounds; use pruning=none"
            )

    def overrides(self, values: Values, seed: int, rounds: int | None = None) -> list[str]:
        """Return the overrides of a trial's run."""
        typed = [f"{key}={as_value(value)}" for key, value in values.items()]
        place = f"results_dir={as_value(str(self.folder / 'runs'))}"
        last = rounds in (None, self.config.rounds)
        length = [] if last else [f"rounds={rounds}", "keep_state=true"]
        base = [text for text in self._base if not text.startswith("results_dir=")]
        return [*base, *typed, f"seed={seed}", place, *length]

    def search(self) -> Tuned:
        """Carry out the trials that are not done yet, and return the result.

        Raises:
            RequestError: If the method refuses a trial.
            KeyboardInterrupt: On Ctrl-C; the same command goes on.
        """
        study = self._opened()
        axes = {axis.key: _distribution(axis) for axis in self.space}
        random, budget = self.request.sampler == "random", self.request.budget
        points = self._points() if random else None
        if points is not None and len(points) < budget:
            print(f"{self.method}: its space has {len(points)} points, fewer than the budget", file=sys.stderr)
            budget = len(points)
        self._climb(study, [t for t in study.trials if t.state == TrialState.RUNNING])
        while (first := len(study.trials)) < budget:
            at_once = budget if random else _AT_ONCE if first else _STARTUP
            for number in range(first, min(budget, first + at_once)):
                if points is not None:
                    study.enqueue_trial(points[number])
                study.sampler = self._sampler(number)
                study.ask(axes)
            self._climb(study, study.trials[first:])
        ended = study.trials[: self.request.budget]  # an earlier command may have had a larger one
        trials = {t.number: self._trial(t) for t in ended}
        whole = [t for t in ended if t.state == TrialState.COMPLETE and t.value is not None]
        best = max(whole, key=lambda t: self.metric.sign * (t.value or 0.0), default=None)
        chosen = None if best is None else trials[best.number]
        return Tuned(self.method, self.space, tuple(trials.values()), chosen, self.folder)

    def _opened(self) -> optuna.Study:
        """Return the study, with the trials of earlier commands."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.folder.mkdir(parents=True, exist_ok=True)
        return optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(self.folder / "journal.log"))),
            study_name=_NAME,
            load_if_exists=True,
            direction="maximize" if self.metric.sign > 0 else "minimize",
            pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=self._rungs[0], reduction_factor=_KEPT)
            if self.request.pruning == "halving"
            else optuna.pruners.NopPruner(),
        )

    def _sampler(self, number: int) -> BaseSampler:
        """Return the source of a trial: its values depend on the space, its number and the results before it.

        So a search that is resumed has the same trials, and a range that methods share gives them the same values.
        """
        seed = crc32(f"trial {number}".encode())
        if self.request.sampler == "tpe":
            return TPESampler(n_startup_trials=_STARTUP, seed=seed, constant_liar=True)
        return RandomSampler(seed=seed)

    def _points(self) -> list[dict[str, int]] | None:
        """Return all points of a space of grids in a random order, the same in every search; None if it has a range."""
        if not all(axis.grid for axis in self.space):
            return None
        places = product(*(range(len(axis.grid)) for axis in self.space))
        points = [dict(zip((axis.key for axis in self.space), point, strict=True)) for point in places]
        return [points[index] for index in np.random.default_rng(0).permutation(len(points))]

    def _trial(self, trial: FrozenTrial) -> Trial:
        scores = {int(rounds): found for rounds, found in trial.user_attrs.get("scores", {}).items()}
        return Trial(trial.number, {axis.key: axis.value(trial.params[axis.key]) for axis in self.space}, scores)

    def _climb(self, study: optuna.Study, batch: Sequence[FrozenTrial]) -> None:
        """Train trials, those that are good for longer, and print a line on each."""
        going = {t.number: optuna.Trial(study, t._trial_id) for t in batch}
        found = {t.number: self._trial(t) for t in batch}
        for rounds in self._rungs:
            self._train([found[number] for number in going], rounds)
            for number, trial in list(going.items()):
                trial.set_user_attr("scores", found[number].scores)
                mean = found[number].mean()
                if mean is None:
                    study.tell(trial, state=TrialState.FAIL)
                    del going[number]
                elif rounds == self.config.rounds:
                    study.tell(trial, mean)
                else:
                    trial.report(mean, rounds)
                    if trial.should_prune():
                        study.tell(trial, state=TrialState.PRUNED)
                        del going[number]
        for t in found.values():
            values = " ".join(f"{k}={config_value(v)}" for k, v in t.values.items())
            mean = t.mean()
            score = "diverged or failed" if mean is None else f"{self.text(mean)} after {t.rounds} rounds"
            print(f"{self.method} trial {t.number + 1} of {self.request.budget}: {values}: {score}")

    def text(self, value: float) -> str:
        """Return a score with its unit."""
        return f"{self.metric.text(self.metric.factor * value)} {self.metric.unit}".rstrip()

    def _train(self, trials: Sequence[Trial], rounds: int) -> None:
        """Train trials on all tuning seeds for a number of rounds, and add their scores."""
        tasks = [(trial, self.overrides(trial.values, seed, rounds)) for trial in trials for seed in self.request.seeds]
        if not tasks:
            return
        jobs = self.request.jobs or jobs_by_default([self.config], len(tasks))
        runs = Runs([run for _, run in tasks], self.composer.config, self.composer.own, self.loud, quiet=True)
        ended = {e.overrides: e for e in carry_out_all(runs, jobs, shared_gpus([self.config]))}
        for trial in trials:
            trial.scores[rounds] = []
        for trial, run in tasks:
            trial.scores[rounds].append(self._score(ended[tuple(run)]))

    def _score(self, ended: Ended) -> float | None:
        """Return the metric of a run; None if it diverged or failed.

        Raises:
            RequestError: If the run was refused, or there is nothing to measure.
        """
        if ended.status == "refused":
            raise RequestError(ended.error)
        if ended.status == "failed":
            print(f"fedbench: failed: {' '.join(ended.overrides)}: {ended.error}", file=sys.stderr)
        if ended.status != "done" or ended.path is None:
            return None
        value = read_run(ended.path).last_round().get(self.metric.name)
        if value is None or math.isnan(value):
            raise RequestError(
                f"{ended.path} has no {self.metric.name}: no client has enough training examples for "
                f"data.validation={self.config.data.validation:g}; hold out a larger fraction"
            )
        return float(value)


def _distribution(axis: Axis) -> BaseDistribution:
    """Return an axis as Optuna draws from it: of a grid, the place in it."""
    if axis.grid:
        return CategoricalDistribution(tuple(range(len(axis.grid))))
    return FloatDistribution(axis.low, axis.high, log=axis.log)

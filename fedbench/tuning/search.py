"""The search for one method: Optuna draws, prunes and keeps trials; each is trained on the tuning seeds."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from zlib import crc32

import numpy as np
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from fedbench.config.compose import Composer
from fedbench.config.overrides import as_value
from fedbench.config.schema import RunConfig
from fedbench.core.config_values import keys_text
from fedbench.core.errors import RequestError
from fedbench.core.metrics import CATALOGUE, MetricInfo, metric_info, over_clients
from fedbench.core.validation import choice
from fedbench.runs.cached_run import depends_on_rounds
from fedbench.runs.executors.base import RunBatch, RunResult
from fedbench.runs.results import TUNING
from fedbench.runs.run import is_done, read_run
from fedbench.tuning.request import TuningRequest
from fedbench.tuning.space import Axis, Values, search_space

_VALIDATION = 0.2  # fraction of the training examples, where none is typed
_AT_ONCE = 4  # trials that the estimator suggests before it sees their results
_STARTUP = 8  # trials of the estimator that are drawn at random
_KEPT = 3  # of this many trials one goes on, with this many times the rounds
_NAME = "search"
_ONLY_HERE = ("data.validation", "objective", "keep_state")  # typed for the search, not for what follows it


@dataclass(frozen=True)
class Trial:
    """One choice of values.

    Attributes:
        number: Its number, from 0.
        values: The values by key.
        scores: For each number of rounds that it was trained for, the metric per tuning seed; None where a run diverged
            or failed.
    """

    number: int
    values: Values
    scores: dict[int, list[float | None]]

    @property
    def rounds(self) -> int:
        """The number of rounds that it reached."""
        return max(self.scores, default=0)

    def mean(self) -> float | None:
        """Return the mean over the tuning seeds after all rounds that it reached; None if a run diverged or failed."""
        scores = self.scores.get(self.rounds, [])
        known = [s for s in scores if s is not None]
        return sum(known) / len(known) if known and len(known) == len(scores) else None


@dataclass(frozen=True)
class Tuned:
    """The result of tuning one method.

    Attributes:
        method: The method.
        space: The axes along which it was tuned.
        trials: All trials.
        best: The trial that is chosen; None if none was trained to the end without diverging.
    """

    method: str
    space: tuple[Axis, ...]
    trials: tuple[Trial, ...]
    best: Trial | None

    @property
    def edges(self) -> dict[str, str]:
        """The keys whose chosen value lies at an end of its axis, with the end."""
        found = {} if self.best is None else {axis.key: axis.edge(self.best.values[axis.key]) for axis in self.space}
        return {key: end for key, end in found.items() if end is not None}


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
        return search_space(self.method, self.composer.config_dir, self.request.overrides)

    @cached_property
    def metric(self) -> MetricInfo:
        """The metric that trials are judged by."""
        name = self.config.objective
        clients = [k for k, m in CATALOGUE.items() if over_clients(k) and not m.needs]
        known = ["val_loss", *(f"val_{k}" for k in clients)]  # what is measured on validation examples
        return metric_info(choice("objective", "val_accuracy_mean" if name == "auto" else name, known))

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
        held_out = self.composer.config(self.after).data.validation or _VALIDATION
        fixed = [o.text for o in self.request.overrides if not o.sweeps]  # which may say otherwise
        return [f"algo={self.method}", f"data.validation={held_out}", *fixed]

    @property
    def _rungs(self) -> list[int]:
        """The numbers of rounds after which trials are compared, the last one being all."""
        rounds = self.config.rounds
        first = math.ceil(rounds / _KEPT**2)
        early = [first, _KEPT * first] if self.request.pruning == "halving" else []
        return [*(r for r in early if r < rounds), rounds]

    def check(self) -> None:
        """Refuse what cannot be searched for, before anything is trained.

        Raises:
            RequestError: If a key is wrong, a tuning seed has results, or the method cannot be pruned.
        """
        seeds = self.request.seeds
        if not self.config.data.validation:
            raise RequestError("data.validation=0 leaves no examples to choose by; set a fraction above 0, such as 0.2")
        self.composer.config(self.overrides({axis.key: axis.ends[0] for axis in self.space}, seeds[0]))
        schedules = next((axis.grid for axis in self.space if axis.key == "local.schedule"), ())
        if self.request.pruning == "halving" and ("cosine" in schedules or depends_on_rounds(self.config)):
            raise RequestError(
                f"pruning=halving compares trials after fewer rounds, and algo={self.method} or local.schedule is made "
                "for the total number of rounds; use pruning=none"
            )
        place = self.config.results_dir / self.config.task_name / self.method
        done = [path for seed in seeds for path in sorted(place.glob(f"*/seed_{seed}")) if is_done(path)]
        if done:
            raise RequestError(
                f"{done[0].name.replace('_', ' ')} has results in {done[0]}; tuning seeds must be apart from those of "
                "results, such as seeds=[2000]"
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
        # an earlier command may have had a larger budget
        trials = [self._trial(t) for t in study.trials[: self.request.budget]]
        whole = [t for t in trials if t.rounds == self.config.rounds and t.mean() is not None]
        best = max(whole, key=lambda t: self.metric.sign * (t.mean() or 0.0), default=None)
        return Tuned(self.method, self.space, tuple(trials), best)

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

    def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
        """Return the source of a trial: its values depend on the space, its number and the results before it.

        So a search that is resumed has the same trials, and a range that methods share gives them the same values.
        """
        seed = crc32(f"trial {number}".encode())
        if self.request.sampler == "tpe":
            return optuna.samplers.TPESampler(n_startup_trials=_STARTUP, seed=seed, constant_liar=True)
        return optuna.samplers.RandomSampler(seed=seed)

    def _points(self) -> list[dict[str, int]] | None:
        """Return all points of a space of grids in a random order, the same in every search; None if it has a range."""
        if not all(axis.grid for axis in self.space):
            return None
        points = list(product(*(range(len(axis.grid)) for axis in self.space)))
        keys = [axis.key for axis in self.space]
        return [dict(zip(keys, points[i], strict=True)) for i in np.random.default_rng(0).permutation(len(points))]

    def _trial(self, trial: FrozenTrial) -> Trial:
        scores = {int(rounds): found for rounds, found in trial.user_attrs.get("scores", {}).items()}
        return Trial(trial.number, {axis.key: axis.value(trial.params[axis.key]) for axis in self.space}, scores)

    def _climb(self, study: optuna.Study, batch: Sequence[FrozenTrial]) -> None:
        """Train trials, those that are good for longer, and print a line on each that ends."""
        going = {t.number: (optuna.Trial(study, t._trial_id), replace(self._trial(t), scores={})) for t in batch}
        for rounds in self._rungs:
            self._train([found for _, found in going.values()], rounds)
            for number, (trial, found) in list(going.items()):
                trial.set_user_attr("scores", found.scores)
                mean, text = found.mean(), "diverged or failed"
                if mean is None:
                    study.tell(trial, state=TrialState.FAIL)
                else:
                    score = f"{self.metric.text(self.metric.factor * mean)} {self.metric.unit}".rstrip()
                    text = f"{score} after {rounds} rounds"
                    trial.report(mean, rounds)
                    if rounds == self.config.rounds:
                        study.tell(trial, mean)
                    elif trial.should_prune():
                        study.tell(trial, state=TrialState.PRUNED)
                    else:
                        continue
                del going[number]
                print(f"{self.method} trial {number + 1} of {self.request.budget}: {keys_text(found.values)}: {text}")

    def _train(self, trials: Sequence[Trial], rounds: int) -> None:
        """Train trials on all tuning seeds for a number of rounds, and add their scores."""
        tasks = [(trial, self.overrides(trial.values, seed, rounds)) for trial in trials for seed in self.request.seeds]
        batch = RunBatch(
            [run for _, run in tasks], self.composer.config, self.composer.config_dir, self.loud, quiet=True
        )
        if tasks:
            self.request.executor.execute(batch, [self.config] * len(tasks))
        results = {result.overrides: result for result in batch.results}
        for trial, run in tasks:
            trial.scores.setdefault(rounds, []).append(self._score(results[tuple(run)]))

    def _score(self, ended: RunResult) -> float | None:
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


def _distribution(axis: Axis) -> optuna.distributions.BaseDistribution:
    """Return an axis as Optuna draws from it: of a grid, the place in it."""
    if axis.grid:
        return optuna.distributions.CategoricalDistribution(tuple(range(len(axis.grid))))
    return optuna.distributions.FloatDistribution(axis.low, axis.high, log=axis.log)

"""The search for one method: Optuna draws, prunes and stores trials.

Each trial is trained on all tuning seeds.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
from fedbench.core.config_values import keys_text, leaves
from fedbench.core.errors import RequestError
from fedbench.core.metrics import MetricInfo, metric_info, validation_metrics
from fedbench.core.validation import choice
from fedbench.runs.cached_run import depends_on_rounds, writing_results
from fedbench.runs.executors.base import RunBatch, RunResult
from fedbench.runs.results import STUDIES, TUNING
from fedbench.runs.run import is_done, read_run
from fedbench.tuning.request import TuningRequest
from fedbench.tuning.space import Axis, Values, search_space, weight_overrides

OPTUNA_VERSION = optuna.__version__
_VALIDATION = 0.2  # default fraction of the training examples
_AT_ONCE = 4  # trials that the estimator suggests before it sees their results
_STARTUP = 8  # initial trials of the estimator, drawn at random
_KEPT = 3  # one in this many trials continues, with this many times the rounds
_NAME = "search"
# keys that apply to the search, not to later runs
_ONLY_HERE = ("data.validation", "tuned_by", "keep_state")


class RefusedTrial(RequestError):
    """A trial that a method refuses, or that has no score."""


@dataclass(frozen=True)
class Trial:
    """One choice of values.

    Attributes:
        number: Number of the trial, starting at 0.
        values: The values by key.
        scores: The metric per tuning seed, by number of rounds trained. It is None for a run that
            diverged. A trial with a failed run has no scores of these rounds.
    """

    number: int
    values: Values
    scores: dict[int, list[float | None]]

    @property
    def rounds(self) -> int:
        """Number of rounds for which the trial was trained."""
        return max(self.scores, default=0)

    def mean(self) -> float | None:
        """Return the mean score over the tuning seeds after ``rounds`` rounds.

        The result is None if a run diverged or none is complete.
        """
        scores = self.scores.get(self.rounds, [])
        known = [score for score in scores if score is not None]
        if not known or len(known) < len(scores):
            return None
        return sum(known) / len(known)


@dataclass(frozen=True)
class Tuned:
    """The result of tuning one method.

    Attributes:
        study: The search for the method.
        trials: All trials.
        best: The chosen trial, or None if no trial was trained to the end without diverging.
    """

    study: Study
    trials: tuple[Trial, ...]
    best: Trial | None

    @property
    def values(self) -> Values:
        """The chosen values by key; empty if no trial is chosen."""
        return {} if self.best is None else self.best.values


@dataclass(frozen=True)
class Study:
    """The search for one method.

    Args:
        request: The request.
        method: The method.
        composer: Composer of the configurations.
        debug: Whether to print the traceback of a failed run.

    Attributes:
        failed: Results of the runs that failed in this process. The next search trains their trials
            again.
    """

    request: TuningRequest
    method: str
    composer: Composer
    debug: bool = False
    failed: list[RunResult] = field(default_factory=list, init=False, compare=False)

    @cached_property
    def config(self) -> RunConfig:
        """The configuration of a trial with the method's default values."""
        return self.composer.config([*self._base, f"seed={self.request.seeds[0]}"])

    @cached_property
    def space(self) -> tuple[Axis, ...]:
        """The axes of the search."""
        return search_space(self.method, self.composer.config_dir, self.request.overrides)

    @cached_property
    def metric(self) -> MetricInfo:
        """The metric by which trials are compared."""
        name = self.config.tuned_by
        if name == "auto":
            name = "val_accuracy_mean"
        return metric_info(choice("tuned_by", name, validation_metrics()))

    @cached_property
    def folder(self) -> Path:
        """The directory of the study; a search with a larger budget continues in the same one."""
        request = self.request
        facts = [
            self.config.digest,
            [axis.text for axis in self.space],
            request.seeds,
            self.metric.name,
            request.sampler,
            request.pruning,
        ]
        digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:10]
        studies = self.config.results_dir / TUNING / STUDIES
        return studies / self.config.task_name / self.method / digest

    @property
    def after(self) -> list[str]:
        """The overrides of a run outside the search, without the seed and the tuned keys."""
        overrides = list(self._method)
        for o in self.request.overrides:
            if not o.sweeps and o.key not in _ONLY_HERE:
                overrides.append(o.text)
        return overrides

    @cached_property
    def _base(self) -> list[str]:
        held_out = self.composer.config(self.after).data.validation or _VALIDATION
        # these may hold out another fraction
        fixed = [o.text for o in self.request.overrides if not o.sweeps]
        return [*self._method, f"data.validation={held_out}", *fixed]

    @cached_property
    def _method(self) -> list[str]:
        """The overrides that choose the method and the weights of its clients."""
        chosen = f"algo={self.method}"
        tree, _ = self.composer.composed([chosen])
        return [chosen, *weight_overrides(leaves(tree), self.request.weights)]

    @property
    def _rungs(self) -> list[int]:
        """The numbers of rounds after which trials are compared, the last being all rounds."""
        rounds = self.config.rounds
        if self.request.pruning == "none":
            return [rounds]
        first = math.ceil(rounds / _KEPT**2)
        return sorted({first, min(_KEPT * first, rounds), rounds})

    def check(self) -> None:
        """Refuse an impossible search before anything is trained.

        Raises:
            RequestError: If a key is invalid, results exist for a tuning seed, or trials of the
                method cannot be pruned.
        """
        seeds = self.request.seeds
        if not self.config.data.validation:
            raise RequestError(
                "data.validation=0 leaves no examples to choose by; set a fraction above 0, "
                "such as 0.2"
            )
        first = {axis.key: axis.ends[0] for axis in self.space}
        self.composer.config(self.overrides(first, seeds[0]))
        if self.request.pruning == "halving" and self._depends_on_rounds():
            raise RequestError(
                f"pruning=halving compares trials after fewer rounds, and algo={self.method}, "
                "local.schedule or parts.fix_after is made for the total number of rounds; use "
                "pruning=none"
            )
        folder = self.config.results_dir / self.config.task_name / self.method
        for seed in seeds:
            for path in sorted(folder.glob(f"*/seed_{seed}")):
                if is_done(path):
                    raise RequestError(
                        f"seed {seed} has results in {path}; tuning seeds must be apart from those "
                        "of results, such as seeds=[2000]"
                    )

    def _depends_on_rounds(self) -> bool:
        """Return whether a trial's first rounds depend on its total number of rounds."""
        for axis in self.space:
            if axis.key == "local.schedule" and "cosine" in axis.grid:
                return True
        return bool(depends_on_rounds(self.config))

    def overrides(
        self,
        values: Values,
        seed: int,
        rounds: int | None = None,
    ) -> list[str]:
        """Return the overrides of a trial's run."""
        base = [text for text in self._base if not text.startswith("results_dir=")]
        chosen = [f"{key}={as_value(value)}" for key, value in values.items()]
        results_dir = f"results_dir={as_value(str(self.folder / 'runs'))}"
        run = [*base, *chosen, f"seed={seed}", results_dir]
        if rounds not in (None, self.config.rounds):
            run += [f"rounds={rounds}", "keep_state=true"]
        return run

    def search(self) -> Tuned:
        """Train the remaining trials, and return the result.

        Raises:
            RefusedTrial: If the method refuses a trial, or a trial has no score.
            RequestError: If the executor cannot be reached.
            KeyboardInterrupt: On Ctrl-C; the same command resumes the search.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = self._study
        axes = {axis.key: _distribution(axis) for axis in self.space}
        random = self.request.sampler == "random"
        budget = self.request.budget
        points = self._points() if random else None
        if points is not None and len(points) < budget:
            print(
                f"{self.method}: its space has {len(points)} points, fewer than the budget",
                file=sys.stderr,
            )
            budget = len(points)

        started = study.trials[:budget]  # an earlier command may have had a larger budget
        self._climb([trial for trial in started if trial.state == TrialState.RUNNING])
        while (first := len(study.trials)) < budget:
            at_once = _AT_ONCE if first else _STARTUP
            if random:
                at_once = budget
            for number in range(first, min(budget, first + at_once)):
                if points is not None:
                    study.enqueue_trial(points[number])
                study.sampler = self._sampler(number)
                study.ask(axes)
            self._climb(study.trials[first:])

        trials = [self._trial(trial) for trial in study.trials[: self.request.budget]]
        best: Trial | None = None
        best_score = -math.inf
        for trial in trials:
            mean = trial.mean()
            if mean is None or trial.rounds < self.config.rounds:
                continue
            score = self.metric.sign * mean
            if best is None or score > best_score:
                best, best_score = trial, score
        return Tuned(self, tuple(trials), best)

    @cached_property
    def _storage(self) -> JournalStorage:
        """The journal of the trials, including those of earlier commands."""
        with writing_results(self.config.results_dir):
            self.folder.mkdir(parents=True, exist_ok=True)
        return JournalStorage(JournalFileBackend(str(self.folder / "journal.log")))

    @cached_property
    def _study(self) -> optuna.Study:
        """Optuna's study, with explicit values for options whose defaults differ by version."""
        pruner: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
        if self.request.pruning == "halving":
            pruner = optuna.pruners.SuccessiveHalvingPruner(
                min_resource=self._rungs[0],
                reduction_factor=_KEPT,
                min_early_stopping_rate=0,
                bootstrap_count=0,
            )
        return optuna.create_study(
            storage=self._storage,
            study_name=_NAME,
            load_if_exists=True,
            direction="maximize" if self.metric.sign > 0 else "minimize",
            pruner=pruner,
        )

    def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
        """Return the sampler of a trial.

        The values of a trial depend on the space, the trial's number and earlier results. A resumed
        search therefore has the same trials, and a range shared by several methods gives them the
        same values.
        """
        seed = crc32(f"trial {number}".encode())
        if self.request.sampler == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        return optuna.samplers.TPESampler(
            n_startup_trials=_STARTUP,
            n_ei_candidates=24,
            seed=seed,
            multivariate=True,
            group=False,
            constant_liar=True,
        )

    def _points(self) -> list[dict[str, int]] | None:
        """Return all points of a space of grids in random order, the same in every search.

        The result is None if the space contains a range.
        """
        if not all(axis.grid for axis in self.space):
            return None
        places = [range(len(axis.grid)) for axis in self.space]
        points = list(product(*places))
        keys = [axis.key for axis in self.space]
        order = np.random.default_rng(0).permutation(len(points))
        return [dict(zip(keys, points[i], strict=True)) for i in order]

    def _trial(self, trial: FrozenTrial) -> Trial:
        values = {}
        for axis in self.space:
            values[axis.key] = axis.value(trial.params[axis.key])
        known = trial.user_attrs.get("scores", {})
        scores = {int(rounds): scores for rounds, scores in known.items()}
        return Trial(trial.number, values, scores)

    def _climb(self, batch: Sequence[FrozenTrial]) -> None:
        """Train trials on each rung that they reach."""
        study_id = self._storage.get_study_id_from_name(_NAME)
        trial_id = self._storage.get_trial_id_from_study_id_trial_number
        active = []
        for frozen in batch:
            handle = optuna.Trial(self._study, trial_id(study_id, frozen.number))
            trial = replace(self._trial(frozen), scores={})
            active.append((handle, trial))
        for rounds in self._rungs:
            self._train([trial for _, trial in active], rounds)
            active = [pair for pair in active if self._goes_on(*pair, rounds)]

    def _goes_on(
        self,
        handle: optuna.Trial,
        trial: Trial,
        rounds: int,
    ) -> bool:
        """Report a trial's scores after a number of rounds, and return whether it continues.

        If the trial does not continue, its result is printed. It is ended unless a run failed: a
        process that ran out of memory says nothing about the values.
        """
        mean = trial.mean()
        if len(trial.scores[rounds]) < len(self.request.seeds):
            outcome = "failed; the same command trains it again"
        elif mean is None:
            handle.set_user_attr("scores", trial.scores)
            self._study.tell(handle, state=TrialState.FAIL)
            outcome = "diverged"
        else:
            handle.set_user_attr("scores", trial.scores)
            handle.report(mean, rounds)
            if rounds == self.config.rounds:
                self._study.tell(handle, mean)
            elif handle.should_prune():
                self._study.tell(handle, state=TrialState.PRUNED)
            else:
                return True
            score = f"{self.metric.text(self.metric.factor * mean)} {self.metric.unit}".rstrip()
            outcome = f"{score} after {rounds} rounds"
        number = f"{trial.number + 1} of {self.request.budget}"
        print(f"{self.method} trial {number}: {keys_text(trial.values)}: {outcome}")
        return False

    def _train(
        self,
        trials: Sequence[Trial],
        rounds: int,
    ) -> None:
        """Train trials on all tuning seeds for a number of rounds, and add their scores.

        Failed runs have none.
        """
        tasks = []
        for trial, seed in product(trials, self.request.seeds):
            overrides = self.overrides(trial.values, seed, rounds)
            tasks.append((trial, self.composer.config(overrides)))
        configs = [config for _, config in tasks]
        batch = RunBatch(
            configs,
            self.composer.config_dir,
            self.debug,
            quiet=True,
        )
        self.request.executor.execute(batch)
        results = {result.overrides: result for result in batch.results}
        for trial, config in tasks:
            result = results[config.overrides]
            scores = trial.scores.setdefault(rounds, [])
            if result.status == "failed":
                run = " ".join(result.overrides)
                print(f"fedbench: failed: {run}: {result.error}", file=sys.stderr)
                self.failed.append(result)
            else:
                scores.append(self._score(result))

    def _score(self, result: RunResult) -> float | None:
        """Return the metric of a run, or None if the run diverged.

        Raises:
            RefusedTrial: If the run was refused or the metric could not be measured.
        """
        if result.status == "refused":
            raise RefusedTrial(result.error)
        if result.status != "done" or result.path is None:
            return None
        value = read_run(result.path).last_round().get(self.metric.name)
        if value is None or math.isnan(value):
            share = self.config.data.validation
            raise RefusedTrial(
                f"{result.path} has no {self.metric.name}: no client has enough training examples "
                f"for data.validation={share:g}; hold out a larger fraction"
            )
        return float(value)


def _distribution(axis: Axis) -> optuna.distributions.BaseDistribution:
    """Return the distribution from which Optuna draws values of an axis, or indices of a grid."""
    if axis.grid:
        return optuna.distributions.CategoricalDistribution(tuple(range(len(axis.grid))))
    return optuna.distributions.FloatDistribution(axis.low, axis.high, log=axis.log)

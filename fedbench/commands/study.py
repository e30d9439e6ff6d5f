"""The search for one method: trials are drawn, trained on the tuning seeds, compared, and the best one is chosen."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedbench.commands.objective import objective_of
from fedbench.commands.tuning_request import TuningRequest
from fedbench.config.compose import Composer
from fedbench.config.overrides import as_value
from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError
from fedbench.core.files import replace_file
from fedbench.core.metrics import MetricInfo, metric_info
from fedbench.core.trees import config_value
from fedbench.runs.extend import depends_on_rounds
from fedbench.runs.pool import Ended, Runs, carry_out_all, jobs_by_default, shared_gpus
from fedbench.runs.results import TUNING
from fedbench.runs.run import is_done, read_run
from fedbench.tuning.sampling import STARTUP, drawn
from fedbench.tuning.space import Axis, Values, search_space
from fedbench.tuning.trials import Trial, Tuned, history, promoted, ranking, rungs

_VALIDATION = 0.2  # fraction of the training examples, where none is typed
_AT_ONCE = 4  # trials that the estimator suggests before it sees their results
_ONLY_HERE = ("data.validation", "objective", "keep_state")  # typed for the search, not for what follows it


@dataclass(frozen=True)
class Study:
    """The search for one method.

    Args:
        request: What was asked for.
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
    def _base(self) -> list[str]:
        fixed = self.request.fixed
        given = [o.value for o in self.request.overrides if o.key == "data.validation"]
        held_out = [] if given else [f"data.validation={self._own_validation or _VALIDATION}"]
        return [f"algo={self.method}", *fixed, *held_out]

    @cached_property
    def _own_validation(self) -> float:
        typed = [o.text for o in self.request.overrides if not o.sweeps and o.key not in _ONLY_HERE]
        return self.composer.config([f"algo={self.method}", *typed]).data.validation

    @property
    def after(self) -> list[str]:
        """The overrides of a run that is no trial, without its seed and what is tuned."""
        kept = [o.text for o in self.request.overrides if not o.sweeps and o.key not in _ONLY_HERE]
        return [f"algo={self.method}", *kept]

    def check(self) -> None:
        """Refuse what cannot be searched for, before anything is trained.

        Raises:
            RequestError: If a key is wrong, a tuning seed has results, or the method cannot be pruned.
        """
        ends = [{axis.key: axis.at(share) for axis in self.space} for share in (0.0, 0.999)]
        for values in ends:
            self.composer.config(self.overrides(values, self.request.seeds[0]))
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
        return [*_without(self._base, "results_dir"), *typed, f"seed={seed}", place, *length]

    def search(self) -> Tuned:
        """Carry out the trials, or what is left of them, and return what was found.

        Raises:
            RequestError: If the method refuses a trial.
            KeyboardInterrupt: On Ctrl-C; the same command goes on.
        """
        trials: list[Trial] = []
        sign = self.metric.sign
        while len(trials) < self.request.budget:
            first, left = len(trials), self.request.budget - len(trials)
            count = left if self.request.sampler == "random" else min(left, _AT_ONCE if first else STARTUP)
            values = drawn(self.request.sampler, self.space, history(trials, sign), first, count)
            if not values:
                print(f"{self.method}: its space has {first} points, all of which were tried", file=sys.stderr)
                break
            batch = [Trial(first + i, v) for i, v in enumerate(values)]
            trials += batch
            self._climb(batch, trials)
        ranked = ranking(trials, self.config.rounds, sign)
        self._write(trials)
        return Tuned(self.method, self.space, tuple(trials), ranked[0] if ranked else None, self.folder)

    def _climb(self, batch: list[Trial], everyone: list[Trial]) -> None:
        """Train the trials of a batch, those that are good for longer, and print a line on each."""
        going = batch
        for rounds in rungs(self.config.rounds, self.request.pruning == "halving"):
            self._train(going, rounds)
            going = promoted(going, everyone, rounds, self.metric.sign)
        for trial in batch:
            values = " ".join(f"{k}={config_value(v)}" for k, v in trial.values.items())
            mean = trial.mean()
            score = "diverged or failed" if mean is None else f"{self.text(mean)} after {trial.rounds} rounds"
            print(f"{self.method} trial {trial.number + 1} of {self.request.budget}: {values}: {score}")

    def text(self, value: float) -> str:
        """Return a score with its unit."""
        return f"{self.metric.text(self.metric.factor * value)} {self.metric.unit}".rstrip()

    def _train(self, trials: Sequence[Trial], rounds: int) -> None:
        """Train trials on all tuning seeds for a number of rounds, and record their scores."""
        tasks = [(trial, seed) for trial in trials for seed in self.request.seeds]
        if not tasks:
            return
        runs = [self.overrides(trial.values, seed, rounds) for trial, seed in tasks]
        jobs = self.request.jobs or jobs_by_default([self.config], len(runs))
        several = Runs(runs, self._composed, self.composer.own, self.loud, quiet=True)
        found = {e.overrides: e for e in carry_out_all(several, jobs, shared_gpus([self.config]))}
        for (trial, _), overrides in zip(tasks, runs, strict=True):
            trial.scores.setdefault(rounds, []).append(self._score(found[tuple(overrides)]))

    def _composed(self, overrides: Sequence[str]) -> RunConfig:
        return self.composer.config(overrides)

    def _score(self, note: Ended) -> float | None:
        """Return the metric of a run; None if it diverged or failed.

        Raises:
            RequestError: If the run was refused, or there is nothing to measure.
        """
        if note.status == "refused":
            raise RequestError(note.error)
        if note.status == "failed":
            print(f"fedbench: failed: {' '.join(note.overrides)}: {note.error}", file=sys.stderr)
        if note.status != "done" or note.path is None:
            return None
        value = read_run(note.path).last_round().get(self.metric.name)
        if value is None or math.isnan(value):
            raise RequestError(
                f"{note.path} has no {self.metric.name}: no client has enough training examples for "
                f"data.validation={self.config.data.validation:g}; hold out a larger fraction"
            )
        return float(value)

    def _write(self, trials: Sequence[Trial]) -> None:
        """Write all trials to ``trials.json``."""
        rows = [{"number": t.number, "values": t.values, "scores": t.scores} for t in trials]
        content = {
            "method": self.method,
            "metric": self.metric.name,
            "seeds": list(self.request.seeds),
            "space": [axis.text for axis in self.space],
            "trials": rows,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(self.folder / "trials.json", json.dumps(content, indent=1) + "\n")


def _without(texts: Sequence[str], key: str) -> list[str]:
    return [text for text in texts if text.partition("=")[0] != key]

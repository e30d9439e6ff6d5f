"""Measured times of the papers' runs, which are part of fedbench: ``durations.json`` in this folder.

They say what a plan takes on a machine that has no finished runs yet. ``scripts/durations.py`` writes them from
finished runs. A time belongs to an experiment, an algorithm, the keys that determine the work of a round, and a number
of rounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from fedbench.core.trees import config_value
from fedbench.runs.run import Run

FILE = Path(__file__).parent / "durations.json"
_WORK = ("model", "participation", "local.steps", "local.epochs", "local.batch_size", "data.clients")
_SECTIONS = ("model.", "data.source.")

Work = tuple[tuple[str, str], ...]  # keys that determine the work of a round, with their values as they are typed


@dataclass(frozen=True)
class Timing:
    """The mean time of finished runs.

    Attributes:
        work: The keys that differ from the experiment and determine the work of a round.
        seconds: Of a run: training and evaluation.
        runs: Number of runs.
    """

    experiment: str
    algo: str
    work: Work
    rounds: int
    seconds: float
    runs: int = 1

    @property
    def per_round(self) -> float:
        """Seconds per round."""
        return self.seconds / self.rounds


@dataclass(frozen=True)
class StoredDurations:
    """The times that are part of fedbench.

    Attributes:
        machine: The machine that they were measured on.
        rounds: The rounds of the experiments.
        timings: The times, by experiment.
    """

    machine: str
    rounds: Mapping[str, int]
    timings: Mapping[str, tuple[Timing, ...]]

    def find(self, experiment: str, algo: str, work: Work) -> tuple[Timing, ...]:
        """Return the times of the same work by an algorithm, or else by any; none if there are none."""
        alike = tuple(t for t in self.timings.get(experiment, ()) if t.work == work)
        return tuple(t for t in alike if t.algo == algo) or alike


def work_of(keys: Mapping[str, Any]) -> Work:
    """Return the part of a setting that determines the work of a round.

    Args:
        keys: Config keys that a run sets, ``model`` with a name.
    """
    swapped = "model" in keys
    return tuple(
        sorted(
            (key, config_value(value))
            for key, value in keys.items()
            if (key in _WORK or key.startswith(_SECTIONS)) and not (swapped and key.startswith("model."))
        )
    )


def work_of_run(meta: Mapping[str, Any]) -> Work:
    """Return the same of the facts of a run, which name what departs from its experiment."""
    changed = {key: here for key, (_, here) in meta.get("departures", {}).items()}
    if "model._target_" in changed:
        changed["model"] = meta["model"]
    # a source repeats the number of clients
    repeated = "data.source.clients" in changed and "data.clients" in changed
    return work_of({k: v for k, v in changed.items() if not (repeated and k == "data.source.clients")})


def timing_of(run: Run) -> Timing | None:
    """Return the time of a finished run; None if it has no rounds or belongs to no experiment."""
    last = run.last_round()
    rounds, experiment = int(last["round"]), run.meta["experiment"]
    if not rounds or experiment is None:
        return None
    seconds = float(last["seconds_train"] + last["seconds_eval"])
    return Timing(experiment, run.meta["algo"], work_of_run(run.meta), rounds, seconds)


def merged(timings: Iterable[Timing]) -> list[Timing]:
    """Return one time for all of the same setting, their mean, in order."""
    groups: dict[tuple[Any, ...], list[Timing]] = {}
    for t in timings:
        groups.setdefault((t.experiment, t.algo, t.work, t.rounds), []).append(t)
    found = []
    for _, group in sorted(groups.items()):
        runs = sum(t.runs for t in group)
        found.append(replace(group[0], seconds=sum(t.seconds * t.runs for t in group) / runs, runs=runs))
    return found


@cache
def stored_durations() -> StoredDurations:
    """Return the times that are part of fedbench."""
    return from_text(FILE.read_text(encoding="utf-8"))


def from_text(text: str) -> StoredDurations:
    """Return the times of a file."""
    content = json.loads(text)
    found: dict[str, tuple[Timing, ...]] = {}
    for experiment, entry in content["experiments"].items():
        found[experiment] = tuple(
            Timing(experiment, t["algo"], tuple(sorted(t["work"].items())), t["rounds"], t["seconds"], t["runs"])
            for t in entry["times"]
        )
    return StoredDurations(content["machine"], {e: v["rounds"] for e, v in content["experiments"].items()}, found)


def to_text(durations: StoredDurations) -> str:
    """Return times as the text of a file, a line each."""
    lines = []
    for experiment, timings in sorted(durations.timings.items()):
        entries = ",\n".join(f"   {_entry(t)}" for t in timings)
        rounds = durations.rounds[experiment]
        lines.append(f'  {json.dumps(experiment)}: {{"rounds": {rounds}, "times": [\n{entries}\n  ]}}')
    return f'{{\n "machine": {json.dumps(durations.machine)},\n "experiments": {{\n' + ",\n".join(lines) + "\n }\n}\n"


def _entry(t: Timing) -> str:
    return json.dumps(
        {"algo": t.algo, "work": dict(t.work), "rounds": t.rounds, "seconds": round(t.seconds, 2), "runs": t.runs}
    )


def mean_per_round(timings: Sequence[Timing]) -> float:
    """Return the mean time per round."""
    return mean(t.per_round for t in timings)

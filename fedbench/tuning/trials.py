"""Trials of one method: which go on to more rounds, and which one is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

from fedbench.tuning.space import Axis, Values

_KEPT = 3  # of so many trials, one goes on to the next rung, with so many times the rounds
_RUNGS = 3


@dataclass
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
    scores: dict[int, list[float | None]] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """The number of rounds that it reached."""
        return max(self.scores, default=0)

    def mean(self, rounds: int | None = None) -> float | None:
        """Return the mean over the tuning seeds after a number of rounds, by default all; None if a run diverged."""
        scores = self.scores.get(self.rounds if rounds is None else rounds, [])
        known = [s for s in scores if s is not None]
        return sum(known) / len(known) if known and len(known) == len(scores) else None


@dataclass(frozen=True)
class Tuned:
    """What tuning has found for one method.

    Attributes:
        method: The method.
        space: The axes along which it was tuned.
        trials: All trials.
        best: The trial that is chosen; None if none was trained to the end without diverging.
        folder: Directory of the trials' runs.
    """

    method: str
    space: tuple[Axis, ...]
    trials: tuple[Trial, ...]
    best: Trial | None
    folder: Path


def rungs(rounds: int, halving: bool) -> list[int]:
    """Return the numbers of rounds after which trials are compared, the last one being ``rounds``."""
    if not halving:
        return [rounds]
    return sorted({max(1, ceil(rounds / _KEPT**k)) for k in range(_RUNGS)})


def promoted(batch: Sequence[Trial], everyone: Sequence[Trial], rounds: int, sign: int) -> list[Trial]:
    """Return the trials of a batch that go on: those among the best third of all that were trained for ``rounds``.

    This is asynchronous successive halving (Li et al., MLSys 2020), a batch at a time.

    Args:
        batch: The trials that have just been trained for ``rounds``.
        everyone: All trials so far, those of the batch among them.
        rounds: The rung.
        sign: 1 if higher scores are better, -1 if lower ones are.
    """
    ranked = ranking([t for t in everyone if rounds in t.scores], rounds, sign)
    here = len([t for t in everyone if rounds in t.scores])
    going = {t.number for t in ranked[: ceil(here / _KEPT)]}
    return [t for t in batch if t.number in going]


def ranking(trials: Sequence[Trial], rounds: int, sign: int) -> list[Trial]:
    """Return the trials with a score after ``rounds`` rounds, the best first; of equal ones, the earlier trial."""
    scored = [(t, m) for t in trials if (m := t.mean(rounds)) is not None]
    return [t for t, m in sorted(scored, key=lambda pair: (-sign * pair[1], pair[0].number))]


def history(trials: Sequence[Trial], sign: int) -> list[tuple[Values, float]]:
    """Return the values of all trials with their place from the worst, 0, to the best: equal ones share a place.

    Scores after different numbers of rounds are never compared: a trial that was trained for longer is better than all
    that ended earlier, since it was among the best of its rung, and those that ended after the same number of rounds
    are ordered by their scores. One that diverged or failed is worse than all others. Optuna's estimator orders pruned
    trials in the same way, and uses of their values nothing but this order.
    """

    def merit(trial: Trial) -> tuple[int, float]:
        mean = trial.mean()
        return (-1, 0.0) if mean is None else (trial.rounds, sign * mean)

    places = {m: float(place) for place, m in enumerate(sorted({merit(t) for t in trials}))}
    return [(t.values, places[merit(t)]) for t in trials]


def edges(space: Sequence[Axis], values: Values) -> dict[str, str]:
    """Return the keys whose value lies at an end of its axis, with the end."""
    found = {axis.key: axis.edge(values[axis.key]) for axis in space}
    return {key: end for key, end in found.items() if end is not None}

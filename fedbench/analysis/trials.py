"""The trials of a benchmark's searches: the value of tuning, and the sensitivity to each key."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb, inf
from typing import Any

import numpy as np

from fedbench.benchmarks.entries import Entry

RATE = "local.lr"
_TAIL = 0.025  # probability outside each end of the interval
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Search:
    """The search of a method in a setting.

    Attributes:
        entry: The entry, with at least one trial.
        scores: Validation score of each trial, of which higher is better. A trial that diverged has
            the score of the worst trial of any method in the setting.
    """

    entry: Entry
    scores: Sequence[float]

    @property
    def method(self) -> str:
        """The method."""
        return self.entry.method

    @property
    def rates(self) -> int:
        """Number of trials in the first stage, whose rates all differ.

        The second stage, with the method's own keys, begins when a rate is tried again.
        """
        tried = set()
        for trial in self.entry.trials:
            rate = trial.values.get(RATE)
            if rate is None or rate in tried:
                break
            tried.add(rate)
        return len(tried)

    @property
    def value(self) -> np.ndarray:
        """Mean and interval of the best score of n trials, n = 1 to N, [3, N].

        The search is repeated in thought with the trials of each stage in random order: first the
        rates, then the method's own keys at the best rate. Draws from all trials at once would
        credit the first trials of a method that has keys of its own with the search for its rate.
        """
        rates = self.scores[: self.rates]
        best = max(rates, default=-inf)
        own = [max(best, score) for score in self.scores[self.rates :]]
        stages = []
        for scores in (rates, own):
            if scores:
                stages.append(expected_best(scores))
        return np.concatenate(stages, axis=1)

    @property
    def points(self) -> list[tuple[str, Any, float]]:
        """Key, value and score of the trials that differ in that key.

        Rates are compared with the method's own keys at their defaults, and values of its own keys
        at the rate of the second stage.
        """
        points = []
        last = self.entry.trials[-1].values.get(RATE)
        for number, trial in enumerate(self.entry.trials):
            for key, value in trial.values.items():
                compared = trial.values.get(RATE) == last
                if key == RATE:
                    compared = number < self.rates
                if compared:
                    points.append((key, value, self.scores[number]))
        return points


def searches_of(
    entries: Iterable[Entry],
    setting: str,
    sign: int,
) -> list[Search]:
    """Return the searches in a setting.

    Args:
        entries: The entries of a benchmark.
        setting: The setting.
        sign: -1 if lower values of the search's metric are better, otherwise 1.
    """
    tried = [entry for entry in entries if entry.setting == setting and entry.trials]
    known = []
    for entry in tried:
        known += [sign * trial.score for trial in entry.trials if trial.score is not None]
    worst = min(
        known,
        default=0.0,
    )
    searches = []
    for entry in tried:
        scores = []
        for trial in entry.trials:
            scores.append(worst if trial.score is None else sign * trial.score)
        searches.append(Search(entry, scores))
    return searches


def expected_best(scores: Sequence[float]) -> np.ndarray:
    """Return the mean and the ends of the 95 % interval of the best of n scores [3, N].

    The n = 1 to N scores are drawn without replacement: all of them are among the i smallest of the
    N scores with probability C(i, n) / C(N, n). Dodge et al. (2019, Show your work, Sec. 3.1) draw
    with replacement, which underestimates the expected best (Tang et al., 2020).

    Args:
        scores: The scores [N], N >= 1.
    """
    count = len(scores)
    ordered = np.sort(scores)
    cumulated = np.empty((count, count))
    for n in range(count):
        for i in range(count):
            cumulated[n, i] = comb(i + 1, n + 1) / comb(count, n + 1)
    mean = np.diff(cumulated, prepend=0.0) @ ordered
    low = (cumulated > _TAIL - _ROUNDING).argmax(1)
    high = (cumulated > 1 - _TAIL - _ROUNDING).argmax(1)
    ends = ordered[low], ordered[high]
    return np.stack([mean, *ends])

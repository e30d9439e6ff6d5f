"""Finished comparisons as values: a line per setting and method, fronts within a setting, and ranks over settings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmark.comparisons import MEASURED, Comparisons
from benchmark.fronts import front_shares, on_front
from benchmark.ranks import RankTest, rank_test
from fedbench.core.metrics import metric_info


@dataclass(frozen=True)
class Number:
    """A mean over seeds.

    Attributes:
        mean: The mean.
        std: Sample standard deviation over seeds; None for a single one.
    """

    mean: float
    std: float | None


@dataclass(frozen=True)
class Line:
    """What a method has reached in a setting.

    Attributes:
        numbers: Per metric, over the seeds whose runs are done; without metrics that no such run has. That of
            ``seconds_train`` is the median, which a run on a machine that was busy or suspended does not change.
        done: Number of these seeds.
        reason: Why numbers or seeds are missing; empty if none are.
        hours: Time spent on trials and runs.
    """

    setting: str
    method: str
    numbers: dict[str, Number]
    done: int
    reason: str
    hours: float


@dataclass(frozen=True)
class Front:
    """The Pareto front of one setting by two metrics.

    Attributes:
        methods: Names of the M methods.
        x: Mean of the first metric per method; NaN where a seed is missing.
        y: Mean of the second metric per method, likewise.
        spread: Sample standard deviation of both metrics over the seeds [2, M]; NaN for a single seed.
        member: Whether the method's means are on the front.
        share: Share of bootstrap samples of the seeds in which they are.
    """

    setting: str
    metrics: tuple[str, str]
    methods: tuple[str, ...]
    x: np.ndarray
    y: np.ndarray
    spread: np.ndarray
    member: np.ndarray
    share: np.ndarray

    @property
    def names(self) -> list[str]:
        """The methods on the front, by the first metric, the best first."""
        best = metric_info(self.metrics[0]).sign * np.nan_to_num(self.x, nan=-np.inf)
        return [self.methods[i] for i in np.argsort(-best, kind="stable") if self.member[i]]


def benchmark_lines(found: Comparisons) -> list[Line]:
    """Return a line for every setting and method, in the order of the settings and by the names of the methods."""
    return [_line(found, setting, method) for setting in found.settings for method in found.methods()]


def front_of(found: Comparisons, setting: str, x: str, y: str) -> Front:
    """Return the front of a setting by two metrics, over the methods that have a run in it."""
    methods = sorted(set(found.runs["method"][found.runs["setting"] == setting]))
    a, b = (found.values(setting, metric, methods) for metric in (x, y))
    signs = metric_info(x).sign, metric_info(y).sign
    means = a.mean(0), b.mean(0)
    spread = np.stack([v.std(0, ddof=1) if len(v) > 1 else np.full(v.shape[1], np.nan) for v in (a, b)])
    member, shares = on_front(*means, *signs), front_shares(a, b, *signs)
    return Front(setting, (x, y), tuple(methods), *means, spread, member, shares)


def ranked(found: Comparisons, metric: str) -> RankTest | None:
    """Return the ranks over settings, each a block with the means over its seeds; None if there are too few to test.

    A method with a run that diverged, or none of whose trials ended well, is the worst of the setting, tied with
    others like it. Methods that were not tuned in a setting, which may refuse them, are left out: Friedman's test needs
    complete blocks.
    """
    left_out = without_ranks(found)
    able = [m for m in found.methods() if m not in left_out]
    if len(able) < 3 or len(found.settings) < 2:
        return None
    values = np.stack([found.values(setting, metric, able).mean(0) for setting in found.settings])
    return rank_test(able, values, metric_info(metric).sign)


def without_ranks(found: Comparisons) -> list[str]:
    """Return the methods that are left out of ranks because they were not tuned in every setting."""
    return [m for m in found.methods() if any(m not in t["studies"] for t in found.tuning.values())]


def _line(found: Comparisons, setting: str, method: str) -> Line:
    tuning = found.tuning[setting]
    runs = found.runs[(found.runs["setting"] == setting) & (found.runs["method"] == method)]
    good = runs[runs["outcome"] == "done"]
    study = tuning["studies"].get(method)
    seconds = float(runs["seconds"].sum()) + (study["seconds"] if study else 0.0)
    numbers = {}
    for metric in MEASURED:
        if len(known := good[metric].dropna()):
            numbers[metric] = Number(float(known.mean()), float(known.std()) if len(known) > 1 else None)
    if "bytes_up" in numbers:
        per_round = (good["bytes_up"] + good["bytes_down"]) / good["rounds"]
        numbers["bytes_per_round"] = Number(float(per_round.mean()), None)
        numbers["seconds_train"] = Number(float(good["seconds_train"].median()), None)
    outcomes = dict(zip(runs["seed"], runs["outcome"], strict=True))
    seeds = sorted(set(found.runs["seed"][found.runs["setting"] == setting]))
    states = {seed: outcomes.get(seed, "without a run") for seed in seeds}
    reason = ", ".join(f"seed {seed} {state}" for seed, state in states.items() if state != "done")
    if not outcomes:
        reason = tuning["refused"].get(method) or (
            "every trial diverged or failed" if study else "not part of this comparison"
        )
    return Line(setting, method, numbers, len(good), str(reason), seconds / 3600)

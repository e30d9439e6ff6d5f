"""What the benchmark has measured as values: a line per table, setting and method, fronts, and ranks over settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmark.comparisons import MEASURED, Comparisons
from benchmark.ranks import RankTest, rank_test
from fedbench.analysis.claims.comparison import ALPHA, Comparison
from fedbench.analysis.stats import Paired, paired, with_diverged
from fedbench.analysis.stepdown import adjusted
from fedbench.core.metrics import metric_info

BASELINE = "fedavg"
COMPARED = ("accuracy_mean", "accuracy_worst10")


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
class Lead:
    """How far a method is ahead of FedAvg, over the seeds.

    Attributes:
        found: Mean difference with its interval, and p-values.
        state: ``ahead`` or ``behind`` if the p-value for it is at most 5 %, adjusted for the number
            of methods by the step-down procedure (``fedbench.analysis.stepdown``), else ``open``.
    """

    found: Paired
    state: str


@dataclass(frozen=True)
class Line:
    """What a method has reached in a setting.

    Attributes:
        numbers: Per metric, over the seeds whose runs are done; without metrics that no such run
            has.
        leads: Per metric of ``COMPARED``, the lead over FedAvg; empty for FedAvg itself, and
            without runs.
        done: Number of these seeds.
        reason: Why numbers or seeds are missing; empty if none are.
    """

    table: str
    setting: str
    method: str
    numbers: dict[str, Number]
    leads: dict[str, Lead]
    done: int
    reason: str


@dataclass(frozen=True)
class Front:
    """The Pareto front of one setting by two metrics.

    Attributes:
        methods: Names of the M methods.
        x: Mean of the first metric per method; NaN where a seed is missing.
        y: Mean of the second metric per method, likewise.
        spread: Sample standard deviation of both metrics over the seeds [2, M]; NaN for a single
            seed.
        member: Whether the method's means are on the front.
    """

    setting: str
    metrics: tuple[str, str]
    methods: tuple[str, ...]
    x: np.ndarray
    y: np.ndarray
    spread: np.ndarray
    member: np.ndarray


def lines_of(found: Comparisons, table: str) -> list[Line]:
    """Return a line for every setting and method, in the order of the settings and by the names of the methods."""
    lines = []
    for setting in found.settings:
        leads = {metric: _leads(found, table, setting, metric) for metric in COMPARED}
        for method in found.methods(table):
            mine = {
                metric: by_method[method]
                for metric, by_method in leads.items()
                if method in by_method
            }
            lines.append(_line(found, table, setting, method, mine))
    return lines


def _leads(found: Comparisons, table: str, setting: str, metric: str) -> dict[str, Lead]:
    """Return the lead of every method that has runs over FedAvg; a run that diverged is behind (``with_diverged``)."""
    here = found.runs[(found.runs["table"] == table) & (found.runs["setting"] == setting)]
    methods = [m for m in sorted(set(here["method"])) if m != BASELINE]
    if BASELINE not in set(here["method"]):
        return {}
    values = found.values(table, setting, metric, [BASELINE, *methods])
    sign = metric_info(metric).sign
    worst = np.where(np.isnan(values), -np.inf, sign * values)
    with np.errstate(invalid="ignore"):  # NaN where both have no number
        ahead_of_base = worst[:, 1:] - worst[:, :1]
    differences = {
        method: with_diverged(dict(enumerate(map(float, lead))))
        for method, lead in zip(methods, ahead_of_base.T, strict=True)
    }
    tests = [Comparison(method, differences=d) for method, d in differences.items()]
    ahead, behind = adjusted(tests), adjusted(tests, ahead=False)
    states = [
        "ahead" if a <= ALPHA else "behind" if b <= ALPHA else "open"
        for a, b in zip(ahead, behind, strict=True)
    ]
    return {
        m: Lead(paired(d.values()), s)
        for (m, d), s in zip(differences.items(), states, strict=True)
    }


def on_front(x: np.ndarray, y: np.ndarray, sign_x: int = 1, sign_y: int = 1) -> np.ndarray:
    """Return which points are on the front: no other is at least as good in both metrics and better in one.

    Args:
        x: The first metric [M]; a point with NaN in either metric is not on the front and dominates
            none.
        y: The second metric [M].
        sign_x: 1 if higher is better, -1 if lower is.
        sign_y: Likewise for y.

    Returns:
        Booleans [M]; equal points are on the front together.
    """
    known = ~(np.isnan(x) | np.isnan(y))
    a, b = (np.where(known, s * v, -np.inf) for s, v in ((sign_x, x), (sign_y, y)))
    as_good = (a >= a[:, None]) & (b >= b[:, None])  # [point itself, every other point]
    better = (a > a[:, None]) | (b > b[:, None])
    front: np.ndarray = known & ~(as_good & better).any(1)
    return front


def front_of(found: Comparisons, table: str, setting: str, x: str, y: str) -> Front:
    """Return the front of a setting by two metrics, over the methods that have a run in it."""
    here = found.runs[(found.runs["table"] == table) & (found.runs["setting"] == setting)]
    methods = sorted(set(here["method"]))
    a, b = (found.values(table, setting, metric, methods) for metric in (x, y))
    means = a.mean(0), b.mean(0)
    spread = np.stack(
        [v.std(0, ddof=1) if len(v) > 1 else np.full(v.shape[1], np.nan) for v in (a, b)]
    )
    member = on_front(*means, metric_info(x).sign, metric_info(y).sign)
    return Front(setting, (x, y), tuple(methods), *means, spread, member)


def ranked(found: Comparisons, table: str, metric: str) -> RankTest | None:
    """Return the ranks over settings, each a block with the means over its seeds; None if there are too few to test.

    A method with a run that diverged, or none of whose trials ended well, is the worst of the
    setting, tied with others like it. Methods that a setting refuses are left out: Friedman's test
    needs complete blocks. In the table with weights by size, methods with a rule of their own have
    the numbers of the table with uniform weights.
    """
    left_out, own = without_ranks(found), found.methods("uniform")
    able = [m for m in own if m not in left_out]
    if len(able) < 3 or len(found.settings) < 2:
        return None
    here = found.methods(table)
    place = {method: table if method in here else "uniform" for method in able}
    columns = [
        [found.values(place[m], s, metric, [m]).mean() for m in able] for s in found.settings
    ]
    return rank_test(able, np.array(columns), metric_info(metric).sign)


def without_ranks(found: Comparisons) -> list[str]:
    """Return the methods that are left out of ranks because a setting refuses them."""
    return sorted({method for search in found.searches.values() for method in search["refused"]})


def _line(
    found: Comparisons, table: str, setting: str, method: str, leads: dict[str, Lead]
) -> Line:
    here = found.runs[(found.runs["table"] == table) & (found.runs["setting"] == setting)]
    runs = here[here["method"] == method]
    good = runs[runs["outcome"] == "done"]
    numbers = {}
    for metric in MEASURED:
        if len(known := good[metric].dropna()):
            numbers[metric] = Number(
                float(known.mean()), float(known.std()) if len(known) > 1 else None
            )
    if "bytes_up" in numbers:
        per_round = (good["bytes_up"] + good["bytes_down"]) / good["rounds"]
        numbers["bytes_per_round"] = Number(float(per_round.mean()), None)
    reason = _missing(
        sorted(set(here["seed"])), dict(zip(runs["seed"], runs["outcome"], strict=True))
    )
    if runs.empty:
        refused = found.searches[setting]["refused"].get(method)
        reason = str(refused or "every trial of its rates diverged or failed")
    return Line(table, setting, method, numbers, leads, len(good), reason)


def _missing(seeds: Sequence[int], outcomes: dict[int, str]) -> str:
    """Return which seeds have no numbers, and why."""
    states = {seed: outcomes.get(seed, "without a run") for seed in seeds}
    kinds = sorted({state for state in states.values() if state != "done"})
    texts = []
    for kind in kinds:
        those = [str(seed) for seed, state in states.items() if state == kind]
        texts.append(f"{'seeds' if len(those) > 1 else 'seed'} {', '.join(those)} {kind}")
    return "; ".join(texts)

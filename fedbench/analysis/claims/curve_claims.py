"""Claims about figures: comparisons of one number per run, computed from the run's curve."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import nan
from typing import Any

import numpy as np
import pandas as pd

from fedbench.analysis.claims.comparison import (
    RATIO,
    Comparison,
    above,
    aligned,
    contest,
    logs,
    scaled,
)
from fedbench.analysis.claims.table_claims import rows_of
from fedbench.analysis.curves import rounds_to
from fedbench.analysis.departures import PerUnit
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.core.metrics import lower_is_better, metric_info
from fedbench.papers.checks import (
    LESS_IS_BETTER,
    MORE_IS_BETTER,
    Curves,
    Limit,
    Selection,
)


def area(curve: pd.Series) -> float:
    """Return the mean height of a curve over its rounds (trapezoidal rule).

    For a single value, the mean is this value.
    """
    if len(curve) < 2:
        return float(curve.iloc[0])
    x = curve.index.to_numpy(float)
    integral = np.trapezoid(curve.to_numpy(), x)
    return float(integral / (x[-1] - x[0]))


def roughness(curve: pd.Series) -> float:
    """Return the variance of the changes from one evaluated round to the next.

    The variance is NaN for fewer than two changes.
    """
    changes = np.diff(curve.to_numpy())
    return float(np.var(changes)) if len(changes) > 1 else nan


def setbacks(curve: pd.Series) -> float:
    """Return the mean fall from one evaluated round to the next; NaN for fewer than two changes.

    A rise counts as 0, so the mean is 0 for a curve that never falls, however fast it rises.
    """
    falls = -np.diff(curve.to_numpy())
    return float(falls.clip(min=0).mean()) if len(falls) > 1 else nan


def early(curve: pd.Series) -> pd.Series:
    """Return the first tenth of a curve, but at least its first three points."""
    length = max(3, len(curve) // 10)
    return curve.iloc[:length]


def tail(curve: pd.Series) -> float:
    """Return the mean over the last tenth of a curve."""
    length = max(1, len(curve) // 10)
    return float(curve.iloc[-length:].mean())


def decline(curve: pd.Series) -> float:
    """Return the mean over the last tenth of a curve as a share of its first value."""
    return tail(curve) / float(curve.iloc[0])


_OF_CURVE: dict[str, Callable[[pd.Series], float]] = {
    "area": area,
    "roughness": roughness,
    "tail": tail,
    "decline": decline,
    "setbacks": setbacks,
    "setbacks_early": lambda curve: setbacks(early(curve)),
}
_LABELS = {
    "area": "mean over rounds",
    "final": "final value",
    "tail": "mean over the last tenth",
    "rounds": "rounds to a common target",
    "rounds_pairwise": "rounds to the best of both",
    "cka": "mean CKA",
    "below": "share of clients below the threshold",
    "at_least": "share of clients at the threshold or above",
    "setbacks_early": "early setbacks",
}
_SCALES = {  # scales of measures that are not in their field's unit
    "rounds": (1.0, RATIO),
    "rounds_pairwise": (1.0, RATIO),
    "below": (100.0, "points"),
    "at_least": (100.0, "points"),
}


def figure_runs(
    evidence: Evidence,
    name: str,
    setups: Sequence[str] = (),
) -> dict[str, list[MatchedRuns]]:
    """Return the runs of a figure by setup, for the given setups or, by default, for all."""
    paper = evidence.paper
    return {
        setup: evidence.comparable(rows_of(paper, name, setup))
        for setup in setups or paper.figures[name].setups
    }


def selected(shown: Sequence[MatchedRuns], *selections: Selection) -> list[MatchedRuns]:
    """Return the runs that match selections, in the order of the selections."""
    fitting = (runs for selection in selections for runs in shown if selection.fits(runs.row))
    return list(dict.fromkeys(fitting))


def runs_of(shown: Sequence[MatchedRuns], algo: str, **hyper: Any) -> MatchedRuns:
    """Return the runs of the first row of a method with the given hyperparameters."""
    return selected(shown, Selection(algo, hyper))[0]


# ---- measures of runs


def measured(
    runs: MatchedRuns,
    measure: str,
    field: str,
    threshold: float | None = None,
) -> PerUnit:
    """Return a measure of runs by unit, in the shown unit; empty if the runs lack it.

    Args:
        runs: The runs.
        measure: A check's measure that needs no other runs.
        field: The field of the curve.
        threshold: Accuracy threshold for the measures ``below`` and ``at_least``.
    """
    factor, _ = _scale(measure, field)
    if measure in ("below", "at_least"):
        assert threshold is not None
        numbers = _share(runs, threshold, measure == "below")
    elif measure == "cka":
        numbers = _mean_cka(runs)
    elif measure == "final":
        numbers = runs.final(field)
    else:
        of_curve = _OF_CURVE[measure]
        better = metric_info(field).sign if measure.startswith("setbacks") else 1
        curves = runs.curve(field)
        numbers = {unit: of_curve(better * curve) for unit, curve in curves.items()}
    return scaled(numbers, factor)


def _scale(measure: str, field: str) -> tuple[float, str]:
    """Return the factor from a measure's unit to the shown unit, and the unit of differences."""
    if measure in ("area", "final", "tail", "setbacks", "setbacks_early"):
        metric = metric_info(field)
        return metric.factor, metric.difference_unit
    return _SCALES.get(measure, (1.0, ""))


def _share(
    runs: MatchedRuns,
    threshold: float,
    below: bool,
) -> PerUnit:
    """Return the share of clients with a final accuracy below, or not below, a threshold.

    Only the last round contains accuracies of clients.
    """
    if runs.reading.round == "best" or runs.reading.weighting == "weighted":
        return {}
    shares = {}
    for unit, run in runs.runs.items():
        accuracy = run.last_clients()["accuracy"].dropna()
        counted = (accuracy < threshold) == below
        shares[unit] = float(counted.mean())
    return shares


def _mean_cka(runs: MatchedRuns) -> PerUnit:
    """Return the mean similarity (linear CKA) between different clients' final first moments.

    Moments are available only for the last round.
    """
    if runs.reading.round == "best":
        return {}
    means = {}
    for unit, run in runs.runs.items():
        document = run.document("moments")
        if document:
            cka = np.array(document["cka"], float)  # [K, K]
            pairs = cka[~np.eye(len(cka), dtype=bool)]
            known = pairs[np.isfinite(pairs)]
            if len(known):
                means[unit] = float(known.mean())
    return means


def _rounds_to_common(sides: Sequence[MatchedRuns], field: str) -> dict[MatchedRuns, PerUnit]:
    """Return, per unit, the rounds to the best value that every method reaches.

    The target depends on the methods that were run, so only units with runs of every method are
    used. Diverged runs do not affect the target.
    """
    sign = metric_info(field).sign
    curves = {runs: runs.curve(field) for runs in sides}
    needed: dict[MatchedRuns, PerUnit] = {runs: {} for runs in sides}
    for unit in set().union(*curves.values()):
        if not all(unit in curves[runs] or unit in runs.diverged for runs in sides):
            continue
        rising = {}
        for runs, by_unit in curves.items():
            if unit in by_unit:
                rising[runs] = sign * by_unit[unit]
        target = min(curve.max() for curve in rising.values())
        for runs, curve in rising.items():
            needed[runs][unit] = rounds_to(curve, target, lower=False)
    return needed


# ---- checks


def curve_comparisons(evidence: Evidence, check: Curves) -> Iterator[Comparison]:
    """Yield comparisons between runs of a figure in a measure of their curves."""
    for shown in figure_runs(evidence, check.figure, check.setups).values():
        better = selected(shown, *check.better)
        others = selected(shown, *check.worse)
        worse = [runs for runs in others if runs not in better]
        pairs = product(check.measure, check.fields, better, worse)
        for measure, field, one, two in pairs:
            rivals = [*better, *worse]
            if measure == "rounds_pairwise":
                rivals = [one, two]
            yield _compared(check, measure, field, one, two, rivals)


def _compared(
    check: Curves,
    measure: str,
    field: str,
    one: MatchedRuns,
    two: MatchedRuns,
    rivals: Sequence[MatchedRuns],
) -> Comparison:
    """Return the comparison of two rows of a figure in a measure.

    For the measures ``rounds`` and ``rounds_pairwise``, all ``rivals`` have a common target, and
    numbers of rounds are compared by their logarithms.
    """
    if measure in ("rounds", "rounds_pairwise"):
        rounds = _rounds_to_common(rivals, field)
        first = logs(rounds[one])
        second = logs(rounds[two], check.share or 1.0)
    else:
        first = measured(one, measure, field, check.threshold)
        second = measured(two, measure, field, check.threshold)
        second = scaled(second, check.share or 1.0)
    lower = lower_is_better(field) and measure not in MORE_IS_BETTER
    sign = -1.0 if lower or measure in LESS_IS_BETTER else 1.0

    label = check.label
    if not label:
        times = f"{check.share:g} times that of " if check.share else ""
        quantity = f"{_LABELS.get(measure, measure)} of {metric_info(field).label}"
        label = f"{quantity} of {one.name} against {times}{two.name} on {one.setup}"
    comparison = contest(
        label,
        first,
        second,
        sign,
        one,
        two,
        margin=-check.by,
    )
    _, unit = _scale(measure, field)
    return replace(comparison, unit=unit)


def limit_comparisons(evidence: Evidence, check: Limit) -> Iterator[Comparison]:
    """Yield comparisons of a measure with a bound, for some runs of a figure."""
    factor, unit = _scale(check.measure, check.field)
    if check.at_most is not None:
        sign, side = -1.0, "below"
        bound = factor * check.at_most
    else:
        assert check.at_least is not None
        sign, side = 1.0, "above"
        bound = factor * check.at_least
    quantity = f"{metric_info(check.field).label} ({_LABELS.get(check.measure, check.measure)})"
    for shown in figure_runs(evidence, check.figure).values():
        for runs in selected(shown, *check.methods):
            sides = [runs]
            if check.reference is None:
                numbers = measured(runs, check.measure, check.field)
            else:
                sides += selected(shown, check.reference)[:1]
                numbers = _ratio(sides, check.field)
            label = f"{quantity} of {runs.name} {side} {bound:g} on {runs.setup}"
            room = scaled(numbers, sign, -sign * bound)
            yield replace(above(label, room, sides), unit=unit)


def _ratio(sides: Sequence[MatchedRuns], field: str) -> PerUnit:
    """Return the ratio of the last values of a field in two rows.

    The field is a sum over rounds, so its last value is used even if the reading takes other
    metrics from best rounds.
    """
    curves = aligned(*(runs.curve(field) for runs in sides))
    ratios = {}
    for unit, (one, two) in curves.items():
        ratios[unit] = float(one.iloc[-1] / two.iloc[-1])
    return ratios

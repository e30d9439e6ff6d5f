"""Claims about figures, as comparisons of one number per run, computed from its curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from fedbench.analysis.claims.comparison import Comparison, above, contest
from fedbench.analysis.curves import rounds_to
from fedbench.analysis.departures import Unit
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.core.errors import RequestError
from fedbench.core.metrics import lower_is_better, metric_info
from fedbench.papers.checks import LESS_IS_BETTER, MORE_IS_BETTER, Curves, Limit, Selection
from fedbench.papers.schema import Paper

PerUnit = dict[Unit, float]


def area(curve: pd.Series) -> float:
    """Return the mean height of a curve over its rounds (trapezoid rule); its only value if it has one."""
    if len(curve) < 2:
        return float(curve.iloc[0])
    x = curve.index.to_numpy(float)
    return float(np.trapezoid(curve.to_numpy(), x) / (x[-1] - x[0]))


def roughness(curve: pd.Series) -> float:
    """Return the variance of the changes from one evaluated round to the next; NaN for fewer than two changes."""
    return float(np.var(np.diff(curve.to_numpy()))) if len(curve) > 2 else float("nan")


def setbacks(curve: pd.Series, lower: bool) -> float:
    """Return the mean change for the worse from one evaluated round to the next; NaN for fewer than two changes.

    A change for the better counts as 0, so that a curve without a setback has 0 however fast it improves.
    """
    changes = np.diff(curve.to_numpy())
    return float(np.clip(changes if lower else -changes, 0, None).mean()) if len(changes) > 1 else float("nan")


def early(curve: pd.Series) -> pd.Series:
    """Return the first tenth of a curve, but at least its first three points."""
    return curve.iloc[: max(3, len(curve) // 10)]


def tail(curve: pd.Series) -> float:
    """Return the mean over the last tenth of a curve."""
    return float(curve.iloc[-max(1, len(curve) // 10) :].mean())


def decline(curve: pd.Series) -> float:
    """Return the mean over the last tenth of a curve as a share of its first value."""
    return tail(curve) / float(curve.iloc[0])


# measures of a curve, some of which depend on whether less of the field is better
_OF_CURVE: dict[str, Callable[[pd.Series, bool], float]] = {
    "area": lambda c, _: area(c),
    "roughness": lambda c, _: roughness(c),
    "tail": lambda c, _: tail(c),
    "decline": lambda c, _: decline(c),
    "setbacks": setbacks,
    "setbacks_early": lambda c, lower: setbacks(early(c), lower),
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


class FigureRuns:
    """The runs that a figure shows on some of its setups or on all: ``found`` has those of each row, by its index."""

    def __init__(self, paper: Paper, figure: str, evidence: Evidence, setups: Sequence[str] = ()) -> None:
        self.paper, self.figure = paper, paper.figures[figure]
        self.found: dict[int, MatchedRuns] = {}
        for setup in dict.fromkeys(r.setup for r in self.figure.rows if not setups or r.setup in setups):
            here = [i for i, r in enumerate(self.figure.rows) if r.setup == setup]
            found = evidence.comparable(paper, [self.figure.rows[i] for i in here])
            self.found |= dict(zip(here, found, strict=True))

    def rows(self, setup: str, selections: Sequence[Selection], excluding: Sequence[int] = ()) -> list[int]:
        """Return the indices of the rows of a setup that selections name, except those in ``excluding``."""
        here = [i for i, r in enumerate(self.figure.rows) if r.setup == setup and i not in excluding]
        return list(dict.fromkeys(i for s in selections for i in here if s.fits(self.figure.rows[i])))

    def row(self, setup: str, algo: str, **hyper: Any) -> int:
        """Return the index of the first row of a method with the given hyperparameters.

        Raises:
            RequestError: If there is none.
        """
        found = self.rows(setup, [Selection(algo, hyper)])
        if not found:
            given = "".join(f" with {k} {v}" for k, v in hyper.items())
            raise RequestError(f"{self.figure.id} has no run of {algo}{given} on {setup}")
        return found[0]

    def of(self, *rows: int) -> tuple[MatchedRuns, ...]:
        """Return the runs of some rows."""
        return tuple(self.found[i] for i in rows)

    def name(self, i: int) -> str:
        """Return a row's name."""
        row = self.figure.rows[i]
        hyper = " ".join(f"{k}={v}" for k, v in row.hyperparameters.items())
        return f"{self.paper.methods[row.algo].label} {hyper}".rstrip()


def curve_comparisons(paper: Paper, check: Curves, evidence: Evidence) -> list[Comparison]:
    """Return comparisons of some runs of a figure with others in a measure of their curves."""
    shown = FigureRuns(paper, check.figure, evidence, check.setups)
    times_of, times = ("", 1.0) if check.share is None else (f"{check.share:g} times that of ", check.share)
    out = []
    for setup in check.setups or shown.figure.setups:
        better = shown.rows(setup, check.better)
        worse = shown.rows(setup, check.worse, excluding=better)
        for measure, field in product(check.measure, check.fields):
            what = f"{_LABELS.get(measure, measure)} of {metric_info(field).label}"
            lower = measure in LESS_IS_BETTER or (measure not in MORE_IS_BETTER and lower_is_better(field))
            factor, unit = _scale(measure, field)
            every = _measured(shown, [*better, *worse], measure, field, check.threshold)
            for a, b in product(better, worse):
                pairwise = measure == "rounds_pairwise"
                numbers = _measured(shown, (a, b), measure, field, check.threshold) if pairwise else every
                sides = f"{shown.name(a)} against {times_of}{shown.name(b)}"
                label = check.label or f"{what} of {sides} on {paper.setups[setup].title}"
                one = {u: factor * v for u, v in numbers[a].items()}
                two = {u: factor * times * v for u, v in numbers[b].items()}
                found = contest(label, one, two, -1.0 if lower else 1.0, *shown.of(a, b), margin=-check.by)
                out.append(replace(found, unit=unit))
    return out


def _scale(measure: str, field: str) -> tuple[float, str]:
    """Return the factor from the unit of a measure to the shown one, and the unit of differences."""
    if measure in ("rounds", "rounds_pairwise"):
        return 1.0, "rounds"
    if measure in ("below", "at_least"):
        return 100.0, "points"
    if measure in ("area", "final", "tail", "setbacks", "setbacks_early"):
        return metric_info(field).factor, metric_info(field).difference_unit
    return 1.0, ""


def _measured(
    shown: FigureRuns, rows: Sequence[int], measure: str, field: str, threshold: float | None
) -> dict[int, PerUnit]:
    """Return the numbers of rows by unit."""
    found = {i: shown.found[i] for i in rows}
    if measure in ("below", "at_least"):
        assert threshold is not None
        return {i: _share(f, threshold, measure == "below") for i, f in found.items()}
    if measure == "cka":
        return {i: _mean_cka(f) for i, f in found.items()}
    if measure == "final":
        return {i: f.final(field) for i, f in found.items()}
    curves, lower = {i: f.curve(field) for i, f in found.items()}, lower_is_better(field)
    if measure in ("rounds", "rounds_pairwise"):
        return _rounds_to_common(curves, {i: f.diverged for i, f in found.items()}, lower)
    of_curve = _OF_CURVE[measure]
    return {i: {s: of_curve(c, lower) for s, c in by_unit.items()} for i, by_unit in curves.items()}


def _share(found: MatchedRuns, threshold: float, below: bool) -> PerUnit:
    """Return the share of clients whose accuracy at the end, the only round with clients, is below or not."""
    if found.reading.round == "best" or found.reading.weighting == "weighted":
        return {}
    last = {seed: run.clients_at()["accuracy"].dropna() for seed, run in found.runs.items()}
    return {seed: float(((accuracy < threshold) == below).mean()) for seed, accuracy in last.items()}


def _rounds_to_common(
    curves: dict[int, dict[Unit, pd.Series]], lost: dict[int, set[Unit]], lower: bool
) -> dict[int, PerUnit]:
    """Return, per unit, the rounds to the best value that every method reaches.

    The target depends on which methods have run, so only units with runs of every method count. A run that diverged
    does not affect the target.
    """
    out: dict[int, PerUnit] = {i: {} for i in curves}
    for seed in set().union(*curves.values()):
        if not all(seed in c or seed in lost[i] for i, c in curves.items()):
            continue
        present = {i: c[seed] for i, c in curves.items() if seed in c}
        best = [c.min() if lower else c.max() for c in present.values()]
        target = max(best) if lower else min(best)
        for i, c in present.items():
            out[i][seed] = rounds_to(c, target, lower)
    return out


def moments(found: MatchedRuns) -> dict[Unit, np.ndarray]:
    """Return the similarity (linear CKA) of the clients' first moments at the end, [K, K] per unit."""
    return {s: np.array(m["cka"], float) for s, run in found.runs.items() if (m := run.document("moments")) is not None}


def _mean_cka(found: MatchedRuns) -> PerUnit:
    """Return the mean CKA of the first moments of different clients at the end, the only round with moments."""
    if found.reading.round == "best":
        return {}
    pairs = {s: m[~np.eye(len(m), dtype=bool)] for s, m in moments(found).items()}
    return {s: float(np.nanmean(m)) for s, m in pairs.items() if np.isfinite(m).any()}


def limit_comparisons(paper: Paper, check: Limit, evidence: Evidence) -> list[Comparison]:
    """Return comparisons of a measure of some runs of a figure with a bound."""
    shown = FigureRuns(paper, check.figure, evidence)
    sign, word, bound = (1.0, "at least", check.at_least) if check.at_most is None else (-1.0, "at most", check.at_most)
    assert bound is not None
    what = f"{metric_info(check.field).label} ({_LABELS.get(check.measure, check.measure)})"
    factor, unit = _scale(check.measure, check.field)
    out = []
    for setup in shown.figure.setups:
        for i in shown.rows(setup, check.methods):
            j = i if check.reference is None else shown.rows(setup, [check.reference])[0]
            numbers = _limited(shown.of(i, j), check.measure, check.field)
            label = f"{what} of {shown.name(i)} {word} {factor * bound:g} on {paper.setups[setup].title}"
            found = above(label, {s: sign * factor * (v - bound) for s, v in numbers.items()}, shown.of(i, j))
            out.append(replace(found, unit=unit))
    return out


def _limited(found: Sequence[MatchedRuns], measure: str, field: str) -> PerUnit:
    if measure == "seconds_over":
        first, second = (f.curve(field) for f in found)  # a sum over rounds: its best value is not that of the run
        return {s: float(first[s].iloc[-1] / second[s].iloc[-1]) for s in first.keys() & second.keys()}
    return {s: _OF_CURVE[measure](c, lower_is_better(field)) for s, c in found[0].curve(field).items()}


def low_and_high(clients: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return the training losses over rounds of the clients whose first loss is the lowest and the highest."""
    table = clients.pivot(index="round", columns="client", values="train_loss").dropna(axis=1)
    first = table.iloc[0]
    return table[first.idxmin()], table[first.idxmax()]

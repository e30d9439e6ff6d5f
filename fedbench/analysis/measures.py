"""Claims about figures, as comparisons of one number per run that is taken from its curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
import pandas as pd

from fedbench.analysis.comparison import Comparison, above, best_of, compared, contest, worst_of
from fedbench.analysis.matching import Evidence, Found, lower_is_better
from fedbench.core.trees import listed
from fedbench.papers.registry import Figure, Paper, Row

PerSeed = dict[int, float]


def area(curve: pd.Series) -> float:
    """Return the mean height of a curve over its rounds (trapezoid rule); its only value if it has one."""
    if len(curve) < 2:
        return float(curve.iloc[0])
    x = curve.index.to_numpy(float)
    return float(np.trapezoid(curve.to_numpy(), x) / (x[-1] - x[0]))


def roughness(curve: pd.Series) -> float:
    """Return the variance of the changes from one evaluated round to the next; NaN for fewer than two changes."""
    return float(np.var(np.diff(curve.to_numpy()))) if len(curve) > 2 else float("nan")


def early(curve: pd.Series) -> pd.Series:
    """Return the first tenth of a curve, but at least its first three points."""
    return curve.iloc[: max(3, len(curve) // 10)]


def tail(curve: pd.Series) -> float:
    """Return the mean over the last tenth of a curve."""
    return float(curve.iloc[-max(1, len(curve) // 10) :].mean())


def decline(curve: pd.Series) -> float:
    """Return the mean over the last tenth of a curve as a share of its first value."""
    return tail(curve) / float(curve.iloc[0])


def rounds_to(curve: pd.Series, target: float, lower: bool) -> float:
    """Return the first evaluated round at which a curve has reached a target; infinite if it never does."""
    reached = curve.index[(curve <= target) if lower else (curve >= target)]
    return float(reached[0]) if len(reached) else float("inf")


# measure -> (number of a curve, whether lower is better; None: as for the field)
_OF_CURVE: dict[str, tuple[Callable[[pd.Series], float], bool | None]] = {
    "area": (area, None),
    "final": (lambda c: float(c.iloc[-1]), None),
    "roughness": (roughness, True),
    "roughness_early": (lambda c: roughness(early(c)), True),
}


MEASURES = {
    "curves": (*_OF_CURVE, "rounds", "below", "cka"),
    "curve_steps": tuple(_OF_CURVE),
    "limit": ("tail", "decline", "seconds_over"),
}


class _Shown:
    """The runs that a figure shows."""

    def __init__(self, paper: Paper, figure: Figure, evidence: Evidence) -> None:
        self.paper, self.figure = paper, figure
        self._found: dict[int, Found] = {}
        for setup in dict.fromkeys(r.setup for r in figure.rows):
            here = [i for i, r in enumerate(figure.rows) if r.setup == setup]
            found = evidence.alike(paper, [figure.rows[i] for i in here])
            self._found |= dict(zip(here, found, strict=True))

    def rows(self, setup: str, spec: Any, but: Sequence[int] = ()) -> list[int]:
        """Return the indices of the rows of a setup that a specification names: an algorithm, a row, or others."""
        here = [i for i, r in enumerate(self.figure.rows) if r.setup == setup and i not in but]
        if spec in ("others", "all"):
            return here
        if isinstance(spec, list | tuple):
            return [i for part in spec for i in self.rows(setup, part)]
        wanted = {"algo": spec} if isinstance(spec, str) else dict(spec)
        algo = wanted.pop("algo")
        return [i for i in here if self.figure.rows[i].algo == algo and _has(self.figure.rows[i], wanted)]

    def found(self, i: int) -> Found:
        """Return the runs of a row."""
        return self._found[i]

    def both(self, *rows: int) -> tuple[Found, ...]:
        """Return the runs of some rows."""
        return tuple(self._found[i] for i in rows)

    def name(self, i: int) -> str:
        """Return a row's name."""
        row = self.figure.rows[i]
        hyper = " ".join(f"{k}={v}" for k, v in row.hyperparameters.items())
        return f"{self.paper.methods[row.algo].label} {hyper}".rstrip()


def _has(row: Row, wanted: Mapping[str, Any]) -> bool:
    return all(row.hyperparameters.get(k) == v for k, v in wanted.items())


def curve_comparisons(paper: Paper, check: Mapping[str, Any], evidence: Evidence) -> list[Comparison]:
    """Return the comparisons that some methods of a figure are ahead of others in a measure of their curves."""
    figure = paper.figures[check["figure"]]
    shown = _Shown(paper, figure, evidence)
    out = []
    for setup in check.get("setups", figure.setups):
        better = shown.rows(setup, check["better"])
        worse = shown.rows(setup, check["worse"], but=better)
        for measure, field in product(listed(check["measure"]), check["fields"]):
            numbers, lower = _measured(shown, [*better, *worse], {**check, "measure": measure}, field)
            out += [
                contest(
                    f"{_words(measure)} of {field} of {shown.name(a)} against {shown.name(b)} "
                    f"on {paper.setups[setup].title}",
                    numbers[a],
                    numbers[b],
                    -1.0 if lower else 1.0,
                    *shown.both(a, b),
                )
                for a in better
                for b in worse
            ]
    return out


def _words(measure: str) -> str:
    return {
        "area": "mean over rounds",
        "final": "final value",
        "rounds": "rounds to a common target",
        "cka": "mean CKA",
        "below": "share of clients below the threshold",
        "roughness_early": "early roughness",
    }.get(measure, measure)


def _measured(shown: _Shown, rows: list[int], check: Mapping[str, Any], field: str) -> tuple[dict[int, PerSeed], bool]:
    measure = check["measure"]
    if measure == "below":
        return {i: _below(shown.found(i), check["threshold"]) for i in rows}, True
    if measure == "cka":
        return {i: _alike(shown.found(i)) for i in rows}, False
    curves = {i: shown.found(i).curve(field) for i in rows}
    if measure == "rounds":
        lost = {i: shown.found(i).diverged for i in rows}
        return _rounds_to_common(curves, lost, lower_is_better(field)), True
    of, lower = _OF_CURVE[measure]
    numbers = {i: {s: of(c) for s, c in by_seed.items()} for i, by_seed in curves.items()}
    return numbers, lower_is_better(field) if lower is None else lower


def _below(found: Found, threshold: float) -> PerSeed:
    """Return the share of clients with an accuracy below the threshold at the end."""
    shares = {}
    for seed, run in found.runs.items():
        clients = run.clients()
        accuracy = clients[clients["round"] == clients["round"].max()]["accuracy"].dropna()
        shares[seed] = float((accuracy < threshold).mean())
    return shares


def _rounds_to_common(
    curves: dict[int, dict[int, pd.Series]], lost: dict[int, set[int]], lower: bool
) -> dict[int, PerSeed]:
    """Return the rounds to the best value that even the slowest of the methods reaches with a seed.

    The target would change with who is there: only seeds with which every method has run count, and a run that diverged
    has no part in the target.
    """
    out: dict[int, PerSeed] = {i: {} for i in curves}
    for seed in set().union(*curves.values()):
        if not all(seed in c or seed in lost[i] for i, c in curves.items()):
            continue
        present = {i: c[seed] for i, c in curves.items() if seed in c}
        best = [c.min() if lower else c.max() for c in present.values()]
        target = max(best) if lower else min(best)
        for i, c in present.items():
            out[i][seed] = rounds_to(c, target, lower)
    return out


def moments(found: Found) -> dict[int, np.ndarray]:
    """Return how alike the clients' first moments were at the end, [K, K] per seed."""
    return {s: np.array(m["cka"], float) for s, run in found.runs.items() if (m := run.moments()) is not None}


def _alike(found: Found) -> PerSeed:
    """Return the mean CKA of different clients' first moments."""
    pairs = {s: m[~np.eye(len(m), dtype=bool)] for s, m in moments(found).items()}
    return {s: float(np.nanmean(m)) for s, m in pairs.items() if np.isfinite(m).any()}


def special_comparisons(paper: Paper, check: Mapping[str, Any], evidence: Evidence) -> list[Comparison]:
    """Return the comparisons of the kinds that only one or two claims need."""
    shown = _Shown(paper, paper.figures[check["figure"]], evidence)
    return _SPECIAL[check["kind"]](shown, check)


def _runs(shown: _Shown, check: Mapping[str, Any]) -> list[Comparison]:
    """Final values of runs with other hyperparameters."""
    out = [_steeper(shown, check["setup"], s) for s in check.get("steeper", ())]
    for pair in check["pairs"]:
        low, high = (shown.rows(check["setup"], pair[k])[0] for k in ("lower", "higher"))
        label = f"{pair['field']} of {shown.name(high)} above that of {shown.name(low)}"
        a, b = (_final(shown.found(i), pair["field"]) for i in (high, low))
        out.append(compared(label, a, b, 1.0, shown.both(low, high)))
    return out


def _steeper(shown: _Shown, setup: str, spec: Mapping[str, Any]) -> Comparison:
    """A field falls more from the first to the second value of a parameter than from the second to the third."""
    rows = [shown.rows(setup, {"algo": spec["algo"], spec["parameter"]: v})[0] for v in spec["values"]]
    a, b, c = (_final(shown.found(i), spec["field"]) for i in rows)
    first, second = ({s: x[s] - y[s] for s in x.keys() & y.keys()} for x, y in ((a, b), (b, c)))
    one, two, three = (f"{v:g}" for v in spec["values"])
    label = f"fall of {spec['field']} from {spec['parameter']} {one} to {two} beyond that from {two} to {three}"
    return compared(label, first, second, 1.0, shown.both(*rows))


def _final(found: Found, field: str) -> PerSeed:
    return {s: float(c.iloc[-1]) for s, c in found.curve(field).items()}


def _dominance(shown: _Shown, check: Mapping[str, Any]) -> list[Comparison]:
    """Each method is worse in both fields than some point of the front."""
    front, out = shown.rows(check["setup"], check["front"]), []
    for algo in check["dominated"]:
        i = shown.rows(check["setup"], algo)[0]
        points = []
        for f in front:
            parts = [
                contest(field, _final(shown.found(f), field), _final(shown.found(i), field), -1.0, *shown.both(f, i))
                for field in check["fields"]
            ]
            points.append(worst_of(f"{shown.name(f)} below {shown.name(i)} in {' and '.join(check['fields'])}", parts))
        out.append(best_of(f"some point of the front below {shown.name(i)}", points))
    return out


def _symmetric(shown: _Shown, check: Mapping[str, Any]) -> list[Comparison]:
    """Values at mirrored parameters differ by less than a margin (two one-sided tests)."""
    out = []
    for a, b in check["pairs"]:
        i, j = (shown.rows(check["setup"], {"algo": check["algo"], check["parameter"]: v})[0] for v in (a, b))
        one, two = (_final(shown.found(k), check["field"]) for k in (i, j))
        label = f"{check['field']} at {check['parameter']} {a:g} and {b:g} within {check['margin']:g}"
        seeds = one.keys() & two.keys()
        room = [{s: check["margin"] - sign * (one[s] - two[s]) for s in seeds} for sign in (1, -1)]
        out.append(worst_of(label, [above(label, r, shown.both(i, j)) for r in room]))
    return out


def _limit(shown: _Shown, check: Mapping[str, Any]) -> list[Comparison]:
    """A measure of a method's curve stays on one side of a bound."""
    bound = check.get("at_least", check.get("at_most"))
    sign, word = (1.0, "at least") if "at_least" in check else (-1.0, "at most")
    out = []
    for setup in shown.figure.setups:
        for i in shown.rows(setup, check["methods"]):
            j = shown.rows(setup, check["reference"])[0] if "reference" in check else i
            numbers = _limited(shown.both(i, j), check["measure"], check["field"])
            title = shown.paper.setups[setup].title
            label = f"{check['field']} ({check['measure']}) of {shown.name(i)} {word} {bound:g} on {title}"
            out.append(above(label, {s: sign * (v - bound) for s, v in numbers.items()}, shown.both(i, j)))
    return out


def _limited(found: Sequence[Found], measure: str, field: str) -> PerSeed:
    if measure == "seconds_over":
        mine, other = (_final(f, field) for f in found)
        return {s: mine[s] / other[s] for s in mine.keys() & other.keys()}
    of = {"tail": tail, "decline": decline}[measure]
    return {s: of(c) for s, c in found[0].curve(field).items()}


def _rounds_to_target(shown: _Shown, check: Mapping[str, Any]) -> list[Comparison]:
    """The method reaches a target within so many rounds, the others need so many at least."""
    out = []
    for i in shown.rows(check["setup"], "all"):
        mine = shown.figure.rows[i].algo == check["algo"]
        needed = {s: rounds_to(c, check["target"], False) for s, c in shown.found(i).curve(check["field"]).items()}
        last = {s: float(c.index[-1]) for s, c in shown.found(i).curve(check["field"]).items()}
        sign, word, bound = (-1.0, "at most", check["rounds"]) if mine else (1.0, "at least", check["others_rounds"])
        bound -= sign * 0.1 * bound  # the paper reads its numbers off a picture
        if any(np.isinf(v) and last[s] <= bound for s, v in needed.items()):
            needed = {}  # stopped before the bound: nothing can be said
        capped = {s: min(v, last[s]) for s, v in needed.items()}
        label = f"rounds of {shown.name(i)} to {100 * check['target']:g} % {word} {bound:g}"
        out.append(above(label, {s: sign * (v - bound) for s, v in capped.items()}, [shown.found(i)]))
    return out


def _two_clients(shown: _Shown, check: Mapping[str, Any]) -> list[Comparison]:
    """The client with the highest loss at first gains more, and ends near the one with the lowest."""
    out = []
    for setup in shown.figure.setups:
        found = shown.found(shown.rows(setup, check["algo"])[0])
        every = {s: low_and_high(run.clients()) for s, run in found.runs.items()}
        pairs = {s: pair for s, pair in every.items() if len(pair[0]) > 1}  # the last round alone shows no course
        title = shown.paper.setups[setup].title
        drop = {s: (h.iloc[0] - h.iloc[-1]) - (low.iloc[0] - low.iloc[-1]) for s, (low, h) in pairs.items()}
        close = {s: (h.iloc[0] - low.iloc[0]) / 2 - abs(h.iloc[-1] - low.iloc[-1]) for s, (low, h) in pairs.items()}
        out.append(above(f"the drop of the high loss beyond that of the low one on {title}", drop, [found]))
        out.append(above(f"the final gap below half of the first on {title}", close, [found]))
    return out


def low_and_high(clients: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return the training losses over rounds of the clients with the lowest and the highest one at first."""
    table = clients.pivot(index="round", columns="client", values="train_loss").dropna(axis=1)
    first = table.iloc[0]
    return table[first.idxmin()], table[first.idxmax()]


def _curve_steps(shown: _Shown, check: Mapping[str, Any]) -> list[Comparison]:
    """A measure of one method's curves rises, or falls, from setup to setup."""
    of, _ = _OF_CURVE[check["measure"]]
    rows = [shown.rows(setup, check["algo"])[0] for setup in check["order"]]
    out = []
    for i, j in pairwise(rows):
        a, b = ({s: of(c) for s, c in shown.found(k).curve(check["field"]).items()} for k in (i, j))
        names = [shown.paper.setups[shown.figure.rows[k].setup].title for k in (i, j)]
        rising = check["trend"] == "increasing"
        label = f"{check['measure']} on {names[1]} {'above' if rising else 'below'} that on {names[0]}"
        out.append(compared(label, b, a, 1.0 if rising else -1.0, shown.both(i, j)))
    return out


_SPECIAL: dict[str, Callable[[_Shown, Mapping[str, Any]], list[Comparison]]] = {
    "runs": _runs,
    "dominance": _dominance,
    "symmetric": _symmetric,
    "limit": _limit,
    "rounds_to_target": _rounds_to_target,
    "two_clients": _two_clients,
    "curve_steps": _curve_steps,
}

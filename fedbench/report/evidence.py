"""Which runs on disk stand for which row of a paper's table, and what they have measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fedbench.papers.registry import Metric, Paper, Row, Setup
from fedbench.store import Run
from fedbench.trees import leaves

# what a reduced run may change and still stand for a row; any other change makes it a run of something else
_AMOUNTS = ("rounds", "local.epochs", "local.steps")  # and these only downwards
_REDUCIBLE = (*_AMOUNTS, "participation", "model.", "engine.")
_LESS_DATA = ("data.clients", *(f"data.source.{k}" for k in ("clients", "images", "first", "min_samples")))
# measures derived from those of rounds.jsonl
_DERIVED: dict[str, tuple[tuple[str, ...], Callable[..., pd.Series]]] = {
    "error_mean": (("accuracy_mean",), lambda mean: 1 - mean),
    "error_rsd": (("accuracy_std", "accuracy_mean"), lambda std, mean: std / (1 - mean)),
    "error_mean_weighted": (("accuracy_mean_weighted",), lambda mean: 1 - mean),
    "error_rsd_weighted": (("accuracy_std_weighted", "accuracy_mean_weighted"), lambda std, mean: std / (1 - mean)),
    "train_perplexity": (("train_loss",), np.exp),
}
LOWER_IS_BETTER = (
    "error",
    "train_",
    "test_loss",
    "accuracy_std",
    "accuracy_variance",
    "angle",
    "kl",
    "update",
    "second",
)


def lower_is_better(field: str) -> bool:
    """Say which direction of a field of ``rounds.jsonl``, or of one derived from it, is the better one."""
    return field.startswith(LOWER_IS_BETTER)


@dataclass(frozen=True)
class Found:
    """The runs that stand for a row: of one setting, by seed.

    Attributes:
        runs: those that are done.
        others: those of the same setting that failed, diverged or are not finished: (seed, what).
        reduced: what is not as in the paper, seeds included.
        cuts: the config keys that are not as in the paper, and their values here.
    """

    runs: dict[int, Run]
    others: tuple[tuple[int, str], ...] = ()
    reduced: tuple[str, ...] = ()
    cuts: tuple[tuple[str, str], ...] = ()

    @property
    def diverged(self) -> set[int]:
        """The seeds whose runs ended with numbers that are not finite."""
        return {seed for seed, what in self.others if what == "diverged"}

    def curve(self, field: str) -> dict[int, pd.Series]:
        """Return a field over the evaluated rounds, per seed; runs in which it is empty are left out."""
        curves = {seed: _field(run.rounds().set_index("round"), field) for seed, run in self.runs.items()}
        return {seed: c for seed, c in curves.items() if len(c)}

    def values(self, metric: Metric, which: str = "last") -> dict[int, float]:
        """Return what a metric comes to per seed, in the unit that the paper prints.

        Args:
            metric: of the paper.
            which: last or best: the round.
        """
        return {s: v * metric.factor for s, run in self.runs.items() if (v := _value(run, metric, which)) is not None}


def _field(rounds: pd.DataFrame, field: str) -> pd.Series:
    needed, formula = _DERIVED.get(field, ((field,), lambda values: values))
    if not set(needed) <= set(rounds):
        return pd.Series(dtype=float)
    values: pd.Series = formula(*(rounds[k].astype(float) for k in needed))
    return values.replace([math.inf, -math.inf], math.nan).dropna()


def _value(run: Run, metric: Metric, which: str) -> float | None:
    if metric.field.startswith("client:"):
        clients = run.clients()
        mine = clients[(clients["round"] == clients["round"].max()) & (clients["client"] == int(metric.field[7:]))]
        return float(mine["accuracy"].iloc[0]) if len(mine) and mine["accuracy"].notna().all() else None
    if which == "last":
        value = run.last_round().get(metric.field)
        return None if value is None else float(value)
    curve = _field(run.rounds().set_index("round"), metric.field)
    if not len(curve):
        return None
    return float(curve.min() if metric.direction == "lower" else curve.max())


class Evidence:
    """The runs of a directory, found by what a row asks for.

    Args:
        runs: all of them.
    """

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs = list(runs)

    @cached_property
    def _by_setting(self) -> dict[tuple[str, str], list[Run]]:
        found: dict[tuple[str, str], list[Run]] = {}
        for run in self.runs:
            found.setdefault((str(run.meta["experiment"]), run.meta["algo"]), []).append(run)
        return found

    def find(self, paper: Paper, row: Row) -> Found:
        """Return the runs that stand for a row: at the paper's setting if there are any, else the least reduced."""
        setup, wanted = paper.setups[row.setup], paper.overrides(row)
        groups: dict[str, list[Run]] = {}
        for run in self._by_setting.get((setup.experiment, paper.methods[row.algo].algo), []):
            if _stands_for(run, wanted):
                groups.setdefault(run.meta["hash"], []).append(run)
        if not groups:
            return Found({})
        return _found(max(groups.values(), key=lambda g: _merit(g, wanted)), wanted, setup)


def _stands_for(run: Run, wanted: Mapping[str, Any]) -> bool:
    config = leaves(run.config)
    if any(not _equal(config.get(k), v) for k, v in wanted.items() if k != "rounds"):
        return False
    return all(_reducible(k, there, here) for k, (there, here) in _departures(run, wanted).items())


def _equal(a: Any, b: Any) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _departures(run: Run, wanted: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return where a run is not as its row asks: key -> [there, here]."""
    out = {k: v for k, v in run.meta["departures"].items() if k not in wanted}
    if "rounds" in wanted and run.config["rounds"] != wanted["rounds"]:
        out["rounds"] = [wanted["rounds"], run.config["rounds"]]
    return out


def _reducible(key: str, there: Any, here: Any) -> bool:
    if key in _AMOUNTS:
        return here is not None and (there is None or _most(here) <= _most(there))
    if key in ("participation", "data.clients") and None not in (there, here):
        return _share(here) <= _share(there)
    return key.startswith(_REDUCIBLE) or key in _LESS_DATA


def _share(value: Any) -> float:
    """Return a participation in the order of how many take part: shares, 1.0 for all, above counts."""
    return float(value) if isinstance(value, int) and value > 1 else 1e9 * float(value)


def _most(value: Any) -> float:
    return float(max(value) if isinstance(value, list) else value)


def _merit(group: list[Run], wanted: Mapping[str, Any]) -> tuple[bool, bool, int, int, str]:
    done, cut = [r for r in group if _counts(r)], bool(_departures(group[0], wanted))
    return (bool(done), not cut, int(group[0].config["rounds"]), len(done), max(r.meta["started"] for r in group))


def _counts(run: Run) -> bool:
    return run.done and run.meta["status"] == "done"


def _found(group: list[Run], wanted: Mapping[str, Any], setup: Setup) -> Found:
    ordered = sorted(group, key=lambda r: r.meta["seed"])
    done = {r.meta["seed"]: r for r in ordered if _counts(r)}
    others = tuple((r.meta["seed"], _what(r)) for r in ordered if not _counts(r))
    departures = _departures(group[0], wanted)
    words = [*reductions(departures, group[0].meta["model"]), *setup.departs]
    if done and len(done) < setup.seeds:
        words.append(f"seeds {len(done)} (paper {setup.seeds})")
    sources = sorted({s for r in done.values() for s in r.meta.get("sources", []) if "not the official" in s})
    cuts = tuple(sorted((k, _show(here)) for k, (_, here) in departures.items()))
    return Found(done, others, (*words, *(f"data: {s}" for s in sources)), cuts)


def _what(run: Run) -> str:
    status = str(run.meta["status"])
    return {"done": "not finished", "running": "not finished"}.get(status, status)


def reductions(departures: Mapping[str, Any], model: str) -> list[str]:
    """Return what is not as in the experiment, in words.

    Args:
        departures: key -> [there, here].
        model: name of the model that was run.
    """
    cuts = []
    if "model._target_" in departures:
        there = str(departures["model._target_"][0]).rsplit(".", 1)[-1]
        cuts.append(f"model {model} (paper {there})")
    for key, (there, here) in departures.items():
        if not (key.startswith("model.") and "model._target_" in departures):
            cuts.append(f"{key} {_show(here)} (paper {_show(there)})")
    return cuts


def _show(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)

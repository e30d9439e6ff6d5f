"""Matching of runs on disk with the rows of a paper's tables, and the values that the runs have measured."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from fedbench.analysis.curves import best_rounds, curve_of, mean_between, rounds_to
from fedbench.analysis.departures import (
    SPLIT,
    Unit,
    config_departures,
    counted_and_others,
    data_departures,
    seed_departures,
    unit_of,
)
from fedbench.config.identity import setting
from fedbench.core.config_values import config_value
from fedbench.core.metrics import lower_is_better, metric_info
from fedbench.papers.readings import ADOPTED, Reading
from fedbench.papers.schema import Paper, PrintedMetric, Row, Setup
from fedbench.runs.run import Run

# keys that a reduced run may change and still match a row; with any other change it is a run of something else
_AMOUNTS = ("rounds", "local.epochs", "local.steps")  # these may only decrease
_REDUCIBLE = (*_AMOUNTS, "participation", "model.", "engine.")
_LESS_DATA = (
    "data.clients",
    *(f"data.source.{k}" for k in ("clients", "images", "first", "min_samples")),
)


@dataclass(frozen=True, eq=False)
class MatchedRuns:
    """The runs that match a row under a reading: all runs of one setting, by unit.

    Attributes:
        runs: The runs that count.
        others: Runs of the same setting that failed, diverged or are not finished, as (unit, outcome).
        reduced: Departures from the paper, including the number of seeds.
        cuts: Configuration keys that differ from the paper, with their values here.
        every: All runs of the setting, of whatever outcome and split of the data.
        departs: Those of ``reduced`` that make the setting another one than the paper's: all but the number of seeds.
        searched: Whether the values of the row were searched here.
        setup: Title of the row's setup.
        reading: How the numbers are read.
        row: The row; None for runs that belong to no row.
        name: The method and the hyperparameters of the row.
        round: Round that the row's table reports, ``last`` or ``best``.
    """

    runs: dict[Unit, Run]
    others: tuple[tuple[Unit, str], ...] = ()
    reduced: tuple[str, ...] = ()
    cuts: tuple[tuple[str, str], ...] = ()
    every: tuple[Run, ...] = ()
    departs: tuple[str, ...] = ()
    searched: bool = False
    setup: str = ""
    reading: Reading = ADOPTED
    row: Row | None = None
    name: str = ""
    round: str = "last"

    @property
    def diverged(self) -> set[Unit]:
        """The units whose runs ended with numbers that are not finite."""
        return {unit for unit, what in self.others if what == "diverged"}

    @property
    def errors(self) -> list[str]:
        """Messages of the errors that ended runs."""
        return list(dict.fromkeys(" ".join(r.meta["error"].split()) for r in self.every if r.meta.get("error")))

    @property
    def splits(self) -> list[int]:
        """Splits of the data whose runs do not count under the reading."""
        return sorted({unit.split for unit in (unit_of(r) for r in self.every if r.counts) if unit not in self.runs})

    def curve(self, field: str) -> dict[Unit, pd.Series]:
        """Return a field over the evaluated rounds, per unit; runs that did not measure it are left out."""
        name = self.reading.field(field)
        if name is None:
            return {}
        curves = {unit: _curve(run, name) for unit, run in self.runs.items()}
        return {unit: c for unit, c in curves.items() if len(c)}

    def final(self, field: str) -> dict[Unit, float]:
        """Return the last value of a field per unit, or the best one where best rounds are read."""
        curves = self.curve(field)
        if self.reading.round != "best":
            return {unit: float(c.iloc[-1]) for unit, c in curves.items()}
        return {unit: float(c.min() if lower_is_better(field) else c.max()) for unit, c in curves.items()}

    def measured(self, metric: PrintedMetric) -> dict[Unit, float]:
        """Return the value of a metric per unit as the row's table reports it."""
        return self.values(metric, self.round)

    def values(self, metric: PrintedMetric, which: str = "last") -> dict[Unit, float]:
        """Return the value of a metric per unit in the printed unit; the metric and the round are as they are read.

        Args:
            metric: The metric as the paper prints it.
            which: Round in the paper's table, ``last`` or ``best``.
        """
        name = self.reading.field(metric.field)
        if name is None or (self.reading.round == "best" and name.startswith("client:")):
            return {}  # runs keep the clients of the last round only
        read, at = (
            replace(metric, field=name),
            which if self.reading.round == "adopted" else self.reading.round,
        )
        found = {unit: self._value(run, read, at) for unit, run in self.runs.items()}
        return {unit: value * metric.factor for unit, value in found.items() if value is not None}

    def _value(self, run: Run, metric: PrintedMetric, which: str) -> float | None:
        if metric.field.startswith("client:"):
            return run.accuracy_of(int(metric.field[7:]))
        if metric.target is not None:
            reached = rounds_to(_curve(run, metric.field), metric.target, lower_is_better(metric.field))
            return reached if math.isfinite(reached) else None
        if metric.rounds is not None:
            return mean_between(_curve(run, metric.field), *metric.rounds, _length(run))
        if which == "best":
            found = best_rounds(run, (metric.field,))
            return found[metric.field][1] if found else None
        value = run.last_round().get(metric.field)
        return None if value is None else float(value)


def _curve(run: Run, name: str) -> pd.Series:
    """Return a field of a run over its rounds, worked out once: claims ask for it under every reading of a paper."""
    if name not in run.series:
        run.series[name] = curve_of(run.curves(metric_info(name).needs or (name,)), name)
    return run.series[name]


def _length(run: Run) -> float:
    """Return the rounds of a run as a share of those of its experiment."""
    whole, own = run.meta["departures"].get("rounds", (1, 1))
    return float(own / whole)


class Evidence:
    """The runs of a directory, which can be searched for those that match a row.

    Args:
        runs: The runs.
        reading: How they are read.
    """

    def __init__(self, runs: Iterable[Run], reading: Reading = ADOPTED) -> None:
        self.runs = list(runs)
        self.reading = reading
        self._choices: dict[tuple[str | bool, ...], list[MatchedRuns]] = {}
        self._readings = {reading: self}  # shared by all of them

    def under(self, reading: Reading) -> Evidence:
        """Return the same runs under another reading."""
        if reading not in self._readings:
            other = copy.copy(self)
            other.reading, other._choices = reading, {}
            self._readings[reading] = other
        return self._readings[reading]

    @cached_property
    def _by_setting(self) -> dict[tuple[str, str], list[Run]]:
        found: dict[tuple[str, str], list[Run]] = {}
        for run in self.runs:
            found.setdefault((str(run.meta["experiment"]), run.meta["algo"]), []).append(run)
        return found

    def find(self, paper: Paper, row: Row) -> MatchedRuns:
        """Return the runs that match a row: those at the paper's setting if any exist, else the least reduced ones."""
        return self._read(paper, row)[0]

    def comparable(self, paper: Paper, rows: Sequence[Row]) -> list[MatchedRuns]:
        """Return the runs of several rows, reduced in the same way if possible, else those of ``find``.

        If one method has runs at the paper's setting and the others only reduced ones, the reduced runs of all methods
        can still be compared. Among several common settings, the one with the best average rank over the rows counts.
        """
        choices = [self._read(paper, r) for r in rows]
        ended = [{f.cuts: (i, f) for i, f in reversed([*enumerate(c)]) if f.runs or f.diverged} for c in choices]
        present = [c for c in ended if c]
        common = set(present[0]).intersection(*present) if present else set()
        if not common:
            return [c[0] for c in choices]
        best = min(common, key=lambda cuts: (sum(c[cuts][0] for c in present), cuts))
        return [c[best][1] if c else every[-1] for c, every in zip(ended, choices, strict=True)]

    def _read(self, paper: Paper, row: Row) -> list[MatchedRuns]:
        """Return the settings whose runs match a row as they are read, best first, followed by an empty one."""
        hyper = "".join(f" {key}={value}" for key, value in row.hyperparameters.items())
        return [
            replace(
                runs,
                searched=paper.searched(row),
                setup=paper.setups[row.setup].title,
                reading=self.reading,
                row=row,
                name=f"{paper.methods[row.algo].label}{hyper}",
                round=_printed_round(paper, row),
            )
            for runs in (*self.choices(paper, row), MatchedRuns({}))
        ]

    def choices(self, paper: Paper, row: Row) -> list[MatchedRuns]:
        """Return the settings whose runs match a row, the best first."""
        best = _printed_round(paper, row) == "best"
        if self.reading.round != "adopted":
            best = self.reading.round == "best"
        key = (paper.id, row.setup, row.algo, json.dumps(row.hyperparameters, sort_keys=True), best)
        if key not in self._choices:
            setup = paper.setups[row.setup]
            algo, wanted = wanted_under(paper, row, self.reading)
            here = [r for r in self._by_setting.get((setup.experiment, algo), []) if _matches(r, wanted, setup)]
            groups = [(counted, group) for group in _settings(here) if (counted := self._counted(group))]
            groups.sort(key=lambda pair: _quality(pair[0], wanted), reverse=True)
            self._choices[key] = [_matched_runs(counted, group, wanted, setup, best) for counted, group in groups]
        return self._choices[key]

    def _counted(self, group: Sequence[Run]) -> list[Run]:
        """Return the runs of a setting that the reading counts: those of the experiment's split, or of all."""
        return [r for r in group if self.reading.splits == "drawn" or SPLIT not in r.meta["departures"]]


def _printed_round(paper: Paper, row: Row) -> str:
    """Return the round that the table of a row reports; figures show the last one."""
    tables = (table for table in paper.tables.values() if any(r is row for r in table.rows))
    return next((table.round for table in tables), "last")


def wanted_under(paper: Paper, row: Row, reading: Reading) -> tuple[str, dict[str, Any]]:
    """Return the algorithm and the config keys of a row under a reading."""
    algo, wanted = paper.methods[row.algo].algo, paper.overrides(row)
    if (variant := paper.readings.variant(reading.variant, row.setup)) is None:
        return algo, wanted
    return variant.algos.get(row.algo, algo), {**wanted, **variant.keys(row.algo)}


def _settings(runs: Iterable[Run]) -> list[list[Run]]:
    """Return runs by setting, whatever their seed and the split of their data."""
    by_hash: dict[str, list[Run]] = {}
    for run in runs:
        by_hash.setdefault(run.meta["hash"], []).append(run)
    found: dict[str, list[Run]] = {}
    for members in by_hash.values():
        first = members[0]
        keys = {k: v for k, v in setting(first.config).items() if k != SPLIT}
        contents = [first.meta.get("files"), first.meta.get("code"), first.meta.get("revision")]
        found.setdefault(json.dumps([keys, contents], sort_keys=True), []).extend(members)
    return list(found.values())


def _matches(run: Run, wanted: Mapping[str, Any], setup: Setup) -> bool:
    config = run.flat
    if any(not _equal(config.get(k), v) for k, v in wanted.items() if k != "rounds"):
        return False
    return all(_reducible(k, there, here, config, setup) for k, (there, here) in _departures(run, wanted).items())


def _equal(a: Any, b: Any) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _departures(run: Run, wanted: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the keys in which a run differs from its row, apart from the split: key -> [paper, run]."""
    out = {k: v for k, v in run.meta["departures"].items() if k not in wanted and k != SPLIT}
    if "rounds" in wanted and run.config["rounds"] != wanted["rounds"]:
        out["rounds"] = [wanted["rounds"], run.config["rounds"]]
    return out


def _reducible(key: str, there: Any, here: Any, config: Mapping[str, Any], setup: Setup) -> bool:
    if key in _AMOUNTS:
        if here is None:
            return False
        most = _epochs_in_steps(config, setup) if key == "local.steps" and there is None else _most(there or math.inf)
        return _most(here) <= most
    if key == "data.clients" and None not in (there, here):
        return int(here) <= int(there)
    if key == "participation":
        clients = float(config.get("data.clients") or setup.clients or math.inf)
        return _share(here, clients) <= _share(there, float(setup.clients or clients))
    return key.startswith(_REDUCIBLE) or key in _LESS_DATA


def _epochs_in_steps(config: Mapping[str, Any], setup: Setup) -> float:
    """Return the number of local steps that a run's epochs are for a client of the setup's mean size."""
    batch = config["local.batch_size"]
    size = setup.examples_per_client if batch == "full" else int(batch)
    return _most(config["local.epochs"]) * max(1, math.ceil(setup.examples_per_client / size))


def _share(value: Any, clients: float) -> float:
    """Return a participation as a share of the clients: an integer above 1 is a number of clients."""
    return float(value) / clients if isinstance(value, int) and value > 1 else float(value)


def _most(value: Any) -> float:
    return float(max(value) if isinstance(value, list) else value)


def _quality(group: Sequence[Run], wanted: Mapping[str, Any]) -> tuple[bool, bool, int, int, str]:
    done, cut = [r for r in group if r.counts], bool(_departures(group[0], wanted))
    # a run that diverged has an outcome too: a shorter run that did not diverge must not replace it
    return (
        any(r.done for r in group),
        not cut,
        int(group[0].config["rounds"]),
        len(done),
        max(r.meta["started"] for r in group),
    )


def _matched_runs(
    group: Sequence[Run], every: Sequence[Run], wanted: Mapping[str, Any], setup: Setup, best: bool
) -> MatchedRuns:
    """Return the runs of a setting that count; ``every`` has those of all splits."""
    done, others = counted_and_others(group)
    departures = _departures(group[0], wanted)
    found = config_departures(departures, group[0].meta["model"], setup)
    cuts = {k: config_value(here) for k, (_, here) in departures.items()}
    spacing = max(r.config.get("eval_every", 1) for r in group)
    if best and spacing > 1:  # the experiments of such tables evaluate every round
        cuts["eval_every"] = str(spacing)
    data = data_departures(done.values())
    departs = (*found, *data)
    reduced = (*found, *seed_departures(done, others, setup.seeds), *data)
    return MatchedRuns(done, others, reduced, tuple(sorted(cuts.items())), tuple(every), departs)

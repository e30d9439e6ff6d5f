"""Matching of runs on disk with the rows of a paper's tables, and the values that they measured."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, TypeAlias

import pandas as pd

from fedbench.analysis.curves import (
    best_of,
    curve_of,
    mean_between,
    rounds_to,
)
from fedbench.analysis.departures import (
    SPLIT,
    PerUnit,
    Unit,
    config_departures,
    counted_and_others,
    data_departures,
    seed_departures,
    unit_of,
)
from fedbench.config.identity import setting
from fedbench.core.config_values import Tree, config_value
from fedbench.core.metrics import lower_is_better, metric_info
from fedbench.papers.readings import ADOPTED, Reading
from fedbench.papers.schema import (
    Paper,
    PrintedMetric,
    Row,
    Setup,
)
from fedbench.runs.run import Run

Cuts: TypeAlias = tuple[tuple[str, str], ...]

# keys that a reduced run may change and still match a row; with any other change it is a run of
# something else
_AMOUNTS = ("rounds", "local.epochs", "local.steps")  # these may only decrease
_REDUCIBLE = (*_AMOUNTS, "participation", "model.", "engine.")
_LESS_DATA = (
    "data.clients",
    "data.source.clients",
    "data.source.images",
    "data.source.first",
    "data.source.min_samples",
)


@dataclass(frozen=True, eq=False)
class MatchedRuns:
    """The runs of one setting that match a row under a reading.

    Attributes:
        runs: The runs that count, by unit.
        others: Runs of the same setting that failed, diverged or are not finished, as (unit,
            outcome).
        reduced: Departures of the runs that count from the paper, including the number of seeds.
        cuts: Configuration keys that differ from the paper, with their values here.
        every: All runs of the setting, of whatever outcome and split of the data.
        departs: Those of ``reduced`` that make the setting another one than the paper's: all but
            the number of seeds.
        searched: Whether the values of the row were searched here.
        setup: Title of the row's setup.
        reading: How the numbers are read.
        row: The row; None for runs that belong to no row.
        name: The method and the hyperparameters of the row.
        round: Round whose numbers count, ``last`` or ``best``: that of the reading, else that of
            the row's table.
    """

    runs: dict[Unit, Run]
    others: tuple[tuple[Unit, str], ...] = ()
    reduced: tuple[str, ...] = ()
    cuts: Cuts = ()
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
        return {unit for unit, outcome in self.others if outcome == "diverged"}

    @property
    def errors(self) -> list[str]:
        """Messages of the errors that ended runs, each on one line."""
        errors = [str(run.meta.get("error") or "") for run in self.every]
        lines = dict.fromkeys(" ".join(error.split()) for error in errors)
        return list(filter(None, lines))

    @property
    def splits(self) -> list[int]:
        """Splits of the data whose runs do not count under the reading."""
        finished = {unit_of(run) for run in self.every if run.counts}
        others = finished - self.runs.keys()
        return sorted({unit.split for unit in others})

    def curve(self, field: str) -> dict[Unit, pd.Series]:
        """Return a field over the evaluated rounds, per unit.

        Runs that did not measure it are left out.
        """
        name = self.reading.field(field)
        if name is None:
            return {}
        curves = {unit: _curve(run, name) for unit, run in self.runs.items()}
        return {unit: curve for unit, curve in curves.items() if len(curve)}

    def final(self, field: str) -> PerUnit:
        """Return the last value of a field per unit, or the best one where best rounds are read."""
        curves = self.curve(field)
        if self.round == "last":
            return {unit: float(curve.iloc[-1]) for unit, curve in curves.items()}
        return {unit: best_of(curve, field)[1] for unit, curve in curves.items()}

    def values(
        self,
        metric: PrintedMetric,
        which: str = "",
    ) -> PerUnit:
        """Return the value of a metric per unit in the printed unit, as it is read.

        Args:
            metric: The metric as the paper prints it.
            which: Round whose number counts, ``last`` or ``best``; by default ``self.round``.
        """
        field = self.reading.field(metric.field)
        if field is None:
            return {}
        if self.reading.round == "best" and field.startswith("client:"):
            return {}  # runs keep the clients of the last round only
        read = replace(metric, field=field)
        values = {}
        for unit, run in self.runs.items():
            value = _value(run, read, which or self.round)
            if value is not None:
                values[unit] = value * metric.factor
        return values


def _value(
    run: Run,
    metric: PrintedMetric,
    which: str,
) -> float | None:
    """Return a metric of a run in the unit of the run.

    It is None if it was not measured or its target not reached.
    """
    field = metric.field
    if field.startswith("client:"):
        return run.accuracy_of(int(field.removeprefix("client:")))
    if metric.target is not None:
        reached = rounds_to(
            _curve(run, field),
            metric.target,
            lower_is_better(field),
        )
        return reached if math.isfinite(reached) else None
    if metric.rounds is not None:
        printed, here = run.meta["departures"].get("rounds", (1, 1))
        return mean_between(
            _curve(run, field),
            *metric.rounds,
            here / printed,
        )
    if which == "best":
        curve = _curve(run, field, kept=True)
        return best_of(curve, field)[1] if len(curve) else None
    last: float | None = run.last_round().get(field)
    return last


def _curve(
    run: Run,
    field: str,
    kept: bool = False,
) -> pd.Series:
    """Return a field of a run over its rounds.

    It is computed once, since claims ask for it under every reading of a paper.

    Args:
        run: The run.
        field: The field.
        kept: Whether the rounds are those that a bundle keeps with all their keys, the best ones
            among them.
    """
    key = f"{field}, kept" if kept else field
    if key not in run.series:
        fields = metric_info(field).needs or (field,)
        rounds = run.rounds() if kept else run.curves(fields)
        run.series[key] = curve_of(rounds, field)
    return run.series[key]


# ---- which runs match a row


class Evidence:
    """A paper and runs, which can be searched for those that match a row of the paper.

    Args:
        paper: The paper.
        runs: The runs, which are read as fedbench adopts; ``under`` gives other readings.
    """

    def __init__(
        self,
        paper: Paper,
        runs: Iterable[Run],
    ) -> None:
        self.paper = paper
        self.reading = ADOPTED
        # runs by setting, for each experiment and algorithm
        self._settings: dict[tuple[str, str], dict[str, list[Run]]] = {}
        for run in runs:
            method = str(run.meta["experiment"]), run.meta["algo"]
            settings = self._settings.setdefault(method, {})
            settings.setdefault(_setting_of(run), []).append(run)

    def under(self, reading: Reading) -> Evidence:
        """Return the same runs under another reading."""
        other = copy.copy(self)
        other.reading = reading
        return other

    def find(self, row: Row) -> MatchedRuns:
        """Return the runs that match a row.

        Those at the paper's setting come first, then the least reduced ones.
        """
        return self.choices(row)[0]

    def comparable(self, rows: Sequence[Row]) -> list[MatchedRuns]:
        """Return the runs of several rows, reduced alike if possible, else those of ``find``.

        If one method has runs at the paper's setting and the others only reduced ones, the reduced
        runs of all methods can still be compared. Among several common settings, the one with the
        best average rank over the rows counts.
        """
        choices = [self.choices(row) for row in rows]
        ended = [_by_cuts(settings) for settings in choices]
        orders = [list(by_cuts) for by_cuts in ended if by_cuts]
        common = set(orders[0]).intersection(*orders) if orders else set()
        if not common:
            return [settings[0] for settings in choices]

        def rank(cuts: Cuts) -> tuple[int, Cuts]:
            return sum(order.index(cuts) for order in orders), cuts

        best = min(common, key=rank)
        runs = []
        for by_cuts, settings in zip(ended, choices, strict=True):
            runs.append(by_cuts.get(best, settings[-1]))
        return runs

    def choices(self, row: Row) -> list[MatchedRuns]:
        """Return the settings whose runs match a row, the best first, followed by an empty one."""
        paper = self.paper
        setup = paper.setups[row.setup]
        algo, wanted = wanted_under(paper, row, self.reading)
        hyper = "".join(f" {key}={value}" for key, value in row.hyperparameters.items())
        empty = MatchedRuns(
            {},
            searched=paper.searched(row),
            setup=setup.title,
            reading=self.reading,
            row=row,
            name=f"{paper.methods[row.algo].label}{hyper}",
            round=self._round_of(row),
        )
        ranked = []
        settings = self._settings.get((setup.experiment, algo), {})
        for every in settings.values():
            counted = every
            if self.reading.splits == "fixed":  # the split of the experiment
                counted = [run for run in every if SPLIT not in run.meta["departures"]]
            if counted and _matches(counted[0], wanted, setup):
                matched = replace(empty, every=tuple(every))
                runs = _with_counted(matched, counted, wanted, setup)
                ranked.append((_quality(counted, wanted), runs))
        ranked.sort(key=itemgetter(0), reverse=True)
        return [*(runs for _, runs in ranked), empty]

    def _round_of(self, row: Row) -> str:
        """Return the round of the reading, else of the row's table; figures show the last one."""
        if self.reading.round != "adopted":
            return self.reading.round
        for table in self.paper.tables.values():
            if any(other is row for other in table.rows):
                return table.round
        return "last"


def _by_cuts(settings: Iterable[MatchedRuns]) -> dict[Cuts, MatchedRuns]:
    """Return the first setting with each reduction that has an outcome."""
    first: dict[Cuts, MatchedRuns] = {}
    for runs in settings:
        if runs.runs or runs.diverged:
            first.setdefault(runs.cuts, runs)
    return first


def wanted_under(
    paper: Paper,
    row: Row,
    reading: Reading,
) -> tuple[str, Tree]:
    """Return the algorithm and the config keys of a row under a reading."""
    algo = paper.methods[row.algo].algo
    wanted = paper.overrides(row)
    variant = paper.readings.variant(reading.variant, row.setup)
    if variant is not None:
        algo = variant.algos.get(row.algo, algo)
        wanted |= variant.keys(row.algo)
    return algo, wanted


def _setting_of(run: Run) -> str:
    """Return a text that runs of one setting share, whatever their seed and split of the data."""
    keys = setting(run.config)
    keys.pop(SPLIT, None)
    code = [run.meta.get(name) for name in ("files", "code", "revision")]
    return json.dumps([keys, *code], sort_keys=True)


def _matches(
    run: Run,
    wanted: Tree,
    setup: Setup,
) -> bool:
    """Return whether a run is one of a row, or a reduced one."""
    for key, value in wanted.items():
        if key != "rounds" and config_value(run.flat.get(key)) != config_value(value):
            return False
    changes = _departures(run, wanted)
    return all(_reducible(run, key, change, setup) for key, change in changes.items())


def _departures(run: Run, wanted: Tree) -> dict[str, list[Any]]:
    """Return the keys in which a run differs from its row, as [paper, run]; without the split."""
    departures = run.meta["departures"].items()
    changes = {key: change for key, change in departures if key not in wanted and key != SPLIT}
    rounds = run.config["rounds"]
    printed = wanted.get("rounds", rounds)
    if printed != rounds:
        changes["rounds"] = [printed, rounds]
    return changes


def _reducible(
    run: Run,
    key: str,
    change: Sequence[Any],
    setup: Setup,
) -> bool:
    """Return whether a run with another value of a key than printed is a reduced run of a row."""
    printed, value = change
    if key == "participation":
        clients = float(run.flat.get("data.clients") or setup.clients or math.inf)
        return _share(value, clients) <= _share(printed, float(setup.clients or clients))
    if key in _AMOUNTS and value is None:
        return False
    if key in (*_AMOUNTS, "data.clients") and None not in change:
        return _largest(value) <= _largest(printed)
    return key.startswith(_REDUCIBLE) or key in _LESS_DATA


def _share(value: Any, clients: float) -> float:
    """Return a participation as a share of the clients; an integer above 1 is a number of them."""
    return float(value) / clients if isinstance(value, int) and value > 1 else float(value)


def _largest(value: Any) -> float:
    """Return a number, or the upper end of a range."""
    return float(max(value) if isinstance(value, list) else value)


def _quality(runs: Sequence[Run], wanted: Tree) -> tuple[Any, ...]:
    """Return the sort key of settings: ended, unreduced, long, with many runs, late."""
    return (
        # a run that diverged has an outcome too: a shorter run that did not diverge must not
        # replace it
        any(run.done for run in runs),
        not _departures(runs[0], wanted),
        runs[0].config["rounds"],
        sum(run.counts for run in runs),
        max(run.meta["started"] for run in runs),
    )


def _with_counted(
    matched: MatchedRuns,
    counted: Sequence[Run],
    wanted: Tree,
    setup: Setup,
) -> MatchedRuns:
    """Return matched runs with those that count under the reading, and their departures."""
    done, others = counted_and_others(counted)
    changes = _departures(counted[0], wanted)
    cuts = {key: config_value(value) for key, (_, value) in changes.items()}
    spacing = max(run.config.get("eval_every", 1) for run in counted)
    if matched.round == "best" and spacing > 1:
        # the experiments of such tables evaluate every round
        cuts["eval_every"] = str(spacing)

    config = config_departures(changes, counted[0].meta["model"], setup)
    data = data_departures(done.values())
    seeds = seed_departures(done, others, setup.seeds)
    return replace(
        matched,
        runs=done,
        others=others,
        reduced=(*config, *seeds, *data) if done else (),
        cuts=tuple(sorted(cuts.items())),
        departs=(*config, *data),
    )

"""Matching of runs on disk with the rows of a paper's tables, and the runs' measured values."""

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
    changed_keys,
    config_departures,
    counted_and_others,
    data_departures,
    seed_departures,
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
ALPHA = 0.05  # level of the tests of claims

# keys that a reduced run may change and still match a row; any other change makes it a different
# experiment
_AMOUNTS = ("rounds", "local.epochs", "local.steps")  # these may only decrease
_REDUCIBLE = (*_AMOUNTS, "participation", "model.", "engine.")
_LESS_DATA = (
    "data.clients",
    "data.source.clients",
    "data.source.images",
    "data.source.first",
    "data.source.size",
    "data.source.min_samples",
)


@dataclass(frozen=True, eq=False)
class MatchedRuns:
    """The runs of one setting that match a row under a reading.

    Attributes:
        runs: The counted runs, by unit.
        others: Runs of the same setting that failed, diverged or are not finished, as (unit,
            outcome).
        reduced: Departures of the counted runs from the paper, including the number of seeds.
        cuts: Configuration keys whose values differ from the paper's, with their values in the
            runs.
        every: All runs of the setting, regardless of outcome and split of the data.
        departs: The entries of ``reduced`` that change the setting: all except those about seeds.
        searched: Whether the values of the row were found by a search with fedbench.
        setup: Title of the row's setup.
        reading: Reading of the paper under which the runs were matched.
        row: The row; None for runs that belong to no row.
        name: The method and the hyperparameters of the row.
        round: Round from which numbers are taken, ``last`` or ``best``, as set by the reading or,
            if it sets none, by the row's table.
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
        """The units whose runs diverged, that is, ended with numbers that are not finite."""
        return {unit for unit, outcome in self.others if outcome == "diverged"}

    @property
    def errors(self) -> list[str]:
        """Messages of the errors that ended runs, on one line each."""
        errors = [str(run.meta.get("error") or "") for run in self.every]
        lines = dict.fromkeys(" ".join(error.split()) for error in errors)
        return list(filter(None, lines))

    def curve(self, field: str) -> dict[Unit, pd.Series]:
        """Return the values of a field in the evaluated rounds, per unit.

        Runs that did not measure the field are left out.
        """
        name = self.reading.field(field)
        if name is None:
            return {}
        curves = {}
        for unit, run in self.runs.items():
            curve = _curve(run, name)
            if len(curve):
                curves[unit] = curve
        return curves

    def final(self, field: str) -> PerUnit:
        """Return each unit's last value of a field, or its best if ``round`` is ``best``."""
        curves = self.curve(field)
        values = {}
        for unit, curve in curves.items():
            if self.round == "last":
                values[unit] = float(curve.iloc[-1])
            else:
                _, values[unit] = best_of(curve, field)
        return values

    def values(
        self,
        metric: PrintedMetric,
        which: str = "",
    ) -> PerUnit:
        """Return a metric per unit under the reading, in the paper's unit of measurement.

        Args:
            metric: The metric as the paper prints it.
            which: Round from which the value is taken, ``last`` or ``best``; by default
                ``self.round``.
        """
        field = self.reading.field(metric.field)
        if field is None:
            return {}
        if self.reading.round == "best" and field.startswith("client:"):
            return {}  # runs store clients only for the last round
        read = replace(metric, field=field)
        values = {}
        for unit, run in self.runs.items():
            value = _value(run, read, which or self.round)
            if value is not None:
                values[unit] = value * metric.factor
        return values

    def lengths(self, field: str) -> PerUnit:
        """Return the last round in which a field was evaluated, per unit."""
        return {unit: float(curve.index[-1]) for unit, curve in self.curve(field).items()}


def _value(
    run: Run,
    metric: PrintedMetric,
    which: str,
) -> float | None:
    """Return a metric of a run in the run's unit.

    The result is None if the metric was not measured or its target was not reached.
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
        printed, actual = run.meta["departures"].get("rounds", (1, 1))
        return mean_between(
            _curve(run, field),
            *metric.rounds,
            actual / printed,
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
    """Return the values of a field of a run by round.

    The curve is cached, because claims use it under every reading of a paper.

    Args:
        run: The run.
        field: The field.
        kept: Whether to read only the rounds that a bundle keeps with all keys; they include the
            best rounds.
    """
    key = f"{field}, kept" if kept else field
    if key not in run.series:
        fields = metric_info(field).needs or (field,)
        rounds = run.rounds() if kept else run.curves(fields)
        run.series[key] = curve_of(rounds, field)
    return run.series[key]


# ---- runs that match a row


class Evidence:
    """A paper, and the runs that are matched with the rows of its tables and figures.

    Args:
        paper: The paper.
        runs: The runs, under the adopted reading; ``under`` returns them under another one.
        alpha: Level of the tests of claims.
    """

    def __init__(
        self,
        paper: Paper,
        runs: Iterable[Run],
        alpha: float = ALPHA,
    ) -> None:
        self.paper = paper
        self.alpha = alpha
        self.reading = ADOPTED
        # for each experiment and algorithm, the runs by setting
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
        """Return the runs that match a row best.

        Runs at the paper's setting take precedence, followed by the least reduced ones.
        """
        return self.choices(row)[0]

    def comparable(self, rows: Sequence[Row]) -> list[MatchedRuns]:
        """Return runs of several rows, reduced alike if possible, else as ``find`` selects them.

        If one method has runs at the paper's setting and the others have only reduced ones, the
        reduced runs of all methods can still be compared. If several settings are common to all
        rows, the one with the best average rank over the rows is used.
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
        """Return the settings whose runs match a row, best first, followed by an empty one."""
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
            if self.reading.splits == "fixed":
                counted = [run for run in every if run.flat.get(SPLIT) == 0]
            if counted and _matches(counted[0], wanted, setup):
                matched = replace(empty, every=tuple(every))
                runs = _with_counted(matched, counted, wanted, setup)
                ranked.append((_quality(counted, wanted), runs))
        ranked.sort(key=itemgetter(0), reverse=True)
        return [*(runs for _, runs in ranked), empty]

    def _round_of(self, row: Row) -> str:
        """Return the round set by the reading, else by the row's table; figures use the last."""
        if self.reading.round != "adopted":
            return self.reading.round
        for table in self.paper.tables.values():
            if any(other is row for other in table.rows):
                return table.round
        return "last"


def _by_cuts(settings: Iterable[MatchedRuns]) -> dict[Cuts, MatchedRuns]:
    """Return the first setting with an outcome for each reduction."""
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
    """Return a string that identifies a run's setting, regardless of its seed and data split."""
    keys = setting(run.config)
    keys.pop(SPLIT, None)
    code = [run.meta.get(name) for name in ("files", "code", "revision")]
    return json.dumps([keys, *code], sort_keys=True)


def _matches(
    run: Run,
    wanted: Tree,
    setup: Setup,
) -> bool:
    """Return whether a run belongs to a row, at its full or at a reduced setting."""
    for key, value in wanted.items():
        if key != "rounds" and config_value(run.flat.get(key)) != config_value(value):
            return False
    changes = _departures(run, wanted)
    return all(_reducible(run, key, change, setup) for key, change in changes.items())


def _departures(run: Run, wanted: Tree) -> dict[str, list[Any]]:
    """Return the keys in which a run differs from its row, as [paper, run], except the split."""
    departures = changed_keys(run).items()
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
    """Return whether a changed value of a key makes a run a reduced run of its row."""
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
    """Return participation as a share of the clients; an integer above 1 is a number of clients."""
    return float(value) / clients if isinstance(value, int) and value > 1 else float(value)


def _largest(value: Any) -> float:
    """Return a number, or the upper end of a range."""
    return float(max(value) if isinstance(value, list) else value)


def _quality(runs: Sequence[Run], wanted: Tree) -> tuple[Any, ...]:
    """Return a sort key for settings: done, unreduced, more rounds, more runs, started later."""
    return (
        # a diverged run has an outcome, too: a shorter run that did not diverge must not replace it
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
    """Return matched runs, completed with the counted runs and their departures."""
    done, others = counted_and_others(counted)
    changes = _departures(counted[0], wanted)
    cuts = {key: config_value(value) for key, (_, value) in changes.items()}
    spacing = max(run.config.get("eval_every", 1) for run in counted)
    if matched.round == "best" and spacing > 1:
        # the experiments behind such tables evaluate every round
        cuts["eval_every"] = str(spacing)

    config = config_departures(changes, counted[0].meta["model"], setup, "paper")
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

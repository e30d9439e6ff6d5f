"""Matching of runs on disk with the rows of a paper's tables, and the values that the runs have measured."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from fedbench.analysis.metrics_catalogue import metric_info
from fedbench.core.trees import config_value, leaves
from fedbench.papers.registry import Paper, PrintedMetric, Row, Setup
from fedbench.runs.store import Run

if TYPE_CHECKING:  # a plan does without it
    import pandas as pd

# keys that a reduced run may change and still match a row; with any other change it is a run of something else
_AMOUNTS = ("rounds", "local.epochs", "local.steps")  # these may only decrease
_REDUCIBLE = (*_AMOUNTS, "participation", "model.", "engine.")
_LESS_DATA = ("data.clients", *(f"data.source.{k}" for k in ("clients", "images", "first", "min_samples")))


class Unit(NamedTuple):
    """What distinguishes runs of one setting, and by what runs of two settings are paired.

    Attributes:
        split: Seed of the data: ``data.seed``, or the seed of the run where every run draws its own data.
        seed: Seed of the run, which fixes the initial model, the cohorts and the batches.
    """

    split: int
    seed: int


def unit_of(run: Run) -> Unit:
    """Return the unit of a run."""
    seed, split = int(run.meta["seed"]), leaves(run.config).get("data.seed")
    return Unit(seed if split is None else int(split), seed)


@dataclass(frozen=True)
class Departure:
    """One difference between runs and the paper's setting, or between their data and the publisher's files.

    Attributes:
        key: A configuration key, or one of ``model``, ``seeds``, ``round`` (the best of only some rounds), ``diverged``
            (seeds), ``setup`` (a sentence on all runs of the setup) and ``data`` (a sentence on the files read).
        here: Value of the runs.
        paper: Value of the paper; None for ``diverged``, ``setup`` and ``data``.
    """

    key: str
    here: Any
    paper: Any = None

    @property
    def text(self) -> str:
        """The departure as text."""
        if self.key == "setup":
            return str(self.here)
        if self.key == "data":
            return f"data: {self.here}"
        if self.key == "round":
            return f"best of the evaluated rounds, one in {self.here} (paper {self.paper})"
        if self.key == "diverged":
            return f"without seed {', '.join(map(str, self.here))}, which diverged"
        return f"{self.key} {config_value(self.here)} (paper {config_value(self.paper)})"


def departure_texts(departures: Iterable[Departure]) -> tuple[str, ...]:
    """Return departures as text."""
    return tuple(d.text for d in departures)


@dataclass(frozen=True)
class MatchedRuns:
    """The runs that match a row: all runs of one setting, by unit.

    Attributes:
        runs: The runs that count.
        others: Runs of the same setting that failed, diverged or are not finished, as (unit, outcome).
        reduced: Departures from the paper, including the number of seeds.
        cuts: Configuration keys that differ from the paper, with their values here.
        digest: Hash of the setting; empty if there are no runs.
    """

    runs: dict[Unit, Run]
    others: tuple[tuple[Unit, str], ...] = ()
    reduced: tuple[Departure, ...] = ()
    cuts: tuple[tuple[str, str], ...] = ()
    digest: str = ""

    @property
    def diverged(self) -> set[Unit]:
        """The units whose runs ended with numbers that are not finite."""
        return {unit for unit, what in self.others if what == "diverged"}

    def curve(self, field: str) -> dict[Unit, pd.Series]:
        """Return a field over the evaluated rounds, per unit; runs that did not measure it are left out."""
        curves = {unit: curve_of(_curves(run, field), field) for unit, run in self.runs.items()}
        return {unit: c for unit, c in curves.items() if len(c)}

    def values(self, metric: PrintedMetric, which: str = "last") -> dict[Unit, float]:
        """Return the value of a metric per unit at the ``last`` or ``best`` round, in the printed unit."""
        return {u: v * metric.factor for u, run in self.runs.items() if (v := _value(run, metric, which)) is not None}


def last_clients(run: Run) -> pd.DataFrame:
    """Return the per-client table of the last round."""
    return run.clients_at()


def _curves(run: Run, field: str) -> pd.DataFrame:
    """Return what a metric needs, at all evaluated rounds."""
    return run.curves(metric_info(field).needs or (field,)).set_index("round")


def curve_of(rounds: pd.DataFrame, field: str) -> pd.Series:
    """Return a metric over the evaluated rounds, where it is finite; empty if it was not measured.

    Args:
        rounds: A row per evaluated round, indexed by round.
        field: A key of ``rounds.jsonl``, or a number derived from such keys, in the unit of the run.
    """
    import pandas as pd

    entry = metric_info(field)
    needed = entry.needs or (field,)
    if not set(needed) <= set(rounds):
        return pd.Series(dtype=float)
    columns = [rounds[k].astype(float) for k in needed]
    values: pd.Series = entry.formula(*columns) if entry.formula is not None else columns[0]
    return values.replace([math.inf, -math.inf], math.nan).dropna()


def _value(run: Run, metric: PrintedMetric, which: str) -> float | None:
    if metric.field.startswith("client:"):
        clients = last_clients(run)
        rows = clients[clients["client"] == int(metric.field[7:])]
        return float(rows["accuracy"].iloc[0]) if len(rows) and rows["accuracy"].notna().all() else None
    if which == "last":
        value = run.last_round().get(metric.field)
        return None if value is None else float(value)
    found = best_round(run, metric)
    return None if found is None else found[1]


def best_round(run: Run, metric: PrintedMetric) -> tuple[int, float] | None:
    """Return the first round with the best value of a metric, and the value; None if it was not measured."""
    curve = curve_of(run.rounds().set_index("round"), metric.field)
    if not len(curve):
        return None
    values = curve.to_numpy()
    at = int(values.argmin() if metric.direction == "lower" else values.argmax())
    return int(curve.index.to_numpy()[at]), float(values[at])


class Evidence:
    """The runs of a directory, which can be searched for those that match a row."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs = list(runs)
        self._choices: dict[tuple[str | bool, ...], list[MatchedRuns]] = {}

    @cached_property
    def _by_setting(self) -> dict[tuple[str, str], list[Run]]:
        found: dict[tuple[str, str], list[Run]] = {}
        for run in self.runs:
            found.setdefault((str(run.meta["experiment"]), run.meta["algo"]), []).append(run)
        return found

    def find(self, paper: Paper, row: Row) -> MatchedRuns:
        """Return the runs that match a row: those at the paper's setting if any exist, else the least reduced ones."""
        return next(iter(self.choices(paper, row)), MatchedRuns({}))

    def comparable(self, paper: Paper, rows: Sequence[Row]) -> list[MatchedRuns]:
        """Return the runs of several rows, reduced in the same way if possible, else those of ``find``.

        If one method has runs at the paper's setting and the others only reduced ones, the reduced runs of all methods
        can still be compared. Among several common settings, the one with the best average rank over the rows counts.
        """
        choices = [self.choices(paper, r) for r in rows]
        ended = [{f.cuts: (i, f) for i, f in reversed([*enumerate(c)]) if f.runs or f.diverged} for c in choices]
        present = [c for c in ended if c]
        common = set(present[0]).intersection(*present) if present else set()
        if not common:
            return [c[0] if c else MatchedRuns({}) for c in choices]
        best = min(common, key=lambda cuts: (sum(c[cuts][0] for c in present), cuts))
        return [c[best][1] if c else MatchedRuns({}) for c in ended]

    def choices(self, paper: Paper, row: Row) -> list[MatchedRuns]:
        """Return the settings whose runs match a row, the best first."""
        best = any(t.round == "best" and any(r is row for r in t.rows) for t in paper.tables.values())
        key = (paper.id, row.setup, row.algo, json.dumps(row.hyperparameters, sort_keys=True), best)
        if key not in self._choices:
            setup, wanted = paper.setups[row.setup], paper.overrides(row)
            groups: dict[str, list[Run]] = {}
            for run in self._by_setting.get((setup.experiment, paper.methods[row.algo].algo), []):
                if _matches(run, wanted, setup):
                    groups.setdefault(run.meta["hash"], []).append(run)
            ordered = sorted(groups.values(), key=lambda g: _quality(g, wanted), reverse=True)
            self._choices[key] = [_matched_runs(g, wanted, setup, best) for g in ordered]
        return self._choices[key]


def _matches(run: Run, wanted: Mapping[str, Any], setup: Setup) -> bool:
    config = leaves(run.config)
    if any(not _equal(config.get(k), v) for k, v in wanted.items() if k != "rounds"):
        return False
    return all(_reducible(k, there, here, config, setup) for k, (there, here) in _departures(run, wanted).items())


def _equal(a: Any, b: Any) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _departures(run: Run, wanted: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the keys in which a run differs from its row: key -> [paper, run]."""
    out = {k: v for k, v in run.meta["departures"].items() if k not in wanted}
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


def _quality(group: list[Run], wanted: Mapping[str, Any]) -> tuple[bool, bool, int, int, str]:
    done, cut = [r for r in group if r.counts], bool(_departures(group[0], wanted))
    # a run that diverged has an outcome too: a shorter run that did not diverge must not replace it
    return (
        any(r.done for r in group),
        not cut,
        int(group[0].config["rounds"]),
        len(done),
        max(r.meta["started"] for r in group),
    )


def _matched_runs(group: list[Run], wanted: Mapping[str, Any], setup: Setup, best: bool) -> MatchedRuns:
    done, others = counted_and_others(group)
    departures = _departures(group[0], wanted)
    found = [
        *config_departures(departures, group[0].meta["model"]),
        *(Departure("setup", text) for text in setup.departs),
    ]
    cuts = {k: config_value(here) for k, (_, here) in departures.items()}
    every = max(r.config.get("eval_every", 1) for r in group)
    if best and every > 1:  # the experiments of such tables evaluate every round
        found.append(Departure("round", every, "all"))
        cuts["eval_every"] = str(every)
    found += seed_departures(done, others, setup.seeds)
    found += data_departures(done.values())
    return MatchedRuns(done, others, tuple(found), tuple(sorted(cuts.items())), group[0].meta["hash"])


def counted_and_others(runs: Iterable[Run]) -> tuple[dict[Unit, Run], tuple[tuple[Unit, str], ...]]:
    """Return the runs of a setting that count, by unit (the first of each), and the others as (unit, outcome)."""
    done: dict[Unit, Run] = {}
    others = []
    for unit, run in sorted(((unit_of(r), r) for r in runs), key=lambda pair: pair[0]):
        if run.counts:
            done.setdefault(unit, run)
        else:
            others.append((unit, run.outcome))
    return done, tuple(others)


def seed_departures(done: Mapping[Unit, Run], others: Iterable[tuple[Unit, str]], wanted: int) -> list[Departure]:
    """Return the departures in the seeds of a row: fewer than the paper averages over, and seeds that diverged."""
    if not done:
        return []
    found = [Departure("seeds", len(done), wanted)] if len(done) < wanted else []
    lost = tuple(unit.seed for unit, what in others if what == "diverged")
    return found + ([Departure("diverged", lost)] if lost else [])


def data_departures(runs: Iterable[Run]) -> list[Departure]:
    """Return a departure for each kind of data that was not read from its publisher's files."""
    return [Departure("data", sentence) for sentence in sorted({s for r in runs for s in r.unofficial})]


def config_departures(departures: Mapping[str, Any], model: str) -> list[Departure]:
    """Return the departures of a run with a model, given its keys that differ as [value of the experiment, its own]."""
    found = []
    other = "model._target_" in departures
    if other:
        there = str(departures["model._target_"][0]).rsplit(".", 1)[-1]
        found.append(Departure("model", model, there))
    return found + [
        Departure(key, here, there)
        for key, (there, here) in departures.items()
        if not (other and key.startswith("model."))
    ]

"""What a report keeps of every run: a row with its configuration and measurements, and its part of the bundle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedbench.analysis.curves import best_rounds, loss_curves, low_and_high
from fedbench.analysis.departures import departures
from fedbench.core.config_values import config_value
from fedbench.core.metrics import CATALOGUE
from fedbench.papers.registry import curve_fields, home_of
from fedbench.runs.bundle import Kept
from fedbench.runs.run import Fields, Run

_IDENTITY = ("seed", "hash", "algo", "data", "model", "experiment", "status")


def run_rows(runs: Sequence[Run], folder: Path) -> list[Fields]:
    """Return a row per run.

    ``path`` is relative to the folder. Keys of the configuration are columns ``config.<dotted key>``. Metrics are those
    of the last round, in the unit of ``rounds.jsonl``. Runs of a table that prints best rounds also have
    ``best_<metric>`` and ``best_round``. Lists are JSON text, and a column whose values are of different types is text
    as typed on the command line.
    """
    configs = _of_one_type([{f"config.{key}": value for key, value in run.flat.items()} for run in runs])
    measured = _of_one_type([run.last_round() if run.done else {} for run in runs])
    return [
        {
            "path": str(run.path.relative_to(folder)),
            **{k: run.meta.get(k) for k in _IDENTITY},
            "reduced": "; ".join(departures([run])),
            **config,
            **last,
            **(_best(run) if run.done else {}),
        }
        for run, config, last in zip(runs, configs, measured, strict=True)
    ]


def _of_one_type(rows: Sequence[Fields]) -> list[Fields]:
    """Return rows that all have every key, with values of one type."""
    kinds: dict[str, set[type]] = {key: set() for row in rows for key in row}
    for row in rows:
        for key, value in row.items():
            if value is not None:
                kinds[key].add(float if type(value) is int else type(value))
    plain = {key for key, found in kinds.items() if found in ({float}, {bool}, {str})}
    return [{key: _value(row.get(key), key in plain) for key in kinds} for row in rows]


def _value(value: Any, plain: bool) -> Any:
    if value is None or plain:
        return value
    return json.dumps(value) if isinstance(value, list | tuple | dict) else config_value(value)


def _best(run: Run) -> Fields:
    found = best_rounds(run, of_best_rounds(run.meta["experiment"]))
    values: Fields = {f"best_{field}": value for field, (_, value) in found.items()}
    return {"best_round": next(iter(found.values()))[0], **values} if found else {}


def of_best_rounds(experiment: str | None) -> list[str]:
    """Return the metrics of which a table of the experiment prints the best round."""
    if (home := home_of(experiment)) is None:
        return []
    tables = (t for t in home.paper.tables.values() if t.round == "best" and home.setup.id in t.setups)
    return list(dict.fromkeys(home.paper.metrics[column].field for table in tables for column in table.columns))


# ---- what a bundle keeps


def kept_of(run: Run) -> Kept:
    """Return what a bundle keeps of a finished run, so that every figure, claim and reading can be computed from it.

    Of a paper's run, these are the first and the best rounds of every metric, the curves that figures and claims read,
    the clients of the best rounds that tables print, and at all rounds the two clients that a figure shows; of a run of
    no paper, everything but most rounds.
    """
    home, experiment = home_of(run.meta["experiment"]), run.meta["experiment"]
    rounds = {int(run.rounds()["round"].iloc[0]), *(number for number, _ in best_rounds(run, CATALOGUE).values())}
    if home is None:
        return Kept(rounds=rounds)
    printed = {number for number, _ in best_rounds(run, of_best_rounds(experiment)).values()}
    shows_two = any(f.kind == "two_clients" and home.setup.id in f.setups for f in home.paper.figures.values())
    two = []
    if shows_two and run.has_clients and not loss_curves(run.clients()).empty:
        two = [curve.name for curve in low_and_high(run.clients())]
    return Kept(curves=curve_fields(home.paper), rounds=rounds, client_rounds=printed, clients=two)

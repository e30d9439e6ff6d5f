"""What a report keeps of every run: a row with its configuration and measurements, and its part of the bundle."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.analysis.curves import best_rounds, loss_curves, low_and_high
from fedbench.analysis.departures import data_departures, departures
from fedbench.core.config_values import config_value
from fedbench.core.metrics import CATALOGUE
from fedbench.papers.registry import curve_fields, home_of
from fedbench.runs.bundle import Kept
from fedbench.runs.run import Fields, Run

_IDENTITY = ("seed", "hash", "algo", "data", "model", "experiment", "status")


def run_rows(runs: Sequence[Run], folder: Path) -> pd.DataFrame:
    """Return a row per run.

    ``path`` is relative to the folder. Keys of the configuration are columns ``config.<dotted
    key>``. Metrics are those of the last round, in the unit of ``rounds.jsonl``. Runs of a table
    that prints best rounds also have ``best_<metric>`` and ``best_round``. Lists are JSON text, and
    a column whose values are of different types is text as typed on the command line.
    """
    rows = []
    for run in runs:
        row: Fields = {"path": str(run.path.relative_to(folder))}
        row |= {key: run.meta.get(key) for key in _IDENTITY}
        row["reduced"] = "; ".join([*departures(run), *data_departures([run])])
        row |= {f"config.{key}": value for key, value in run.flat.items()}
        if run.done:
            row |= run.last_round()
            for name, (at, value) in best_rounds(run, of_best_rounds(row["experiment"])).items():
                row |= {"best_round": at, f"best_{name}": value}
        rows.append(row)
    table = pd.DataFrame(rows)
    for name in map(str, table):
        types = {float if type(value) is int else type(value) for value in table[name].dropna()}
        if types not in ({float}, {bool}, {str}):
            table[name] = table[name].map(_text, na_action="ignore")
    return table


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, list) else config_value(value)


def of_best_rounds(experiment: str | None) -> list[str]:
    """Return the metrics of which a table of the experiment prints the best round."""
    home = home_of(experiment)
    if home is None:
        return []
    tables = home.paper.tables.values()
    best = [table for table in tables if table.round == "best" and home.setup.id in table.setups]
    metrics = (home.paper.metrics[column] for table in best for column in table.columns)
    return list(dict.fromkeys(metric.field for metric in metrics))


# ---- what a bundle keeps


def kept_of(run: Run) -> Kept:
    """Return what a bundle keeps of a finished run, so that every figure, claim and reading can be computed from it.

    Of a paper's run, these are the first and the best rounds of every metric, the curves that
    figures and claims read, the clients of the best rounds that tables print, and at all rounds the
    two clients that a figure shows; of a run of no paper, everything but most rounds.
    """
    experiment = run.meta["experiment"]
    home = home_of(experiment)
    best = {number for number, _ in best_rounds(run, CATALOGUE).values()}
    rounds = {int(run.rounds()["round"].iloc[0]), *best}
    if home is None:
        return Kept(rounds=rounds)
    printed = {number for number, _ in best_rounds(run, of_best_rounds(experiment)).values()}
    figures = [f for f in home.paper.figures.values() if home.setup.id in f.setups]
    shows_two = any(figure.kind == "two_clients" for figure in figures)
    two = []
    if shows_two and run.has_clients and not loss_curves(run.clients()).empty:
        two = [curve.name for curve in low_and_high(run.clients())]
    return Kept(
        curves=curve_fields(home.paper),
        rounds=rounds,
        client_rounds=printed,
        clients=two,
    )

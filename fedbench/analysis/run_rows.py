"""Rows for the runs of a report, and the parts of runs that a bundle keeps."""

import json
from collections.abc import Iterable, Sequence
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
_BEYOND_INTEGERS = 2**63  # Parquet stores smaller integers


def run_rows(runs: Sequence[Run], folder: Path) -> pd.DataFrame:
    """Return a table with a row per run.

    ``path`` is relative to the folder. Configuration keys become columns ``config.<dotted key>``.
    ``plans`` is a JSON object with the digest of each plan that asked for the run. Metrics are
    those of the last round, in the unit of ``rounds.jsonl``. Runs of a table that prints best
    rounds also have ``best_<metric>`` and ``best_round``. Lists are stored as JSON text, and
    columns with values of different types as text in command-line syntax.
    """
    rows = []
    for run in runs:
        row: Fields = {"path": str(run.path.relative_to(folder))}
        row |= {key: run.meta.get(key) for key in _IDENTITY}
        reduced = [*departures(run), *data_departures([run])]
        row["reduced"] = "; ".join(reduced)
        row["plans"] = json.dumps(run.meta.get("plans", {}))
        row |= {f"config.{key}": value for key, value in run.flat.items()}
        if run.done:
            row |= run.last_round()
            best = best_rounds(run, of_best_rounds(row["experiment"]))
            for name, (number, value) in best.items():
                row |= {"best_round": number, f"best_{name}": value}
        rows.append(row)
    table = pd.DataFrame(rows)
    for name in map(str, table):
        values = table[name].dropna()
        types = set(map(type, values))
        is_number = bool(types) and types <= {int, float}
        if is_number and max(map(abs, values)) >= _BEYOND_INTEGERS:
            table[name] = table[name].astype(float)
        if not is_number and types not in ({bool}, {str}):
            table[name] = table[name].map(_text, na_action="ignore")
    return table


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, list) else config_value(value)


def of_best_rounds(experiment: str | None) -> list[str]:
    """Return the metrics for which a table of the experiment prints the best round."""
    home = home_of(experiment)
    if home is None:
        return []
    fields: dict[str, None] = {}
    for table in home.paper.tables.values():
        if table.round == "best" and home.setup.id in table.setups:
            for column in table.columns:
                fields[home.paper.metrics[column].field] = None
    return list(fields)


# ---- contents of a bundle


def kept_of(run: Run) -> Kept:
    """Return the parts of a finished run that a bundle keeps.

    Figures, claims and readings need no other parts. For a run of a paper, these are the first and
    the best rounds of every metric, the curves that figures and claims read, the clients of the
    best rounds that tables print, and all rounds of the two clients that a figure shows. For any
    other run, everything is kept except most of the rounds.
    """
    experiment = run.meta["experiment"]
    home = home_of(experiment)
    first = int(run.rounds()["round"].iloc[0])
    rounds = {first, *_numbers(run, CATALOGUE)}
    if home is None:
        return Kept(rounds=rounds)
    figures = home.paper.figures.values()
    kinds = {figure.kind for figure in figures if home.setup.id in figure.setups}
    two = []
    if "two_clients" in kinds and run.has_clients:
        clients = run.clients()
        if not loss_curves(clients).empty:
            two = [curve.name for curve in low_and_high(clients)]
    return Kept(
        curves=curve_fields(home.paper),
        rounds=rounds,
        client_rounds=_numbers(run, of_best_rounds(experiment)),
        clients=two,
    )


def _numbers(run: Run, names: Iterable[str]) -> set[int]:
    """Return the round numbers of the best rounds of some metrics."""
    return {number for number, _ in best_rounds(run, names).values()}

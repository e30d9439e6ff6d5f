"""A row per run: its identity, its whole configuration and its measurements."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedbench.analysis.departures import departure_texts
from fedbench.analysis.measured import best_round
from fedbench.analysis.tables import departures
from fedbench.core.files import config_value
from fedbench.papers.registry import home_of
from fedbench.papers.schema import PrintedMetric
from fedbench.runs.run import Fields, Run

_IDENTITY = ("seed", "hash", "algo", "data", "model", "experiment", "status")


def run_rows(runs: Sequence[Run], folder: Path) -> list[Fields]:
    """Return a row per run.

    ``path`` is relative to the folder. Keys of the configuration are columns ``config.<dotted key>``: lists are JSON
    text, and a column whose values are of different types is text as typed on the command line. Metrics are those of
    the last round, in the unit of ``rounds.jsonl``. Runs of a table that prints best rounds also have ``best_<metric>``
    and ``best_round``.
    """
    columns = _typed([run.flat for run in runs])
    measured = _as_table([run.last_round() if run.done else {} for run in runs])
    return [
        {
            "path": str(run.path.relative_to(folder)),
            **{k: run.meta.get(k) for k in _IDENTITY},
            "reduced": "; ".join(departure_texts(departures([run]))),
            **{f"config.{k}": v for k, v in config.items()},
            **last,
            **(_best(run) if run.done else {}),
        }
        for run, config, last in zip(runs, columns, measured, strict=True)
    ]


def _as_table(rows: Sequence[Fields]) -> list[Fields]:
    """Return rows whose values of a key have one type: text, as in JSON, for all that are not numbers."""
    kinds: dict[str, set[str]] = {}
    for row in rows:
        for key, value in row.items():
            if value is not None:
                kinds.setdefault(key, set()).add(type(value).__name__)
    texts = {key for key, found in kinds.items() if not (found <= {"int", "float"} or found in ({"bool"}, {"str"}))}
    return [{k: json.dumps(v) if k in texts and v is not None else v for k, v in row.items()} for row in rows]


def _typed(configs: Sequence[Fields]) -> list[Fields]:
    """Return configurations in which every key has values of one type, and all have every key."""
    keys = dict.fromkeys(k for config in configs for k in config)
    mixed = {k for k in keys if len({_kind(c[k]) for c in configs if c.get(k) is not None}) > 1}
    return [{k: _value(config.get(k), k in mixed) for k in keys} for config in configs]


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else "text"


def _value(value: Any, as_text: bool) -> Any:
    if value is None:
        return None
    if isinstance(value, list | tuple | dict):
        return json.dumps(value)
    if as_text:
        return config_value(value)
    return float(value) if isinstance(value, float) or (isinstance(value, int) and abs(value) >= 2**63) else value


def _best(run: Run) -> Fields:
    found: Fields = {}
    for metric in of_best_rounds(run.meta["experiment"]):
        if (best := best_round(run, metric)) is not None:
            found.setdefault("best_round", best[0])
            found[f"best_{metric.field}"] = best[1]
    return found


def of_best_rounds(experiment: str | None) -> Iterable[PrintedMetric]:
    """Return the metrics of which a table of the experiment prints the best round."""
    if (home := home_of(experiment)) is None:
        return ()
    tables = (t for t in home.paper.tables.values() if t.round == "best" and home.setup.id in t.setups)
    return dict.fromkeys(home.paper.metrics[column] for table in tables for column in table.columns)

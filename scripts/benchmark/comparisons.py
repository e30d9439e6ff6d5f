"""What the fairness benchmark has measured, as a table of runs and a record of the searches, which can be published.

The results directory of a setting has the runs, the trials below ``tuning``, a file per table and
method in ``entries``, which says what was searched and chosen, and ``refused.json`` with the
methods that cannot run in it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedbench.core.atomic_files import replace_file
from fedbench.core.errors import RequestError
from fedbench.runs.results import TUNING, Results
from fedbench.runs.run import Fields, Run

RUNS, TUNED, ENTRIES = "runs.parquet", "tuning.json", "entries"
# weights of the clients, and the metric on validation examples that values are chosen by
TABLES = {
    "uniform": ("uniform", "val_accuracy_mean"),
    "size": ("size", "val_accuracy_mean"),
    "worst10": ("uniform", "val_accuracy_worst10"),
}
MEASURED = (
    "accuracy_mean", "accuracy_worst10", "accuracy_worst30", "accuracy_std", "angle_degrees", "bytes_up", "bytes_down",
)  # fmt: skip
_PROTOCOL = (
    "model._target_", "rounds", "participation", "local.batch_size", "local.epochs", "local.steps", "data.clients",
    "data.seed", "engine.precision",
)  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """One trial of a search.

    Attributes:
        values: The values by key.
        scores: The metrics of ``TABLES`` on validation examples after the last round; None if the
            run diverged.
    """

    values: dict[str, Any]
    scores: dict[str, float | None]


@dataclass(frozen=True)
class Comparisons:
    """What has been measured.

    Attributes:
        runs: A row per table and run: ``table``, ``setting``, ``method``, ``seed``, ``outcome``,
            ``rounds``, ``hash``, and the columns ``MEASURED`` of the last round, which are missing
            unless the outcome is done.
        searches: Per setting, its protocol, refusals, data, environment, hours, and per table and
            method its entry.
    """

    runs: pd.DataFrame
    searches: dict[str, Fields]

    @property
    def settings(self) -> list[str]:
        """The settings, in the order in which they were given."""
        return list(self.searches)

    def methods(self, table: str) -> list[str]:
        """Return the methods of a table, in alphabetical order, with those that a setting refuses."""
        here = [search for search in self.searches.values() if table in search["tables"]]
        refused = [search["refused"] for search in here if table != "size"]
        return sorted(
            {
                method
                for found in (*(s["tables"][table] for s in here), *refused)
                for method in found
            }
        )

    def values(self, table: str, setting: str, metric: str, methods: Sequence[str]) -> np.ndarray:
        """Return a metric [S, M] of the last round per seed and method; NaN where there is no such number."""
        here = self.runs[(self.runs["table"] == table) & (self.runs["setting"] == setting)]
        seeds = sorted(self.runs["seed"][self.runs["setting"] == setting].unique())
        wide = here.pivot(index="seed", columns="method", values=metric).reindex(
            index=seeds, columns=list(methods)
        )
        return wide.to_numpy(dtype=float)


def collect(folders: Sequence[Path]) -> Comparisons:
    """Read what has been measured.

    Args:
        folders: The results directories, one setting each.

    Raises:
        RequestError: If a directory has no entries, runs that cannot be read, or the setting of
            another.
    """
    rows: list[Fields] = []
    searches: dict[str, Fields] = {}
    for folder in folders:
        entries = [
            json.loads(file.read_text(encoding="utf-8"))
            for file in sorted((folder / ENTRIES).glob("*.json"))
        ]
        if not entries:
            raise RequestError(
                f"{folder} has no entries of a benchmark; scripts/fairness_benchmark.py makes them"
            )
        store = Results(folder)
        runs: dict[tuple[str, str], list[Run]] = {}
        for run in store:
            runs.setdefault((str(run.meta["algo"]), str(run.meta["hash"])), []).append(run)
        if store.damaged:
            raise RequestError(f"{folder} has runs that cannot be read: {store.damaged[0]}")
        setting = str(next(iter(store)).meta["experiment"])
        if setting in searches:
            raise RequestError(
                f"{folder} has the setting {setting} a second time; give one directory per setting"
            )
        used = [(e, run) for e in entries for run in runs.get((e["method"], e["digest"]), [])]
        rows += [_row(entry["table"], setting, run) for entry, run in used]
        searches[setting] = _searches(folder, [run for _, run in used], entries)
    frame = pd.DataFrame(rows)
    order = {name: i for i, name in enumerate((*TABLES, *searches))}
    frame = frame.sort_values(
        ["table", "setting", "method", "seed"],
        key=lambda c: c.map(order) if c.name in _NAMED else c,
    )
    return Comparisons(frame.reset_index(drop=True), searches)


_NAMED = ("table", "setting")


def save(found: Comparisons, folder: Path) -> None:
    """Write what has been measured to two files of a directory; the same measurements give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    found.runs.to_parquet(buffer, index=False)
    replace_file(folder / RUNS, buffer.getvalue())
    replace_file(folder / TUNED, json.dumps(found.searches) + "\n")


def load(folder: Path) -> Comparisons:
    """Read what ``save`` has written.

    Raises:
        RequestError: If the files are missing or cannot be read.
    """
    try:
        return Comparisons(
            pd.read_parquet(folder / RUNS), json.loads((folder / TUNED).read_text(encoding="utf-8"))
        )
    except (OSError, ValueError) as error:
        raise RequestError(f"{folder} needs {RUNS} and {TUNED} of a benchmark: {error}") from error


def _row(table: str, setting: str, run: Run) -> Fields:
    last = run.last_round() if run.outcome == "done" else {}
    named = {
        "table": table,
        "setting": setting,
        "method": str(run.meta["algo"]),
        "seed": int(run.meta["seed"]),
    }
    facts = {"outcome": run.outcome, **{k: run.meta.get(k) for k in ("hash", "rounds")}}
    return {
        **named,
        **facts,
        **{k: None if (v := last.get(k)) is None or np.isnan(v) else float(v) for k in MEASURED},
    }


def _searches(folder: Path, runs: Sequence[Run], entries: Sequence[Fields]) -> Fields:
    first = runs[0]
    tables: dict[str, Fields] = {}
    for entry in entries:
        tables.setdefault(entry["table"], {})[entry["method"]] = {
            k: v for k, v in entry.items() if k not in ("table", "method")
        }
    places = sorted((folder / TUNING / "studies").glob("**/runs"))
    hours = sum(_hours(run) for place in (folder, *places) for run in Results(place))
    return {
        "protocol": {k: first.flat.get(k) for k in _PROTOCOL if first.flat.get(k) is not None},
        "clients": first.meta.get("clients"),
        "parameters": first.meta.get("parameters"),
        "sources": list(first.meta.get("sources", ())),
        "unofficial": list(first.unofficial),
        "environment": _environment(runs),
        "hours": round(hours, 2),
        "refused": json.loads((folder / "refused.json").read_text(encoding="utf-8")),
        "tables": tables,
    }


def _hours(run: Run) -> float:
    """Return how long a run took, from its start to its end; 0 for one that has not ended."""
    if not run.meta.get("ended"):
        return 0.0
    started, ended = (datetime.fromisoformat(str(run.meta[k])) for k in ("started", "ended"))
    return (ended - started).total_seconds() / 3600


def _environment(runs: Sequence[Run]) -> dict[str, str]:
    """Return versions, platform and commits of runs; several values are joined."""
    found: dict[str, set[str]] = {}
    for run in runs:
        facts = {
            **run.meta.get("versions", {}),
            "platform": run.meta.get("platform"),
            "commit": run.meta["git_commit"],
        }
        for name, value in facts.items():
            found.setdefault(name, set()).add(str(value))
    return {name: ", ".join(sorted(values)) for name, values in found.items()}

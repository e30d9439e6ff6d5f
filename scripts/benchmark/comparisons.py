"""Measurements of the fairness benchmark: a table of runs and a record of the searches.

Both can be published. The results directory of a setting has the runs, the trials below ``tuning``,
a file per table and method in ``entries`` with the search and its choice, and ``refused.json`` with
the methods that cannot run in the setting.
"""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd

from fedbench.core.atomic_files import replace_file
from fedbench.core.errors import RequestError
from fedbench.runs.results import TUNING, Results
from fedbench.runs.run import Fields, Run

RUNS = "runs.parquet"
TUNED = "tuning.json"
ENTRIES = "entries"
REFUSED = "refused.json"
# weights of the clients, and the metric on validation examples that chooses the values
TABLES = {
    "uniform": ("uniform", "val_accuracy_mean"),
    "size": ("size", "val_accuracy_mean"),
    "worst10": ("uniform", "val_accuracy_worst10"),
}
MEASURED = (
    "accuracy_mean",
    "accuracy_worst10",
    "accuracy_worst30",
    "accuracy_std",
    "angle_degrees",
    "bytes_up",
    "bytes_down",
)
_PROTOCOL = (
    "model._target_",
    "rounds",
    "participation",
    "local.batch_size",
    "local.epochs",
    "local.steps",
    "data.clients",
    "data.seed",
    "engine.precision",
)


@dataclass(frozen=True)
class Comparisons:
    """The measurements.

    Attributes:
        runs: A row per table and run: ``table``, ``setting``, ``method``, ``seed``, ``outcome``,
            ``rounds``, ``hash``, and the columns ``MEASURED`` of the last round, which are missing
            unless the outcome is done.
        searches: Per setting, its protocol, refusals, data, environment and hours, and the entry of
            every table and method.
    """

    runs: pd.DataFrame
    searches: dict[str, Fields]

    @property
    def settings(self) -> list[str]:
        """The settings, in the order in which they were given."""
        return list(self.searches)

    def methods(self, table: str) -> list[str]:
        """Return the methods of a table by name, with the methods that a setting refuses."""
        methods: set[str] = set()
        for search in self.searches.values():
            tables = search["tables"]
            if table not in tables:
                continue
            methods |= tables[table].keys()
            if table != "size":
                methods |= search["refused"].keys()
        return sorted(methods)

    def runs_of(self, table: str, setting: str) -> pd.DataFrame:
        """Return the rows of a table in a setting."""
        in_table = self.runs["table"] == table
        in_setting = self.runs["setting"] == setting
        return self.runs[in_table & in_setting]

    def values(
        self,
        table: str,
        setting: str,
        metric: str,
        methods: Sequence[str],
    ) -> np.ndarray:
        """Return a metric of the last round [S, M] per seed and method; NaN where it is missing."""
        in_setting = self.runs["setting"] == setting
        seeds = sorted(self.runs["seed"][in_setting].unique())
        wide = self.runs_of(table, setting).pivot(
            index="seed",
            columns="method",
            values=metric,
        )
        wide = wide.reindex(index=seeds, columns=list(methods))
        return wide.to_numpy(dtype=float)


def collect(folders: Sequence[Path]) -> Comparisons:
    """Read the measurements.

    Args:
        folders: The results directories, one setting each.

    Raises:
        RequestError: If a directory has no entries, runs that cannot be read, or the setting of
            another.
    """
    rows: list[Fields] = []
    searches: dict[str, Fields] = {}
    for folder in folders:
        entries = _entries(folder)
        results = Results(folder)
        runs = list(results)
        if results.damaged:
            raise RequestError(f"{folder} has runs that cannot be read: {results.damaged[0]}")

        setting = str(runs[0].meta["experiment"])
        if setting in searches:
            raise RequestError(
                f"{folder} has the setting {setting} a second time; give one directory per setting"
            )
        used = []
        for entry in entries:
            table = entry["table"]
            chosen = (entry["method"], entry["digest"])
            for run in runs:
                if (run.meta["algo"], run.meta["hash"]) == chosen:
                    used.append(run)
                    rows.append({"table": table, "setting": setting, **_facts(run)})
        searches[setting] = _search(folder, used, entries)

    frame = pd.DataFrame(rows)
    measured = list(MEASURED)
    frame[measured] = frame[measured].astype(float)
    for column, order in (("table", TABLES), ("setting", searches)):
        frame[column] = pd.Categorical(frame[column], list(order))
    frame = frame.sort_values(["table", "setting", "method", "seed"], ignore_index=True)
    names = ["table", "setting"]
    frame[names] = frame[names].astype(str)
    return Comparisons(frame, searches)


def _entries(folder: Path) -> list[Fields]:
    entries = []
    for file in sorted((folder / ENTRIES).glob("*.json")):
        entries.append(json.loads(file.read_text(encoding="utf-8")))
    if not entries:
        raise RequestError(
            f"{folder} has no entries of a benchmark; scripts/fairness_benchmark.py makes them"
        )
    return entries


def save(comparisons: Comparisons, folder: Path) -> None:
    """Write measurements to two files of a directory; equal measurements give equal bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    comparisons.runs.to_parquet(buffer, index=False)
    replace_file(folder / RUNS, buffer.getvalue())
    replace_file(folder / TUNED, json.dumps(comparisons.searches) + "\n")


def load(folder: Path) -> Comparisons:
    """Read the files that ``save`` writes.

    Raises:
        RequestError: If the files are missing or cannot be read.
    """
    try:
        runs = pd.read_parquet(folder / RUNS)
        searches = json.loads((folder / TUNED).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RequestError(f"{folder} needs {RUNS} and {TUNED} of a benchmark: {error}") from error
    return Comparisons(runs, searches)


def _facts(run: Run) -> Fields:
    last = run.last_round() if run.outcome == "done" else {}
    facts = {
        "method": str(run.meta["algo"]),
        "seed": int(run.meta["seed"]),
        "outcome": run.outcome,
        "hash": run.meta["hash"],
        "rounds": run.meta.get("rounds"),
    }
    return facts | {metric: last.get(metric) for metric in MEASURED}


def _search(
    folder: Path,
    runs: Sequence[Run],
    entries: Sequence[Fields],
) -> Fields:
    """Return the record of a setting: its protocol, its environment and its entries."""
    tables: dict[str, Fields] = {}
    for entry in entries:
        facts = dict(entry)
        table = facts.pop("table")
        method = facts.pop("method")
        tables.setdefault(table, {})[method] = facts

    studies = sorted((folder / TUNING / "studies").glob("**/runs"))
    hours = 0.0
    for place in (folder, *studies):
        hours += sum(map(_hours, Results(place)))

    first = runs[0]
    protocol = {}
    for key in _PROTOCOL:
        value = first.flat.get(key)
        if value is not None:
            protocol[key] = value
    refused = (folder / REFUSED).read_text(encoding="utf-8")
    return {
        "protocol": protocol,
        "clients": first.meta.get("clients"),
        "parameters": first.meta.get("parameters"),
        "sources": list(first.meta.get("sources", ())),
        "unofficial": list(first.unofficial),
        "environment": _environment(runs),
        "hours": round(hours, 2),
        "refused": json.loads(refused),
        "tables": tables,
    }


def _hours(run: Run) -> float:
    """Return the time of a run from its start to its end; 0 for a run that has not ended."""
    if not run.meta.get("ended"):
        return 0.0
    started = datetime.fromisoformat(str(run.meta["started"]))
    ended = datetime.fromisoformat(str(run.meta["ended"]))
    return (ended - started).total_seconds() / 3600


def _environment(runs: Sequence[Run]) -> dict[str, str]:
    """Return versions, platform and commits of runs; several values are joined."""
    environment: dict[str, set[str]] = {}
    for run in runs:
        facts = {
            **run.meta.get("versions", {}),
            "platform": run.meta.get("platform"),
            "commit": run.meta["git_commit"],
        }
        for name, value in facts.items():
            values = environment.setdefault(name, set())
            values.add(str(value))
    return {name: ", ".join(sorted(values)) for name, values in environment.items()}

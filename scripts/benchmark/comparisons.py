"""Finished comparisons (``fedbench compare``) as a table of runs and a record of their tuning, which can be published.

A comparison is a results directory with the runs of its table, those with ``tuned_on``, and the studies below
``tuning``. Its file ``refused.json``, if there is one, has the methods that cannot run in the setting, with the reason.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedbench.core.errors import RequestError
from fedbench.core.files import replace_file
from fedbench.runs.results import TUNING, Results
from fedbench.runs.run import Fields, Run

RUNS, TUNED, ENTRIES = "runs.parquet", "tuning.json", "entries"
TABLES = {  # weights of the clients, and the metric on validation examples that values are chosen by
    "uniform": ("uniform", "val_accuracy_mean"),
    "size": ("size", "val_accuracy_mean"),
    "worst10": ("uniform", "val_accuracy_worst10"),
}
MEASURED = (
    "accuracy_mean", "accuracy_worst10", "accuracy_worst30", "accuracy_std", "angle_degrees", "bytes_up", "bytes_down",
    "seconds_train",
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
        scores: The metrics of ``TABLES`` on validation examples after the last round; None if the run diverged.
        seconds: Its time, from start to end.
    """

    values: dict[str, Any]
    scores: dict[str, float | None]
    seconds: float


@dataclass(frozen=True)
class Comparisons:
    """What finished comparisons have measured.

    Attributes:
        runs: A row per run of the tables: ``setting``, ``method``, ``seed``, ``outcome``, ``rounds``, ``hash``,
            ``seconds``, and the columns ``MEASURED`` of the last round, which are missing unless the outcome is done.
        tuning: Per setting, its protocol, refusals, data, environment, and the study of every method.
    """

    runs: pd.DataFrame
    tuning: dict[str, Fields]

    @property
    def settings(self) -> list[str]:
        """The settings, in the order in which they were given."""
        return list(self.tuning)

    def methods(self) -> list[str]:
        """Return all methods that were tuned, run or refused, in alphabetical order."""
        named = {m for t in self.tuning.values() for m in (*t["studies"], *t["refused"])}
        return sorted(named | set(self.runs["method"]))

    def values(self, setting: str, metric: str, methods: Sequence[str]) -> np.ndarray:
        """Return a metric [S, M] of the last round per seed and method; NaN where there is no such number."""
        here = self.runs[self.runs["setting"] == setting]
        table = here.pivot(index="seed", columns="method", values=metric).reindex(columns=list(methods))
        return table.to_numpy(dtype=float)


def collect(folders: Sequence[Path]) -> Comparisons:
    """Read finished comparisons.

    Args:
        folders: Their results directories, one setting each.

    Raises:
        RequestError: If a directory has no comparison, or two of one setting or method.
    """
    rows: list[Fields] = []
    tuning: dict[str, Fields] = {}
    for folder in folders:
        store = Results(folder)
        runs = [run for run in store if run.config.get("tuned_on")]
        if store.damaged:
            raise RequestError(f"{folder} has runs that cannot be read: {store.damaged[0]}")
        if not runs:
            raise RequestError(f"{folder} has no runs of a comparison; run fedbench compare with results_dir={folder}")
        names = {str(run.meta["experiment"] or run.meta["data"]) for run in runs}
        if len(names) > 1 or names & tuning.keys():
            raise RequestError(f"{folder} has the settings {', '.join(sorted(names))}; give one directory per setting")
        setting = names.pop()
        here = [_row(setting, run) for run in runs]
        if twice := [k for k, n in pd.DataFrame(here).value_counts(["method", "seed"]).items() if n > 1]:
            raise RequestError(
                f"{folder} has several runs of {twice[0]}: it has comparisons of different budgets or spaces; "
                "use a directory of its own for each"
            )
        rows += here
        tuning[setting] = _tuning(folder, setting, runs)
    frame = pd.DataFrame(rows).sort_values(["setting", "method", "seed"], key=_order(list(tuning)))
    return Comparisons(frame.reset_index(drop=True), tuning)


def save(found: Comparisons, folder: Path) -> None:
    """Write comparisons to two files of a directory; the same comparisons give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    found.runs.to_parquet(buffer, index=False)
    replace_file(folder / RUNS, buffer.getvalue())
    replace_file(folder / TUNED, json.dumps(found.tuning, indent=1, sort_keys=False) + "\n")


def load(folder: Path) -> Comparisons:
    """Read what ``save`` has written.

    Raises:
        RequestError: If the files are missing or cannot be read.
    """
    try:
        return Comparisons(pd.read_parquet(folder / RUNS), json.loads((folder / TUNED).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise RequestError(f"{folder} needs {RUNS} and {TUNED} of comparisons: {error}") from error


def _order(settings: list[str]) -> Any:
    def key(column: pd.Series) -> pd.Series:
        return column.map(settings.index) if column.name == "setting" else column

    return key


def _row(setting: str, run: Run) -> Fields:
    last = run.last_round() if run.outcome == "done" else {}
    facts = {k: run.meta.get(k) for k in ("hash", "rounds")}
    named = {"setting": setting, "method": str(run.meta["algo"]), "seed": int(run.meta["seed"])}
    return {
        **named,
        "outcome": run.outcome,
        **facts,
        "seconds": seconds_of(run),
        **{k: None if (v := last.get(k)) is None or np.isnan(v) else float(v) for k in MEASURED},
    }


def seconds_of(run: Run) -> float:
    """Return how long a run took, from its start to its end; 0 for one that has not ended."""
    if not run.meta.get("ended"):
        return 0.0
    started, ended = (datetime.fromisoformat(str(run.meta[k])) for k in ("started", "ended"))
    return (ended - started).total_seconds()


def _tuning(folder: Path, setting: str, runs: Sequence[Run]) -> Fields:
    first = runs[0]
    refused = folder / "refused.json"
    return {
        "protocol": {k: first.flat.get(k) for k in _PROTOCOL if first.flat.get(k) is not None},
        "clients": first.meta.get("clients"),
        "parameters": first.meta.get("parameters"),
        "sources": list(first.meta.get("sources", ())),
        "unofficial": list(first.unofficial),
        "environment": _environment(runs),
        "refused": json.loads(refused.read_text(encoding="utf-8")) if refused.exists() else {},
        "studies": _studies(folder, setting, runs),
    }


def _studies(folder: Path, setting: str, runs: Sequence[Run]) -> dict[str, Fields]:
    """Return the search of every method, from the tables that the command has written next to the trials' runs."""
    studies: dict[str, Fields] = {}
    for file in sorted((folder / TUNING / "tables").glob("*/tuned.json")):
        found = json.loads(file.read_text(encoding="utf-8"))
        for method, tuned in found["methods"].items():
            if method in studies:
                raise RequestError(f"{folder} has several searches; use a directory of its own for each budget")
            places = (folder / TUNING / "studies" / setting / method).glob("*/runs")
            mine = [run for run in runs if run.meta["algo"] == method]
            keys = [axis.partition("=")[0] for axis in tuned["space"]]
            studies[method] = {
                "metric": found["metric"],
                "seeds": found["seeds"],
                "space": tuned["space"],
                "trials": [{"values": t["values"], "score": _score(t["scores"])} for t in tuned["trials"]],
                "chosen": {key: mine[0].flat.get(key) for key in keys} if mine else None,
                "seconds": sum(seconds_of(run) for place in places for run in Results(place)),
            }
    return studies


def _score(scores: Mapping[str, Sequence[float | None]]) -> float | None:
    """Return the mean score of a trial after its last rung; None if a run of it diverged or failed."""
    last = scores[max(scores, key=int)]
    known = [score for score in last if score is not None]
    return sum(known) / len(known) if len(known) == len(last) else None


def _environment(runs: Sequence[Run]) -> dict[str, str]:
    """Return versions, platform and commits of runs; several values are joined."""
    found: dict[str, set[str]] = {}
    for run in runs:
        facts = {**run.meta.get("versions", {}), "platform": run.meta.get("platform"), "commit": run.meta["git_commit"]}
        for name, value in facts.items():
            found.setdefault(name, set()).add(str(value))
    return {name: ", ".join(sorted(values)) for name, values in found.items()}

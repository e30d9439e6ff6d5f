"""Runs on disk as pandas frames."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.core.errors import RequestError
from fedbench.core.paths import user_path
from fedbench.runs.bundle import stored
from fedbench.runs.records import DamagedRun
from fedbench.runs.store import Run

IDENTITY = ["setting", "algo", "hash", "seed"]
_FACTS = ("status", "experiment", "data", "model", "algo", "hash", "seed")


@dataclass(frozen=True)
class Results:
    """The runs below a directory.

    Attributes:
        runs: A row per run: its path, status, choices and identity (``setting``, ``algo``, ``hash``, ``seed``), and a
            column per configuration key, such as ``local.lr``.
        rounds: A row per run and evaluated round: the identity, then the columns of ``rounds.jsonl``.
        clients: A row per run, kept round and client: the identity, then the columns of ``clients.parquet``.
        damaged: Messages about runs that cannot be read; they are in none of the frames.
    """

    runs: pd.DataFrame
    rounds: pd.DataFrame
    clients: pd.DataFrame
    damaged: tuple[str, ...]


def load_results(directory: str | Path = "results") -> Results:
    """Return the runs below a directory as pandas frames; runs that are not done are included with their status.

    Of the runs of a published report, ``rounds`` and ``clients`` have those rounds that its bundle keeps.

    Join the frames on the columns ``setting``, ``algo``, ``hash`` and ``seed``.

    Raises:
        RequestError: If there is no such directory, or its bundle is damaged.
    """
    if not isinstance(directory, str | Path):
        raise RequestError(f"directory must be a path, got {directory!r}")
    root = user_path("directory", directory)
    if not root.is_dir():
        raise RequestError(f"{root} is not a directory; give a directory with runs below it")
    store = stored(root)
    runs: list[dict[str, Any]] = []
    rounds: list[pd.DataFrame] = []
    clients: list[pd.DataFrame] = []
    damaged: list[str] = []
    for run in store:
        try:
            tables = _tables(run) if run.done else [_so_far(run)]
        except DamagedRun as error:
            damaged.append(str(error))
            continue
        row = _row(run)
        runs.append(row)
        for table, found in zip(tables, (rounds, clients), strict=False):
            found.append(_labelled(table, row))
    return Results(
        pd.DataFrame(runs, columns=_columns(runs)), _joined(rounds), _joined(clients), (*store.damaged, *damaged)
    )


def _row(run: Run) -> dict[str, Any]:
    facts = {k: run.meta.get(k) for k in _FACTS}
    setting = facts["experiment"] or facts["data"]
    config = {k: v for k, v in run.flat.items() if k not in facts}
    return {"path": str(run.path), "setting": setting, **facts, **config}


def _columns(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return the columns of rows in the order of their first appearance."""
    return list(dict.fromkeys(["path", "setting", *_FACTS, *(k for row in rows for k in row)]))


def _tables(run: Run) -> list[pd.DataFrame]:
    """Return the rounds and the per-client table of a run; of one in a bundle, what is kept of them."""
    rounds = run.rounds()
    return [rounds, run.clients_at(rounds["round"])]


def _so_far(run: Run) -> pd.DataFrame:
    """Return the rounds of a run that is not done: none if it has not been evaluated yet."""
    return run.rounds() if run.records.begun else pd.DataFrame()


def _labelled(table: pd.DataFrame, row: dict[str, Any]) -> pd.DataFrame:
    """Return a table with the identity of its run in front."""
    labels = pd.DataFrame({k: [row[k]] * len(table) for k in IDENTITY}, index=table.index)
    return pd.concat([labels, table], axis=1)


def _joined(tables: list[pd.DataFrame]) -> pd.DataFrame:
    filled = [t for t in tables if len(t)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=IDENTITY)

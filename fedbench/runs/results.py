"""The runs below a directory, including those of published reports; also as pandas frames."""

import os
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.core.errors import RequestError
from fedbench.core.files import user_path
from fedbench.runs.bundle import DOCUMENTS, Bundle, is_bundle
from fedbench.runs.run import DamagedRun, Run, begun_runs, read_run

PUBLISHED = "published"  # directory of published reports, below the results
TUNING = "tuning"  # directory of ``fedbench tune``, below the results
STUDIES = "studies"  # directory of its runs
CHECKS = "checks"  # directory of runs that repeat those of a benchmark NAME@VERSION
IDENTITY = ["setting", "algo", "hash", "seed"]
_FACTS = ("status", "experiment", "data", "model", "algo", "hash", "seed")


class Results:
    """The runs below a directory, or the runs in the bundle of a published report.

    If several runs have the same setting and seed, only the first one counts. A finished run in its
    own directory takes precedence over a published run, and a published run over the directory of
    an unfinished run. Runs below ``tuning/studies`` are not results, because they were used to
    choose values, nor are those below ``checks/NAME@VERSION``, which repeat others.

    Args:
        root: The directory.
        published: Names of the published reports whose runs are added. From ``published/<name>``
            below the directory, the runs of the experiments ``<name>/...`` are added.

    Attributes:
        damaged: Messages about runs that were left out in the last iteration, with paths relative
            to the directory.

    Raises:
        RequestError: If the directory contains a damaged bundle. Methods raise it for damaged
            bundles below the directory.
    """

    def __init__(
        self,
        root: Path,
        published: Collection[str] = (),
    ) -> None:
        self.root = root
        self.damaged: list[str] = []
        self.bundle = Bundle(root) if is_bundle(root) else None
        self._names = published
        self.published = cache(self._read_published)

    def __iter__(self) -> Iterator[Run]:
        if self.bundle is not None:
            self.damaged = list(self.bundle.damaged)
            yield from self.bundle.runs()
            return
        self.damaged = []
        runs = {run.path: run for run in self._local_runs()}
        finished: set[Any] = set()
        for run in runs.values():
            if run.done:
                finished |= {run.path, run.identity}
        for name in self._names:
            for path, run in self.published(name).items():
                if not {path, run.identity} & finished:
                    runs[path] = run
        for path in sorted(runs):
            yield runs[path]

    def _local_runs(self) -> Iterator[Run]:
        """Yield the readable runs that have their own directory, without copies of other runs."""
        seen: dict[tuple[Any, ...], Path] = {}
        for path in begun_runs(self.root):
            if _is_no_result(path.relative_to(self.root)):
                continue
            try:
                run = readable_run(path)
                if run.done and seen.setdefault(run.identity, path) != path:
                    first = seen[run.identity]
                    raise DamagedRun(
                        f"{path}: a copy of {first}: the same setting and the same seed"
                    )
            except DamagedRun as error:
                self.damaged.append(str(error).replace(f"{self.root}{os.sep}", ""))
            else:
                yield run

    def _read_published(self, name: str) -> dict[Path, Run]:
        """Return the finished runs of a published report by their paths below this directory."""
        place = self.root / PUBLISHED / name
        if not is_bundle(place):
            return {}
        runs = {}
        for run in Bundle(place, home=self.root).runs():
            if run.done and run.path.is_relative_to(self.root / name):
                runs[run.path] = run
        return runs


def _is_no_result(path: Path) -> bool:
    """Return whether a run was made to choose values, or repeats another one."""
    for folder, inside in pairwise(path.parts):
        if (folder == TUNING and inside == STUDIES) or (folder == CHECKS and "@" in inside):
            return True
    return False


def readable_run(path: Path) -> Run:
    """Return the run in a directory, after checking that all its tables can be read.

    Raises:
        DamagedRun: If one of its files cannot be read.
    """
    run = read_run(path)
    if not run.done and run.meta["status"] in ("done", "diverged"):
        raise DamagedRun(
            f"{path}: DONE is missing, which is written last; run the same command again"
        )
    if run.begun:
        run.rounds()
    if run.done and run.has_clients:
        run.clients()
    for name in DOCUMENTS:
        run.document(name)
    return run


@dataclass(frozen=True)
class Frames:
    """The runs below a directory as pandas frames.

    The frames can be joined on ``setting``, ``algo``, ``hash`` and ``seed``.

    Attributes:
        runs: One row per run: its path, status, choices and identity, and one column per
            configuration key, such as ``local.lr``.
        rounds: One row per run and evaluated round: the identity, then the columns of
            ``rounds.jsonl``.
        clients: One row per run, kept round and client: the identity, then the columns of
            ``clients.parquet``.
        damaged: Messages about unreadable runs, which are in none of the frames.
    """

    runs: pd.DataFrame
    rounds: pd.DataFrame
    clients: pd.DataFrame
    damaged: tuple[str, ...]

    def __repr__(self) -> str:
        sizes = f"{len(self.runs)} runs, {len(self.rounds)} rounds, {len(self.clients)} clients"
        return f"<Frames runs, rounds and clients: {sizes}>"


def load_results(directory: str | Path = "results") -> Frames:
    """Return the runs below a directory as pandas frames, including unfinished runs.

    For runs of a published report, ``rounds`` and ``clients`` contain only the rounds kept in its
    bundle. Runs that cannot be read, or whose files have changed since they were written, are left
    out with a warning.

    Raises:
        RequestError: If the directory does not exist or its bundle is damaged.
    """
    root = user_path("directory", directory)
    if not root.is_dir():
        raise RequestError(f"{root} is not a directory; give a directory with runs below it")
    results = Results(root)
    rows: list[dict[str, Any]] = []
    rounds: list[pd.DataFrame] = []
    clients: list[pd.DataFrame] = []
    for run in results:
        facts = {key: run.meta.get(key) for key in _FACTS}
        setting = facts["experiment"] or facts["data"]
        row = {"path": str(run.path), "setting": setting, **facts}
        rows.append(row | {key: v for key, v in run.flat.items() if key not in row})
        identity = tuple(row[key] for key in IDENTITY)
        if run.begun:
            rounds.append(pd.concat({identity: run.rounds()}, names=IDENTITY))
        if run.done and run.has_clients:
            clients.append(pd.concat({identity: run.clients()}, names=IDENTITY))
    if results.damaged:
        warnings.warn("left out: " + "; ".join(results.damaged), stacklevel=2)
    columns = None if rows else ["path", "setting", *_FACTS]
    return Frames(
        runs=pd.DataFrame(rows, columns=columns),
        rounds=_joined(rounds),
        clients=_joined(clients),
        damaged=tuple(results.damaged),
    )


def _joined(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all runs, with the run's identity in the first columns."""
    if not tables:
        return pd.DataFrame(columns=IDENTITY)
    return pd.concat(tables).reset_index(IDENTITY).reset_index(drop=True)

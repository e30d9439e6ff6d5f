"""Runs on disk: what each is and what became of it, and all of those below a directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from fedbench.config.names import present
from fedbench.core.trees import Tree, from_json, leaves
from fedbench.runs.configs import config_of
from fedbench.runs.facts import check_meta, text_of
from fedbench.runs.records import DONE, DamagedRun, Fields, Records, RunFolder, damaged, is_done
from fedbench.runs.round_lines import RecentTables

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

_IDENTITY = ("experiment", "data", "model", "algo", "hash", "seed")


@dataclass(frozen=True)
class Run:
    """One run on disk.

    Attributes:
        path: The run's directory; for a run of a bundle, the one that it would have below the bundle, or below the
            results directory whose published reports the bundle belongs to.
        config: The resolved configuration; each ``_target_`` is the present path of its function.
        meta: The facts of the run; likewise in ``departures``.
        stored: Its records; None for those in its directory.
    """

    path: Path
    config: Fields
    meta: Fields
    stored: Records | None = field(default=None, compare=False)

    @cached_property
    def records(self) -> Records:
        """The run's records."""
        return RunFolder(self.path) if self.stored is None else self.stored

    @property
    def bundled(self) -> bool:
        """Whether it is one of a bundle, whose files are compared with their checksums before any run is read."""
        return not isinstance(self.records, RunFolder)

    @property
    def identity(self) -> tuple[Any, ...]:
        """What a copy of the run has in common with it: the setting and the seed."""
        return tuple(self.meta.get(k) for k in _IDENTITY)

    @property
    def done(self) -> bool:
        """Whether the run is complete: trained to its last round, or diverged."""
        return self.records.done

    @property
    def counts(self) -> bool:
        """Whether the run is complete and did not diverge, so that its numbers enter means."""
        return self.outcome == "done"

    @property
    def outcome(self) -> str:
        """What became of the run: done, diverged, failed or not finished."""
        status = str(self.meta["status"])
        unfinished = status in ("running", "interrupted") or (status == "done" and not self.done)
        return "not finished" if unfinished else status

    @property
    def unofficial(self) -> tuple[str, ...]:
        """Sentences on data that were read from other files than the publisher's.

        In runs made before meta.json had the key ``unofficial``, the only trace is a phrase in ``sources``; it is
        searched for here and nowhere else.
        """
        if "unofficial" in self.meta:
            return tuple(self.meta["unofficial"])
        return tuple(s for s in self.meta.get("sources", ()) if "not the official" in s)

    @cached_property
    def flat(self) -> Tree:
        """The configuration under dotted keys; it must not be changed."""
        return leaves(self.config)

    def verify(self) -> None:
        """Compare all files of a complete run with the checksums in DONE; those of older runs have none.

        Raises:
            DamagedRun: If one of them is missing or has changed.
        """
        if (records := self._sealed()) is not None:
            records.verify()

    def check(self) -> None:
        """Check that all that a report reads of a complete run can be read.

        Raises:
            DamagedRun: If something is missing, has changed or cannot be read.
        """
        if (records := self._sealed()) is not None:
            records.check()
            self.last_round()

    def _sealed(self) -> RunFolder | None:
        """Return the records of a complete run, which has its checksums; None for a bundle, checked as a whole."""
        records = self.records
        if not isinstance(records, RunFolder) or not records.done:
            return None
        if self.meta.get("sealed") and not records.sealed:
            raise damaged(self.path, f"{DONE} is empty")
        return records

    def _ends(self, last: int) -> None:
        """Refuse a complete run whose last round is another than its facts say."""
        if self.done and (wanted := self.meta.get("rounds")) is not None and last != wanted:
            raise damaged(self.path, f"rounds.jsonl: it ends with round {last}, and the run with round {wanted}")

    def rounds(self) -> pd.DataFrame:
        """Return one row per evaluated round; for a run of a bundle, per round that is kept with all its keys.

        Raises:
            DamagedRun: If rounds.jsonl cannot be read or has changed.
        """
        table = self.table()
        return table.copy()

    def table(self) -> pd.DataFrame:
        """Return ``rounds``, shared with others that read the run: it must not be changed.

        Raises:
            DamagedRun: If rounds.jsonl cannot be read or has changed.
        """
        table = self.records.table()
        self._ends(int(table["round"].iloc[-1]))
        return table

    def curves(self, names: Sequence[str]) -> pd.DataFrame:
        """Return the column ``round`` and these keys at all evaluated rounds; keys never measured are left out.

        Raises:
            DamagedRun: If rounds.jsonl cannot be read.
            RequestError: If the run is one of a bundle without these curves.
        """
        return self.records.curves(names)

    def last_round(self) -> Fields:
        """Return the last evaluated round.

        Raises:
            DamagedRun: If rounds.jsonl has no round that can be read.
        """
        row = self.records.last()
        self._ends(row["round"])
        return row

    def document(self, name: str) -> Fields | None:
        """Return the document of a diagnostic; None if the run has none.

        Raises:
            DamagedRun: If it cannot be read or has changed.
        """
        return self.records.document(name)

    def clients(self) -> pd.DataFrame:
        """Return the per-client table of the kept rounds.

        Raises:
            DamagedRun: If clients.parquet cannot be read.
            RequestError: If the run is one of a bundle with fewer rounds of them.
        """
        return self.records.clients()

    def clients_at(self, rounds: Collection[int] = ()) -> pd.DataFrame:
        """Return the per-client table of the last kept round, and of those of ``rounds`` that are stored.

        Raises:
            DamagedRun: If clients.parquet cannot be read.
        """
        return self.records.clients_at(rounds)

    def accuracy_of(self, client: int) -> float | None:
        """Return the accuracy of a client in the last kept round, from 0 to 1; None if it has none.

        Raises:
            DamagedRun: If clients.parquet cannot be read.
            RequestError: If the run is one of a bundle without its per-client table.
        """
        return self.records.accuracy_of(client)


TUNING = "tuning"  # directory below the results that has the runs of ``fedbench tune``


class ResultStore:
    """Reads the runs below a directory; after an iteration, ``damaged`` has what was left out and why.

    The runs in its directory ``tuning`` are no results: values were chosen by them.

    Each message begins with the run's path. All paths in it are relative to the directory, since reports publish it.

    Runs that cannot be read are left out, and so are copies: of runs with one identity and one seed, only the first
    counts.

    Args:
        root: The directory.
        check: Whether all that a report reads of a run is checked, which takes most of the time. Without it, only the
            configuration and the facts are; what else is damaged is found where it is read.
        below: Path below the directory to which the runs are restricted, such as a paper's.
    """

    def __init__(self, root: Path, check: bool = True, below: str = "") -> None:
        self.root = root
        self.check = check
        self.below = below
        self.damaged: list[str] = []
        self._recent = RecentTables()

    @property
    def place(self) -> Path:
        """Directory of the plan and of the label counts."""
        return self.root

    def __iter__(self) -> Iterator[Run]:
        self.damaged = []
        seen: dict[tuple[Any, ...], Path] = {}
        for meta in sorted((self.root / self.below).rglob("meta.json")):
            if meta.relative_to(self.root).parts[0] == TUNING:
                continue
            if not (meta.parent / "config.yaml").exists() and not is_done(meta.parent):
                continue
            try:
                run = read_run(meta.parent, self._recent)
                if self.check:
                    run.check()
            except DamagedRun as error:
                self.damaged.append(relative_to(self.root, str(error)))
                continue
            if run.done:
                first = seen.setdefault(run.identity, run.path)
                if first != run.path:
                    text = f"{run.path}: a copy of {first}: the same setting and the same seed"
                    self.damaged.append(relative_to(self.root, text))
                    continue
            yield run


def with_readable(
    work: Callable[[list[Run], list[str]], T], runs: Iterable[Run], damaged: Iterable[str], root: Path
) -> tuple[T, list[str]]:
    """Return what comes of some work on runs, repeated without those that it finds damaged, and why these are left out.

    A run whose files have no checksums, or change while they are read, may be damaged where nothing has been read yet.

    Args:
        work: A function of the runs, and of messages about those that are left out.
        runs: The runs.
        damaged: Messages about runs that have been left out before.
        root: Directory of the runs, to which paths in messages are relative.

    Raises:
        DamagedRun: If it is about none of the runs.
    """
    rest, why = list(runs), list(damaged)
    while True:
        try:
            return work(rest, why), why
        except DamagedRun as error:
            if all(run.path != error.path for run in rest):
                raise
            rest = [run for run in rest if run.path != error.path]
            why.append(relative_to(root, str(error)))


def relative_to(root: Path, text: str) -> str:
    """Return a message about a run with paths relative to a directory."""
    return text.replace(f"{root}{os.sep}", "")


def read_run(path: Path, recent: RecentTables | None = None) -> Run:
    """Return the run in the directory ``path``.

    Args:
        path: The directory.
        recent: Where tables that were read lately are kept, if several runs share one place.

    Raises:
        DamagedRun: If its configuration or its facts cannot be read, or have changed since it was done.
    """
    folder = RunFolder(path, recent)
    folder.verify("config.yaml", "meta.json")
    try:
        config = config_of(text_of(path / "config.yaml"))
        meta = from_json(text_of(path / "meta.json"))
        return as_run(path, config, meta, folder)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise damaged(path, error) from error


def as_run(path: Path, config: Tree, meta: Any, stored: Records | None = None) -> Run:
    """Return the run with a configuration, as ``runs.configs`` returns it, and facts as they were written.

    Raises:
        ValueError: If they are not those of a run.
    """
    check_meta(meta, config)
    if "departures" in meta:
        meta["departures"] = _departures_today(meta["departures"])
    return Run(path, config, meta, stored)


def _departures_today(departures: Fields) -> Fields:
    """Return what departs from an experiment, with functions by their present path."""
    return {
        key: [present(v) if isinstance(v, str) else v for v in change] if key.endswith("._target_") else change
        for key, change in departures.items()
    }

"""Runs on disk: what each is and what became of it, and all of those below a directory."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from fedbench.config.names import present, renamed
from fedbench.core.trees import from_yaml
from fedbench.runs.records import DONE, DamagedRun, Fields, Records, RunFolder, damaged

if TYPE_CHECKING:
    import pandas as pd

_IDENTITY = ("experiment", "data", "model", "algo", "hash", "seed")


@dataclass(frozen=True)
class Run:
    """One run on disk.

    Attributes:
        path: The run's directory; for a run of a bundle, the one that it would have below the bundle.
        config: The resolved configuration; each ``_target_`` is the present path of its function.
        meta: The facts of the run; likewise in ``departures``.
        stored: Its records elsewhere than in its directory; None for those in its directory.
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

    def verify(self) -> None:
        """Compare all files of a complete run with the checksums in DONE; those of older runs have none.

        Raises:
            DamagedRun: If one of them is missing or has changed.
        """
        records = self.records
        if not isinstance(records, RunFolder) or not records.done:  # a bundle has been compared as a whole
            return
        if self.meta.get("sealed") and not records.sealed:
            raise damaged(self.path, f"{DONE} is empty")
        records.verify()

    def _compared(self, rows: list[Fields]) -> list[Fields]:
        """Return rows of which the last one is the run's; refuse what cannot be so, in runs without checksums too."""
        try:
            for row in rows:
                _refuse_impossible(row)
            if self.done and (last := rows[-1]["round"]) != self.meta.get("rounds", last):
                raise ValueError(f"it ends with round {last}, and the run with round {self.meta['rounds']}")
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(self.path, f"rounds.jsonl: {error}") from error
        return rows

    def rounds(self) -> pd.DataFrame:
        """Return one row per evaluated round; for a run of a bundle, per round that is kept with all its keys.

        Raises:
            DamagedRun: If rounds.jsonl cannot be read or has changed.
        """
        import pandas as pd

        return pd.DataFrame(self._compared(self.records.rows()))

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
        return self._compared(self.records.rows(slice(-1, None)))[0]

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


def _refuse_impossible(row: Fields) -> None:
    """Refuse a line of rounds.jsonl with an accuracy that is none."""
    for key, value in row.items():
        if key.startswith(("accuracy_", "val_accuracy_")) and value is not None and not -1e-9 <= value <= 1 + 1e-9:
            raise ValueError(f"round {row['round']} has the {key} {value}, which is not between 0 and 1")


TUNING = "tuning"  # directory below the results that has the runs of ``fedbench tune``


class ResultStore:
    """Reads the runs below a directory; after an iteration, ``damaged`` has what was left out and why.

    The runs in its directory ``tuning`` are no results: values were chosen by them.

    Each message begins with the run's path. All paths in it are relative to the directory, since reports publish it.

    Runs that cannot be read are left out, and so are copies: of runs with one identity and one seed, only the first
    counts.

    Args:
        root: The directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.damaged: list[str] = []

    @property
    def place(self) -> Path:
        """Directory of the plan and of the label counts."""
        return self.root

    def __iter__(self) -> Iterator[Run]:
        self.damaged = []
        seen: dict[tuple[Any, ...], Path] = {}
        for meta in sorted(self.root.rglob("meta.json")):
            if meta.relative_to(self.root).parts[0] == TUNING or not (meta.parent / "config.yaml").exists():
                continue
            try:
                run = read_run(meta.parent)
                if run.done:
                    run.last_round()
            except DamagedRun as error:
                self.damaged.append(self._without_root(str(error)))
                continue
            if run.done:
                first = seen.setdefault(tuple(run.meta.get(k) for k in _IDENTITY), run.path)
                if first != run.path:
                    text = f"{run.path}: a copy of {first}: the same setting and the same seed"
                    self.damaged.append(self._without_root(text))
                    continue
            yield run

    def _without_root(self, text: str) -> str:
        return text.replace(f"{self.root}{os.sep}", "")


def _check_names(meta: Fields) -> None:
    """Refuse facts that do not say which run they are of: another program's, or of a name that is null."""
    for key in ("algo", "hash", "status", "data", "model"):
        if not isinstance(value := meta.get(key, "" if key in ("data", "model") else None), str):
            raise ValueError(f"meta.json: {key} must be text, got {value!r}")
    if not isinstance(meta.get("seed"), int):
        raise ValueError(f"meta.json: seed must be an integer, got {meta.get('seed')!r}")


def read_run(path: Path) -> Run:
    """Return the run in the directory ``path``.

    Raises:
        DamagedRun: If its configuration or its facts cannot be read.
    """
    try:
        config = from_yaml((path / "config.yaml").read_text(encoding="utf-8"))
        meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
        return as_run(path, config, meta)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DamagedRun(f"{path}: {' '.join(str(error).split())}; force=true trains it again") from error


def as_run(path: Path, config: Any, meta: Any, stored: Records | None = None) -> Run:
    """Return the run with a configuration and facts as they were written.

    Raises:
        ValueError: If they are not those of a run.
    """
    if not isinstance(config, dict) or not isinstance(meta, dict):
        raise ValueError("config.yaml or meta.json is empty")
    _check_names(meta)
    if "departures" in meta:
        meta["departures"] = _departures_today(meta["departures"])
    return Run(path, renamed(config, present), meta, stored)


def _departures_today(departures: Fields) -> Fields:
    """Return what departs from an experiment, with functions by their present path."""
    return {
        key: [present(v) if isinstance(v, str) else v for v in change] if key.endswith("._target_") else change
        for key, change in departures.items()
    }

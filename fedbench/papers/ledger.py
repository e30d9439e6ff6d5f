"""What ``fedbench reproduce`` was asked for and what became of it: ``plan.json`` in the results directory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedbench.runs.store import replace_file

_FILE = "plan.json"


@dataclass(frozen=True)
class Entry:
    """One run of a plan.

    Attributes:
        experiment: its config.
        algo: the config group's choice.
        set: config keys that the row of the paper sets.
        seed: of the run.
        status: planned, done, diverged, failed or refused.
        error: what went wrong, or None.
    """

    experiment: str
    algo: str
    set: dict[str, Any]
    seed: int
    status: str = "planned"
    error: str | None = None


@dataclass(frozen=True)
class Ledger:
    """A plan and its outcome.

    Attributes:
        entries: the runs.
    """

    entries: tuple[Entry, ...] = ()

    def of(self, experiment: str, algo: str, wanted: Mapping[str, Any]) -> list[Entry]:
        """Return the entries of a row."""
        return [e for e in self.entries if (e.experiment, e.algo) == (experiment, algo) and e.set == dict(wanted)]


def read_ledger(folder: Path) -> Ledger:
    """Return the plan of a results directory; an empty one if none was made there."""
    path = folder / _FILE
    if not path.exists():
        return Ledger()
    content = json.loads(path.read_text(encoding="utf-8"))
    return Ledger(tuple(Entry(**e) for e in content["entries"]))


def write_ledger(folder: Path, entries: Sequence[Entry]) -> None:
    """Write the plan of a results directory; what other plans have left there and this one does not name is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    new = {_key(e): e for e in entries}
    kept = {_key(e): e for e in read_ledger(folder).entries if _key(e) not in new}
    ordered = sorted({**kept, **new}.values(), key=_key)
    replace_file(folder / _FILE, json.dumps({"entries": [asdict(e) for e in ordered]}, indent=1))


def _key(e: Entry) -> tuple[str, str, str, int]:
    return e.experiment, e.algo, json.dumps(e.set, sort_keys=True), e.seed

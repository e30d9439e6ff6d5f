"""The runs that ``fedbench reproduce`` planned and their outcomes: ``plan.json`` in the results directory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedbench.core.files import replace_file

PLAN = "plan.json"


@dataclass(frozen=True)
class Entry:
    """One run of a plan.

    Attributes:
        experiment: Name of the experiment's config.
        algo: Name of the algorithm in the config group.
        set: Config keys that the row of the paper sets.
        seed: Random seed of the run.
        status: One of ``planned``, ``done``, ``diverged``, ``failed`` and ``refused``.
        error: Message of the error that ended the run, or None.
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
        entries: The planned runs.
    """

    entries: tuple[Entry, ...] = ()

    def of(self, experiment: str, algo: str, wanted: Mapping[str, Any]) -> list[Entry]:
        """Return the entries of a row."""
        return [e for e in self._by_method.get((experiment, algo), ()) if e.set == dict(wanted)]

    @cached_property
    def _by_method(self) -> dict[tuple[str, str], list[Entry]]:
        found: dict[tuple[str, str], list[Entry]] = {}
        for e in self.entries:
            found.setdefault((e.experiment, e.algo), []).append(e)
        return found


def read_ledger(folder: Path) -> Ledger:
    """Return the plan of a results directory; an empty plan if there is none."""
    path = folder / PLAN
    if not path.exists():
        return Ledger()
    content = json.loads(path.read_text(encoding="utf-8"))
    return Ledger(tuple(Entry(**e) for e in content["entries"]))


def write_ledger(folder: Path, entries: Sequence[Entry]) -> None:
    """Write the plan of a results directory; entries of earlier plans that are not in this one are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    new = {_key(e): e for e in entries}
    kept = {_key(e): e for e in read_ledger(folder).entries if _key(e) not in new}
    ordered = sorted({**kept, **new}.values(), key=_key)
    replace_file(folder / PLAN, json.dumps({"entries": [asdict(e) for e in ordered]}, indent=1))


def _key(e: Entry) -> tuple[str, str, str, int]:
    return e.experiment, e.algo, json.dumps(e.set, sort_keys=True), e.seed

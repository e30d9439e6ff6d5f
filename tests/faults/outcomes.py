"""What became of a run that met a fault, counted."""

import enum
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from fedbench.runs.run import read_run

# what may differ between two runs of one configuration; the checkout may change while the suites run
_TIMES = ("started", "ended", "client_steps_per_second", "peak_memory_bytes", "git_commit", "git_dirty")


class Outcome(enum.StrEnum):
    """Survived: the bytes of a run left in peace. Clean: a clear message, and these bytes once the fault is gone."""

    SURVIVED = "survived"
    CLEAN = "clean"
    WRONG = "wrong"
    CRASHED = "crashed"
    HUNG = "hung"


BAD = (Outcome.WRONG, Outcome.CRASHED, Outcome.HUNG)


@dataclass
class Tally:
    """The outcomes of one suite; of the bad ones, what happened."""

    suite: str
    counts: Counter[Outcome] = field(default_factory=Counter)
    reports: list[str] = field(default_factory=list)
    skipped: str | None = None

    def add(self, outcome: Outcome, what: str) -> None:
        """Count an outcome; ``what`` says how to see it again."""
        self.counts[outcome] += 1
        if outcome in BAD:
            self.reports.append(f"{self.suite}: {outcome}: {what}")

    @property
    def bad(self) -> int:
        """Number of outcomes that must not be."""
        return sum(self.counts[o] for o in BAD)


def table(tallies: list[Tally]) -> str:
    """The counts, a row per suite."""
    rows = [["suite", "injected", *Outcome]]
    for t in tallies:
        rows.append([t.suite, str(t.counts.total()), *(str(t.counts[o]) for o in Outcome)])
    total = sum((t.counts for t in tallies), Counter[Outcome]())
    rows.append(["all", str(total.total()), *(str(total[o]) for o in Outcome)])
    widths = [max(len(r[k]) for r in rows) for k in range(len(rows[0]))]
    lines = ["  ".join([r[0].ljust(widths[0]), *map(str.rjust, r[1:], widths[1:])]) for r in rows]
    return "\n".join([*lines, *(f"{t.suite} skipped: {t.skipped}" for t in tallies if t.skipped)])


def files(folder: Path) -> dict[str, bytes]:
    """The content of all files below a directory, by name, without locks."""
    found = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != ".lock")
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in found}


def lasting(folder: Path) -> dict[str, object]:
    """The content of all files of the runs below a directory, without times, once their checksums have been compared.

    Raises:
        DamagedRun: If a checksum differs.
    """
    done = [p.parent for p in folder.rglob("DONE")]
    for path in done:
        read_run(path).verify()
    # what could not be removed when a run was done is removed when it is next asked for
    idle = tuple(f"{path.relative_to(folder).as_posix()}/checkpoint/" for path in done)
    content = {name: text for name, text in files(folder).items() if not name.startswith(idle)}
    return {name: _timeless(name.rpartition("/")[2], text) for name, text in content.items()}


def _timeless(name: str, content: bytes) -> object:
    if name == "meta.json":
        return {k: v for k, v in json.loads(content).items() if k not in _TIMES}
    if name == "rounds.jsonl":
        rows = [json.loads(line) for line in content.splitlines()]
        return [{k: v for k, v in row.items() if not k.startswith("seconds_")} for row in rows]
    if name == "DONE":  # the checksums of files with times
        return sorted(json.loads(json.loads(content)["content"])["sealed"])
    return content

"""How far the runs below a directory are, seen from outside the processes that carry them out."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.runs.run import DamagedRun, Run, read_run

GONE = "process gone"
STATES = ("running", "interrupted", "failed", GONE, "diverged", "damaged", "done")
_END = 65536  # bytes of rounds.jsonl in which the last whole line is looked for


@dataclass(frozen=True)
class Standing:
    """How far one run is.

    Attributes:
        path: The run's directory.
        state: One of ``STATES``; ``process gone``: it was never finished, and no process is at work on it.
        done: The last evaluated round.
        rounds: Rounds of the whole run; None if its files cannot be read.
        accuracy: Mean accuracy in that round, in [0, 1]; None if it was not measured.
        seconds: Time that these rounds took, with evaluation.
        error: What ended a failed run, or what is wrong with its files.
    """

    path: Path
    state: str
    done: int = 0
    rounds: int | None = None
    accuracy: float | None = None
    seconds: float = 0.0
    error: str | None = None

    @property
    def rate(self) -> float | None:
        """Rounds per second, as measured; None before the first evaluation."""
        return self.done / self.seconds if self.done and self.seconds > 0 else None

    @property
    def left(self) -> float | None:
        """Seconds that the other rounds take at the measured rate; None if it is not known, or nothing is left."""
        if self.rate is None or self.rounds is None or self.state in ("done", "diverged"):
            return None
        return (self.rounds - self.done) / self.rate


def standings(root: Path) -> Iterator[Standing]:
    """Yield how far the runs below a directory are, in the order of their paths."""
    for meta in sorted(root.rglob("meta.json")):
        if (meta.parent / "config.yaml").exists():
            yield standing(meta.parent)


def standing(path: Path) -> Standing:
    """Return how far the run in a directory is."""
    try:
        run = read_run(path)
        row = last_whole_row(path / "rounds.jsonl")
    except (DamagedRun, OSError, ValueError) as fault:
        return Standing(path, "damaged", error=str(fault))
    seconds = sum(float(row.get(f"seconds_{k}") or 0.0) for k in ("train", "eval"))
    state, error = state_of(run), run.meta.get("error")
    return Standing(
        path, state, int(row.get("round", 0)), int(run.config["rounds"]), row.get("accuracy_mean"), seconds,
        str(error) if state == "failed" and error else None,
    )  # fmt: skip


def state_of(run: Run) -> str:
    """Return the state of a run on disk, one of ``STATES``: a process that is at work on it holds its lock."""
    said = str(run.meta["status"])
    if run.done:
        return said
    if is_held(run.path / ".lock"):
        return "running"
    return said if said in ("failed", "interrupted") else GONE


def is_held(lock: Path) -> bool:
    """Return whether a process holds a lock file, of this machine or of one whose file system shares locks with it."""
    try:
        place = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(place, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: nobody else who asks is told of a process
    except BlockingIOError:
        return True
    finally:
        os.close(place)
    return False


def last_whole_row(file: Path) -> dict[str, Any]:
    """Return the last line that has been written to its end; nothing if there is none yet.

    Raises:
        ValueError: If it is not an object.
    """
    if not file.exists():
        return {}
    with file.open("rb") as content:
        content.seek(max(0, content.seek(0, os.SEEK_END) - _END))
        whole = content.read().rpartition(b"\n")[0]
    row = json.loads(whole.rpartition(b"\n")[2]) if whole else {}
    if not isinstance(row, dict):
        raise ValueError(f"{file}: its last line is no row of a round")
    return row

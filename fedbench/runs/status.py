"""Status of the runs below a directory, determined from outside the processes executing them."""

import fcntl
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fedbench.runs.progress import duration
from fedbench.runs.run import (
    LOCK,
    DamagedRun,
    Fields,
    Run,
    begun_runs,
    last_row,
    read_run,
)

GONE = "process gone"
_COLUMNS = "{:<12}  {:>11}  {:>8}  {:>11}  {}"
STATES = ("running", "interrupted", "failed", GONE, "diverged", "damaged", "done")


@dataclass(frozen=True)
class RunStatus:
    """The status of one run.

    Attributes:
        path: The run's directory.
        state: One of ``STATES``. "process gone" means that the run is unfinished and no process is
            working on it.
        round: The last evaluated round.
        rounds: Total number of rounds, or None if the run's files cannot be read.
        accuracy: Mean accuracy in the last evaluated round, in [0, 1], or None if not measured.
        seconds: Time for the rounds so far, including evaluation.
        error: The error that ended a failed run, or the fault in the run's files.
        run: The run, or None if its files cannot be read.
        last: The last evaluated round, a line of ``rounds.jsonl``; empty before the first.
    """

    path: Path
    state: str
    round: int = 0
    rounds: int | None = None
    accuracy: float | None = None
    seconds: float = 0.0
    error: str | None = None
    run: Run | None = None
    last: Fields = field(default_factory=dict)

    @property
    def left(self) -> float | None:
        """Estimated seconds for the remaining rounds, at the measured rate.

        The value is None if the rate is unknown or no rounds remain.
        """
        over = self.state in ("done", "diverged")
        if over or not self.round or self.rounds is None:
            return None
        return (self.rounds - self.round) * self.seconds / self.round


def statuses(root: Path, verify: bool = False) -> Iterator[RunStatus]:
    """Yield the statuses of the runs below a directory, sorted by path.

    Args:
        root: The directory.
        verify: Whether to compare the files of finished runs with their checksums.
    """
    for path in begun_runs(root):
        yield status_of(path, verify)


def status_of(path: Path, verify: bool = False) -> RunStatus:
    """Return the status of the run in a directory."""
    try:
        run = read_run(path)
        if verify and run.done:
            run.verify()
        row = run.last_round() if run.done else last_row(path / "rounds.jsonl")
        row = row or {}
        state = run.meta["status"]
        if not run.done and is_held(path):
            state = "running"
        elif not run.done and state not in ("failed", "interrupted"):
            state = GONE
    except (DamagedRun, OSError, ValueError) as fault:
        return RunStatus(path, "damaged", error=str(fault))
    return RunStatus(
        path,
        state,
        round=int(row.get("round", 0)),
        rounds=int(run.config["rounds"]),
        accuracy=row.get("accuracy_mean"),
        seconds=(row.get("seconds_train") or 0.0) + (row.get("seconds_eval") or 0.0),
        error=run.meta.get("error") if state == "failed" else None,
        run=run,
        last=row,
    )


def status_table(runs: Iterable[RunStatus], folder: Path) -> str:
    """Return a table with one line per run, with paths relative to a directory."""
    lines = [_COLUMNS.format("state", "rounds", "accuracy", "left", "run")]
    for run in runs:
        rounds = f"{run.round}/{'?' if run.rounds is None else run.rounds}"
        accuracy = "" if run.accuracy is None else f"{100 * run.accuracy:.2f} %"
        left = "" if run.left is None else duration(run.left)
        error = f": {run.error}" if run.error else ""
        path = str(run.path).removeprefix(f"{folder}/")
        line = _COLUMNS.format(
            run.state,
            rounds,
            accuracy,
            left,
            path + error,
        )
        lines.append(line)
    return "\n".join(lines)


def is_held(path: Path) -> bool:
    """Return whether a process holds a run's lock, which means that it is working on the run.

    This detects processes on this machine, and on machines whose file system shares locks with it.
    """
    with suppress(FileNotFoundError), (path / LOCK).open() as file:
        try:
            # a shared lock: other processes may check at the same time
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:  # held, or without flock, where the existence of the file is the lock
            return True
    return False

"""Notes that the jobs of a sweep leave in its directory: a file per job, from which the closing table is made.

Jobs may run in other processes, on other machines, so they report through files.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from fedbench.core.writing import replace_file


@dataclass(frozen=True)
class Note:
    """The result of one job of a sweep.

    Attributes:
        job: Number of the job.
        overrides: The overrides of the job.
        status: done, diverged, failed, or refused (the request was wrong).
        path: Directory of the run; None if the job was refused.
        error: The error message, or None.
    """

    job: int
    overrides: list[str]
    status: str
    path: str | None
    error: str | None


def leave(folder: Path, note: Note) -> None:
    """Write a note into the sweep's directory."""
    runs = folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    replace_file(runs / f"{note.job:06d}.json", json.dumps(asdict(note), indent=2) + "\n")


def notes(folder: Path) -> list[Note]:
    """Return the notes of a sweep, in the order of its jobs."""
    return [Note(**json.loads(p.read_text(encoding="utf-8"))) for p in sorted((folder / "runs").glob("*.json"))]


def note_of(folder: Path, job: int) -> Note:
    """Return the note of one job, which has left it."""
    return Note(**json.loads((folder / "runs" / f"{job:06d}.json").read_text(encoding="utf-8")))


def forget(folder: Path) -> None:
    """Remove what a sweep has left in its directory, and this directory and those above it that are empty then.

    Other files stay: ``hydra.sweep.dir`` may be any directory of the user's.
    """
    for note in (folder / "runs").glob("[0-9]*.json"):
        note.unlink(missing_ok=True)
    (folder / "multirun.yaml").unlink(missing_ok=True)  # of Hydra
    shutil.rmtree(folder / ".submitit", ignore_errors=True)
    for place in (folder / "runs", folder, *list(folder.parents)[:2]):  # the latter are sweeps/ and the results
        if place.is_dir() and place != Path() and not any(place.iterdir()):
            place.rmdir()

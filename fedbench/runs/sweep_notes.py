"""What a sweep leaves besides its runs: a note per job, from which the closing table is made.

Jobs may run in other processes (Hydra's launchers), so they report through files in the sweep's directory.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from fedbench.runs.store import replace_file

started: list[Path] = []  # directories of the sweeps begun in this process: Hydra hands nothing back


class NoteSweep(Callback):
    """Hydra calls this when a sweep begins."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Remember where the sweep lives."""
        started.append(Path(str(config.hydra.sweep.dir)))


@dataclass(frozen=True)
class Note:
    """What became of one job of a sweep.

    Attributes:
        job: its number.
        overrides: what was asked for.
        status: done, diverged, failed, or refused (the request was wrong).
        path: the run's directory; None if it was refused.
        error: what went wrong, or None.
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


def forget(folder: Path) -> None:
    """Remove the directory of a sweep that made no run, and directories left empty above it."""
    shutil.rmtree(folder, ignore_errors=True)
    for parent in list(folder.parents)[:2]:  # sweeps/, then the results
        if parent.is_dir() and parent != Path() and not any(parent.iterdir()):
            parent.rmdir()

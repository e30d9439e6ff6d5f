"""Weights & Biases."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import wandb

from fedbench.runs.trackers import Tracker, numbers


class WandbTracker(Tracker):
    """Logs every evaluated round to Weights & Biases.

    Args:
        project: Name of the project.
        entity: User or team; None is the default of the account.
    """

    def __init__(self, project: str, entity: str | None = None) -> None:
        self.project, self.entity = project, entity
        self._run: Any = None

    def start(self, path: Path, name: str, config: dict[str, Any]) -> None:
        """Start the run; a resumed run continues under the id stored in its directory."""
        note = path / "wandb_id"
        if not note.exists():
            note.write_text(uuid.uuid4().hex[:8])
        self._run = wandb.init(
            project=self.project, entity=self.entity, name=name, config=config, dir=str(path), id=note.read_text(),
            resume="allow",
        )  # fmt: skip

    def log(self, row: dict[str, Any]) -> None:
        """Log one evaluated round."""
        self._run.log(numbers(row), step=row["round"])

    def finish(self, status: str) -> None:
        """End the run; every status other than done is a failure."""
        if self._run is not None:  # None if it could not be started
            self._run.finish(exit_code=0 if status == "done" else 1)

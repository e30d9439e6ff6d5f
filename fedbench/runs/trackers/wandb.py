"""Weights & Biases."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path
from typing import Any

import wandb

from fedbench.runs.trackers import Tracker, known_id, numbers, setting_of


class WandbTracker(Tracker):
    """Logs every evaluated round to Weights & Biases; the seeds of a setting are a group.

    Without a login it logs to files, which ``wandb sync`` sends.

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
        known = known_id(note, config)
        if known is None:
            note.write_text(uuid.uuid4().hex[:8], encoding="utf-8")
        offline = os.environ.get("WANDB_MODE") == "offline"
        if "WANDB_MODE" not in os.environ and not wandb.login(prompt=False):
            offline = True
            print(f"fedbench: no login for wandb; `wandb sync {path / 'wandb'}/*` sends the run", file=sys.stderr)
        self._run = wandb.init(
            project=self.project, entity=self.entity, name=name, config=config, dir=str(path),
            id=note.read_text(encoding="utf-8"), group=setting_of(path),
            mode="offline" if offline else None, resume=None if offline else "allow",
            settings=wandb.Settings(quiet=True),
        )  # fmt: skip

    def log(self, row: dict[str, Any]) -> None:
        """Log one evaluated round."""
        self._run.log(numbers(row), step=row["round"])

    def finish(self, status: str) -> None:
        """End the run; every status other than done is a failure."""
        if self._run is not None:  # None if it could not be started
            self._run.finish(exit_code=0 if status == "done" else 1)

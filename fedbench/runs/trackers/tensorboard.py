"""TensorBoard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from fedbench.runs.run import is_done
from fedbench.runs.trackers import Tracker, numbers


class TensorboardTracker(Tracker):
    """Writes every evaluated round to ``tensorboard/`` in the run's directory."""

    def __init__(self) -> None:
        self._writer: Any = None

    def start(self, path: Path, name: str, config: dict[str, Any]) -> None:
        """Open a further event file, from whose first round on the earlier ones no longer count."""
        done = path / "rounds.jsonl"
        lines = done.read_text(encoding="utf-8").splitlines() if done.exists() else []
        ended = is_done(path)  # then all of it is logged again
        first = json.loads(lines[-1])["round"] + 1 if lines and not ended else 0
        self._writer = SummaryWriter(str(path / "tensorboard"), purge_step=first)

    def log(self, row: dict[str, Any]) -> None:
        """Write one evaluated round."""
        for key, value in numbers(row).items():
            self._writer.add_scalar(key, value, row["round"])

    def finish(self, status: str) -> None:
        """Close the event file."""
        if self._writer is not None:  # None if it could not be started
            self._writer.close()

"""TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from fedbench.runs.trackers import Tracker, numbers


class TensorboardTracker(Tracker):
    """Writes every evaluated round to ``tensorboard/`` in the run's directory."""

    def __init__(self) -> None:
        self._writer: Any = None

    def start(self, path: Path, name: str, config: dict[str, Any]) -> None:
        """Open the event file."""
        self._writer = SummaryWriter(str(path / "tensorboard"))

    def log(self, row: dict[str, Any]) -> None:
        """Write one evaluated round."""
        for key, value in numbers(row).items():
            self._writer.add_scalar(key, value, row["round"])

    def finish(self, status: str) -> None:
        """Close the event file."""
        if self._writer is not None:  # None if it could not be started
            self._writer.close()

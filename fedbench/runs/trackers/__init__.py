"""Where a run can be followed while it goes on, besides its files: one tracker per file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol


class Tracker(Protocol):
    """Follows one run."""

    def start(self, path: Path, name: str, config: dict[str, Any]) -> None:
        """Begin: the run's directory, a name for people, the resolved configuration."""
        ...

    def log(self, row: dict[str, Any]) -> None:
        """Take one evaluated round, a line of ``rounds.jsonl``."""
        ...

    def finish(self, status: str) -> None:
        """End, with the run's status."""
        ...


class NoTracker:
    """Follows nothing: the run's own files are complete."""

    def start(self, path: Path, name: str, config: dict[str, Any]) -> None:
        """Do nothing."""

    def log(self, row: dict[str, Any]) -> None:
        """Do nothing."""

    def finish(self, status: str) -> None:
        """Do nothing."""


def numbers(row: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of a row, without the round itself."""
    return {k: float(v) for k, v in row.items() if k != "round" and isinstance(v, int | float)}

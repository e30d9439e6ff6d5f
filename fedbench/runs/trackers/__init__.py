"""Trackers follow a run while it is running, in addition to its files: one tracker per file."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Tracker:
    """Follows one run. Every default does nothing: the files of the run are complete without a tracker.

    An error in a tracker never ends a run (``fedbench.runs.trackers.guarded``).
    """

    def start(self, path: Path, name: str, config: dict[str, Any]) -> None:
        """Start to follow a run, given its directory, its title and the resolved configuration."""

    def log(self, row: dict[str, Any]) -> None:
        """Log one evaluated round, a line of ``rounds.jsonl``."""

    def finish(self, status: str) -> None:
        """End with the status of the run."""


def numbers(row: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of a row without the number of the round."""
    return {k: float(v) for k, v in row.items() if k != "round" and isinstance(v, int | float)}


def setting_of(path: Path) -> str:
    """Return the setting of a run by its directory, without the seed: the experiment or data set, method and hash."""
    return "/".join(path.resolve().parts[-4:-1])


def known_id(note: Path, config: dict[str, Any]) -> str | None:
    """Return the id under which a tracker has followed this run; None for a new run, or one that is trained anew.

    Args:
        note: File with the id, in the run's directory.
        config: The resolved configuration.
    """
    if config.get("force") or not note.exists():
        return None
    return note.read_text(encoding="utf-8").strip() or None

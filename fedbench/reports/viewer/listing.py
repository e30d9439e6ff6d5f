"""The runs below a directory as rows of a table; a run is read again only when its files change."""

import math
import os
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote

from fedbench.core.errors import reason_of
from fedbench.core.metrics import metric_info
from fedbench.reports.templates import BADGES
from fedbench.runs.run import DONE
from fedbench.runs.status import STATES, RunStatus, begun_runs, is_held, status_of

Row = dict[str, Any]
Stamp = tuple[Any, ...]
METRICS = ("accuracy_mean", "accuracy_worst30", "accuracy_std")
_WATCHED = ("config.yaml", "meta.json", "rounds.jsonl", DONE)
# keys of a command that the table shows in columns of their own, or not at all
_COLUMNS = {"algo", "data", "model", "experiment", "seed", "rounds", "results_dir", "data_dir"}


class Listing:
    """The runs below a directory.

    Args:
        root: The directory.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._rows: dict[Path, tuple[Stamp, Row]] = {}
        self._lock = Lock()  # requests are answered by several threads

    def rows(self) -> list[Row]:
        """Return a row per run with values for JSON, sorted by state and path."""
        with self._lock:
            rows = {}
            for path in begun_runs(self._root):
                stamp = _stamp(path)
                if path not in self._rows or self._rows[path][0] != stamp:
                    self._rows[path] = stamp, _row(path, self._root)
                rows[path] = self._rows[path]
            self._rows = rows  # without the runs that have been removed
        listed = [row for _, row in rows.values()]
        return sorted(listed, key=lambda row: STATES.index(row["state"]))


def url_path(path: Path, root: Path) -> str:
    """Return the path of a file or directory below ``root`` as a part of a URL."""
    return quote(os.fsencode(path.relative_to(root)))


def shown_path(path: Path) -> str:
    """Return a path as text, with a sign in place of bytes that are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")


def viewed(path: Path) -> RunStatus:
    """Return the status of a run; a run with any fault in its files is damaged."""
    try:
        return status_of(path)
    except Exception as fault:  # whatever a file contains, the other runs are shown
        return RunStatus(path, "damaged", error=reason_of(fault))


def _stamp(path: Path) -> Stamp:
    """Return a value that changes when a run's files change, or a process starts or ends it."""
    stamp: list[Any] = []
    for name in _WATCHED:
        try:
            facts = (path / name).stat()
        except OSError:
            stamp.append(None)
        else:
            stamp.append((facts.st_mtime_ns, facts.st_size))
    done = stamp[-1] is not None
    return *stamp, not done and is_held(path)


def _row(path: Path, root: Path) -> Row:
    """Return the row of a run. Accuracies are in percent; numbers that are not finite are None."""
    status = viewed(path)
    meta = status.run.meta if status.run else {}
    place = shown_path(path.relative_to(root))
    numbers = {}
    for name in METRICS:
        value = status.last.get(name)
        numbers[name] = _finite(value, metric_info(name).factor)
    return {
        "id": url_path(path, root),
        "path": place,
        "setting": str(meta.get("experiment") or meta.get("data") or place),
        "algo": str(meta.get("algo", "")),
        "settings": typed_settings(meta),
        "model": str(meta.get("model", "")),
        "seed": str(meta.get("seed", "")),
        "round": status.done,
        "rounds": status.rounds,
        "state": status.state,
        "tone": BADGES["run"][status.state]["tone"],
        "error": status.error,
        **numbers,
        "updated": _updated(path),
    }


def typed_settings(meta: Row) -> str:
    """Return the keys that were typed for a run, without those that have columns."""
    texts = []
    for text in map(str, meta.get("overrides") or ()):
        key, _, _ = text.partition("=")
        if key not in _COLUMNS:
            texts.append(text)
    return " ".join(texts)


def _finite(value: object, factor: float) -> float | None:
    """Return a number in the displayed unit, or None for anything else."""
    if isinstance(value, int | float) and math.isfinite(value):
        return factor * value
    return None


def _updated(path: Path) -> float:
    """Return the time of the last change of a run's files, in seconds since 1970."""
    files = [path / name for name in _WATCHED]
    times = [file.stat().st_mtime for file in files if file.exists()]
    return max(times, default=0.0)

"""``fedbench status [DIR]``: how far the runs below a directory are."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fedbench.core.errors import RequestError
from fedbench.core.files import user_path
from fedbench.runs.progress import duration
from fedbench.runs.status import GONE, STATES, RunStatus, statuses

_HINTS = {
    GONE: "ended without a word; the same command resumes it",
    "interrupted": "the same command resumes it",
    "failed": "the same command goes on from its last checkpoint",
}


def carry_out(asked: Namespace) -> int:
    """Print a line per run that is not done, and how many are in which state.

    Raises:
        RequestError: If the directory contains no runs.
    """
    folder = user_path("DIR", asked.folder)
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a directory; it must be a directory that contains runs, such as results")
    found = list(statuses(folder, asked.verify))
    if not found:
        raise RequestError(f"{folder} contains no runs; it must be a results_dir")
    listed = sorted((s for s in found if asked.all or s.state != "done"), key=lambda s: STATES.index(s.state))
    print("\n".join([*_table(listed, folder), *([""] if listed else []), *_hints(listed), _sum(found)]))
    return 1 if asked.verify and any(s.state == "damaged" for s in found) else 0


def _table(runs: Sequence[RunStatus], folder: Path) -> list[str]:
    if not runs:
        return []
    rows = [("state", "rounds", "accuracy", "left", "run"), *(_row(s, folder) for s in runs)]
    widths = [max(len(row[k]) for row in rows) for k in range(4)]
    lines = []
    for row in rows:
        state, *numbers = row[:4]
        cells = [state.ljust(widths[0]), *(n.rjust(w) for n, w in zip(numbers, widths[1:], strict=True))]
        lines.append("  ".join([*cells, row[4]]))
    return lines


def _row(s: RunStatus, folder: Path) -> tuple[str, str, str, str, str]:
    of = "?" if s.rounds is None else str(s.rounds)
    accuracy = "" if s.accuracy is None else f"{100 * s.accuracy:.2f} %"
    where = "." if s.path == folder else str(s.path.relative_to(folder))
    left = "" if s.left is None else duration(s.left)
    return s.state, f"{s.done}/{of}", accuracy, left, where + (f": {s.error}" if s.error else "")


def _hints(runs: Sequence[RunStatus]) -> list[str]:
    return [f"{state}: {_HINTS[state]}" for state in STATES if state in _HINTS and any(s.state == state for s in runs)]


def _sum(runs: Sequence[RunStatus]) -> str:
    counts = Counter(s.state for s in runs)
    states = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    working = [s for s in runs if s.state == "running"]
    known = [s.left for s in working if s.left is not None]
    ends = f"; the last running one ends in about {duration(max(known))}" if known else ""
    if len(known) < len(working):
        ends += f"; the time left of {len(working) - len(known)} is not known yet"
    return f"{len(runs)} run{'' if len(runs) == 1 else 's'}: {states}{ends}"

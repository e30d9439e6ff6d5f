"""``fedbench status [DIR]``: how far the runs below a directory are."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedbench.core.errors import RequestError
from fedbench.runs.progress import duration
from fedbench.runs.status import GONE, STATES, RunStatus, statuses

_HINTS = {
    GONE: "its process is gone; the same command resumes it",
    "interrupted": "the same command resumes it",
    "failed": "the same command resumes it from its last checkpoint, unless code of your own has changed since; "
    "fedbench clean removes it",
}
_LINE = "{:<12}  {:>11}  {:>8}  {:>11}  {}"


def execute(args: Namespace) -> int:
    """Print a line per run that is not done, and how many are in which state.

    Raises:
        RequestError: If the directory contains no runs.
    """
    found = list(statuses(args.folder, args.verify, brief=not (args.all or args.verify)))
    if not found:
        raise RequestError(f"{args.folder} contains no runs; it must be a results_dir")
    listed = sorted((s for s in found if args.all or s.state != "done"), key=lambda s: STATES.index(s.state))
    if listed:
        print(table_of_runs(listed, args.folder), end="\n\n")
    for state in _HINTS:
        if any(s.state == state for s in listed):
            print(f"{state}: {_HINTS[state]}")
    print(_sum(found))
    return 1 if args.verify and any(s.state == "damaged" for s in found) else 0


def table_of_runs(runs: Iterable[RunStatus], folder: Path) -> str:
    """Return a line per run, with its path below a directory."""
    return "\n".join([_LINE.format("state", "rounds", "accuracy", "left", "run"), *(_line(s, folder) for s in runs)])


def _line(s: RunStatus, folder: Path) -> str:
    accuracy = "" if s.accuracy is None else f"{100 * s.accuracy:.2f} %"
    left = "" if s.left is None else duration(s.left)
    where = str(s.path).removeprefix(f"{folder}/") + (f": {s.error}" if s.error else "") + (s.node and f" on {s.node}")
    return _LINE.format(s.state, f"{s.done}/{'?' if s.rounds is None else s.rounds}", accuracy, left, where)


def _sum(runs: Sequence[RunStatus]) -> str:
    counts = Counter(s.state for s in runs)
    states = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    known = [s.left for s in runs if s.state == "running" and s.left is not None]
    ends = f"; the last running one ends in about {duration(max(known))}" if known else ""
    return f"{len(runs)} run{'' if len(runs) == 1 else 's'}: {states}{ends}"

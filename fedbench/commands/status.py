"""``fedbench status [DIR]``: print the progress of the runs below a directory."""

from collections import Counter
from pathlib import Path

from fedbench.commands.result import CommandResult
from fedbench.core.errors import RequestError
from fedbench.core.files import existing_directory
from fedbench.runs.progress import duration
from fedbench.runs.status import GONE, STATES, status_table, statuses

_HINTS = {
    GONE: "its process is gone; the same command resumes it",
    "interrupted": "the same command resumes it",
    "failed": "the same command resumes it, unless code of your own has changed since",
}


def execute(
    folder: str | Path = "results", all: bool = False, verify: bool = False
) -> CommandResult:
    """Print one line per run that is not done, and the number of runs in each state.

    Args:
        folder: Directory of the runs.
        all: Whether to list finished runs as well.
        verify: Whether to compare the files of finished runs with their checksums.

    Returns:
        The result. Its status is 1 if a run is damaged and ``verify`` is true.

    Raises:
        RequestError: If the directory contains no runs.
    """
    folder = existing_directory("DIR", folder)
    runs = list(statuses(folder, verify))
    if not runs:
        raise RequestError(f"{folder} contains no runs; it must be a results_dir")

    listed = [run for run in runs if all or run.state != "done"]
    if listed:
        listed.sort(key=lambda run: STATES.index(run.state))
        print(status_table(listed, folder), end="\n\n")
    counts = Counter(run.state for run in runs)
    for state, hint in _HINTS.items():
        if counts[state]:
            print(f"{state}: {hint}")

    states = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    left = [run.left for run in runs if run.state == "running" and run.left is not None]
    end = f"; the last running one ends in about {duration(max(left))}" if left else ""
    print(f"{len(runs)} run{'' if len(runs) == 1 else 's'}: {states}{end}")
    return CommandResult(1 if verify and counts["damaged"] else 0)

"""``fedbench clean [DIR ...]`` lists runs that failed, or are in another state, and with ``--yes`` removes them.

It does the same with the temporary directories of killed processes.
"""

import shlex
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from fedbench.commands.result import CommandResult
from fedbench.core.files import existing_directory
from fedbench.runs.run import LOCK, is_done
from fedbench.runs.status import GONE, RunStatus, status_table, statuses

_RESUMED = ("interrupted", GONE)  # the same command goes on with these
# of reports, and of runs that were being removed
_TEMPORARY = (".fedbench-????????", ".seed_*.removed")
_HOUR = 3600.0  # seconds


def execute(
    folders: Sequence[str | Path] = (), state: str = "failed", yes: bool = False
) -> CommandResult:
    """List or remove the runs in a state, and runs that are named; count the others that can be resumed.

    Args:
        folders: Directories of runs, without any ``results``.
        state: State of the runs.
        yes: Remove the runs; without it they are listed.
    """
    places = [existing_directory("DIR", folder) for folder in folders or ["results"]]
    chosen: dict[Path, RunStatus] = {}
    resumable: dict[Path, str] = {}
    for place in places:
        for run in statuses(place):
            if run.state == state or run.path == place:
                chosen[run.path.resolve()] = run
            elif run.state in _RESUMED:
                resumable[run.path.resolve()] = run.state

    if not chosen:
        print(
            f"nothing to remove in {', '.join(map(str, places))}; a finished run must be named by its directory"
        )
    elif yes:
        for run in chosen.values():
            outcome = "removed" if _remove(run) else "kept, a process is or was working on it"
            print(f"{outcome}: {run.path}", flush=True)
    else:
        option = [] if state == "failed" else ["--state", state]
        command = shlex.join(["fedbench", "clean", *map(str, places), *option, "--yes"])
        print(f"{status_table(chosen.values(), Path())}\n\nto remove {len(chosen)}: {command}")

    _remove_leftovers(places, yes)
    kept = Counter(state for path, state in resumable.items() if path not in chosen)
    for other, count in kept.items():
        print(
            f"kept: {count} {other}, which the same command resumes; --state {shlex.quote(other)} is for these"
        )
    return CommandResult()


def _remove_leftovers(folders: Sequence[Path], yes: bool) -> None:
    """List or remove the temporary directories of killed processes, untouched for an hour."""
    for path in [path for folder in folders for name in _TEMPORARY for path in folder.rglob(name)]:
        if path.is_dir() and path.stat().st_mtime < time.time() - _HOUR:
            print(f"{'removed' if yes else 'left by a killed process, --yes removes it'}: {path}")
            if yes:
                shutil.rmtree(path)


def _remove(run: RunStatus) -> bool:
    """Remove a run as a whole, with parent directories that are then empty, unless a process has it.

    Returns:
        Whether it was removed.
    """
    path = run.path.absolute()  # the directory itself may be meant by a dot
    try:
        with FileLock(path / LOCK, timeout=0):
            # another process has finished it meanwhile
            if is_done(path) and run.state in ("failed", *_RESUMED):
                return False
            removed = path.rename(path.with_name(f".{path.name}.removed"))
    except Timeout:
        return False

    shutil.rmtree(removed)
    with suppress(OSError):  # the first directory that has something else in it
        for parent in list(path.parents)[:3]:
            parent.rmdir()
    return True

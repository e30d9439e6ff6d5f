"""``fedbench clean [DIR ...]`` lists runs that failed or were abandoned, and with ``--yes`` removes them."""

from __future__ import annotations

import shlex
import shutil
from argparse import Namespace
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from fedbench.commands.status import table_of_runs
from fedbench.runs.run import is_done
from fedbench.runs.status import GONE, RunStatus, statuses

_REMOVABLE = ("failed", "interrupted", GONE)


def carry_out(asked: Namespace) -> int:
    """List the runs that are not finished and that no process works on, and those that are named; or remove them."""
    folders: list[Path] = asked.folders or [Path("results")]
    at = [(folder, s) for folder in folders for s in statuses(folder)]
    found = list(dict.fromkeys(s for folder, s in at if s.state in _REMOVABLE or s.path == folder))
    if not found:
        print(f"nothing to remove in {', '.join(map(str, folders))}; a finished run must be named by its directory")
    elif asked.yes:
        for run in found:
            print(
                f"{'removed' if _removed(run) else 'kept, a process is or was working on it'}: {run.path}", flush=True
            )
    else:
        command = shlex.join(["fedbench", "clean", *map(str, folders), "--yes"])
        resumed = any(s.state in ("interrupted", GONE) for s in found)
        hint = "the command of a run that is interrupted, or whose process is gone, resumes it\n" if resumed else ""
        print(f"{table_of_runs(found, Path())}\n\n{hint}to remove {len(found)}: {command}")
    return 0


def _removed(run: RunStatus) -> bool:
    """Remove a run, all of it or nothing, with directories that are then empty; whether no process has it."""
    path = run.path.absolute()  # the directory itself may be meant by a dot
    try:
        with FileLock(path / ".lock", timeout=0):
            if is_done(path) and run.state in _REMOVABLE:  # another process has finished it meanwhile
                return False
            gone = path.rename(path.with_name(f".{path.name}.removed"))
    except Timeout:
        return False
    shutil.rmtree(gone)
    with suppress(OSError):  # the first directory that has something else in it
        for parent in list(path.parents)[:3]:
            parent.rmdir()
    return True

"""``fedbench clean [DIR ...]`` lists runs that failed, or are in another state, and with ``--yes`` removes them.

It does the same with the temporary directories of killed processes.
"""

from __future__ import annotations

import shlex
import shutil
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from fedbench.commands.status import table_of_runs
from fedbench.runs.run import LOCK, is_done
from fedbench.runs.status import GONE, RunStatus, statuses

_RESUMED = ("interrupted", GONE)  # the same command goes on with these
_TEMPORARY = (".fedbench-????????", ".seed_*.removed")  # of reports, and of runs that were being removed
_HOUR = 3600.0  # seconds


def execute(args: Namespace) -> int:
    """List or remove the runs of a state, and those that are named; say how many are kept that can be resumed."""
    folders: list[Path] = args.folders or [Path("results")]
    at = [(folder, s) for folder in folders for s in statuses(folder)]
    found = {s.path.resolve(): s for folder, s in at if s.state == args.state or s.path == folder}
    command = ["fedbench", "clean", *map(str, folders), *(["--state", args.state] if args.state != "failed" else [])]
    if args.yes and found:
        for run in found.values():
            print(
                f"{'removed' if _removed(run) else 'kept, a process is or was working on it'}: {run.path}", flush=True
            )
    elif found:
        print(f"{table_of_runs(found.values(), Path())}\n\nto remove {len(found)}: {shlex.join([*command, '--yes'])}")
    else:
        print(f"nothing to remove in {', '.join(map(str, folders))}; a finished run must be named by its directory")
    _remove_leftovers(folders, args.yes)
    kept = {s.path.resolve(): s.state for _, s in at if s.state in _RESUMED}
    for state, n in Counter(state for path, state in kept.items() if path not in found).items():
        print(f"kept: {n} {state}, which the same command resumes; --state {shlex.quote(state)} is for these")
    return 0


def _remove_leftovers(folders: Iterable[Path], yes: bool) -> None:
    """List or remove the temporary directories of processes that were killed: those untouched for an hour."""
    old = time.time() - _HOUR
    for path in [path for folder in folders for name in _TEMPORARY for path in folder.rglob(name)]:
        if path.is_dir() and path.stat().st_mtime < old:
            print(f"{'removed' if yes else 'left by a killed process, --yes removes it'}: {path}")
            if yes:
                shutil.rmtree(path)


def _removed(run: RunStatus) -> bool:
    """Remove a run, all of it or nothing, with directories that are then empty; whether no process has it."""
    path = run.path.absolute()  # the directory itself may be meant by a dot
    try:
        with FileLock(path / LOCK, timeout=0):
            if is_done(path) and run.state in ("failed", *_RESUMED):  # another process has finished it meanwhile
                return False
            gone = path.rename(path.with_name(f".{path.name}.removed"))
    except Timeout:
        return False
    shutil.rmtree(gone)
    with suppress(OSError):  # the first directory that has something else in it
        for parent in list(path.parents)[:3]:
            parent.rmdir()
    return True

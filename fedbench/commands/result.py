"""The result of a command."""

import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fedbench.runs.executors.base import RunResult
from fedbench.runs.run import REMEDY, DamagedRun, Run


@dataclass(frozen=True)
class CommandResult:
    """The result of a command, besides its printed output.

    Attributes:
        status: The exit status.
        page: The main file written by the command, to be opened by the user, or None.
        runs: The complete runs of a sweep, in the order of its combinations.
    """

    status: int = 0
    page: Path | None = None
    runs: tuple[Run, ...] = ()

    def _repr_png_(self) -> bytes | None:
        """Return the picture that the command wrote, which a notebook shows; None without one."""
        if self.page is None or self.page.suffix != ".png":
            return None
        return self.page.read_bytes()


def print_errors(results: Iterable[RunResult], config_dir: Path | None) -> None:
    """Print the errors of runs, and commands that repeat the failed runs."""
    options = [] if config_dir is None else ["--config-dir", str(config_dir)]
    for result in results:
        run = " ".join(result.overrides)
        if result.error:
            print(f"fedbench: {result.status}: {run}: {result.error}", file=sys.stderr)
        if result.status == "failed":
            remedy = [REMEDY] if REMEDY in result.error else []
            command = shlex.join(["fedbench", *options, *result.overrides, *remedy])
            print(f"fedbench: to repeat it: {command}", file=sys.stderr)


def readable_runs(results: Iterable[RunResult]) -> list[Run]:
    """Return the runs with files, each directory once; print why others cannot be read."""
    from fedbench.runs.results import readable_run  # late, as it imports pandas

    runs = {}
    for result in results:
        if result.path is None or result.path in runs:
            continue
        try:
            runs[result.path] = readable_run(result.path)
        except DamagedRun as error:
            if not result.error:  # printed already
                print(f"fedbench: {error}", file=sys.stderr)
    return [*runs.values()]

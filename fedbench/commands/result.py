"""The result of a command."""

from dataclasses import dataclass
from pathlib import Path

from fedbench.runs.run import Run


@dataclass(frozen=True)
class CommandResult:
    """The result of a command, beside what it has printed.

    Attributes:
        status: The exit status.
        page: The file to open of the files that it has written, or None.
        runs: The complete runs of a sweep, in the order of its combinations.
    """

    status: int = 0
    page: Path | None = None
    runs: tuple[Run, ...] = ()

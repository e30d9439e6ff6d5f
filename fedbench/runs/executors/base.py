"""The base class of executors, and the runs and results that they exchange with their callers."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedbench.config.schema import RunConfig
from fedbench.config.user_sources import user_code_from
from fedbench.core.errors import RequestError
from fedbench.runs.cached_run import Outcome, cached_run
from fedbench.runs.process import interruption
from fedbench.runs.run import error_text

PATIENCE = 25.0  # seconds for a run to finish its round and save it; schedulers usually give 30


@dataclass(frozen=True)
class RunResult:
    """The result of one of several runs.

    Attributes:
        overrides: The overrides of the run.
        status: ``done``, ``diverged``, ``failed``, ``refused`` (the request was wrong) or
            ``interrupted``.
        path: Directory of the run; None if it has left nothing.
        error: The message of the error that ended it; empty for a run that is done or has diverged.
        outcome: The outcome of a run that is done or has diverged.
    """

    overrides: tuple[str, ...]
    status: str
    path: Path | None = None
    error: str = ""
    outcome: Outcome | None = None


@dataclass(frozen=True)
class RunBatch:
    """Runs that are carried out together.

    Attributes:
        configs: The configuration of each run.
        config_dir: The user's directory with config files and modules.
        debug: Whether the traceback of a failed run is printed.
        quiet: Whether results are not printed.
        results: The results so far, in the order in which the runs have ended.
    """

    configs: Sequence[RunConfig]
    config_dir: Path | None = None
    debug: bool = False
    quiet: bool = False
    results: list[RunResult] = field(default_factory=list)

    def statuses(self) -> list[str]:
        """Return the statuses of the runs that have ended."""
        return [result.status for result in self.results]

    def add(self, result: RunResult) -> None:
        """Add the result of a run, and print it unless the batch is quiet."""
        if result.outcome is not None and not self.quiet:
            result.outcome.say()
        self.results.append(result)


def execute_run(
    config: RunConfig,
    config_dir: Path | None,
    debug: bool,
    cores: int | None = None,
) -> RunResult:
    """Carry out one run in this process and return its result, also if an error has ended it.

    Args:
        config: The configuration of the run.
        config_dir: The user's directory with config files and modules.
        debug: Whether the traceback of an error is printed.
        cores: Number of cores that the run may use. If None, all cores available to this process.

    Raises:
        KeyboardInterrupt: If a signal has ended it.
    """
    try:
        with user_code_from(config_dir):
            outcome = cached_run(config, cores)
    except Exception as error:
        if (cause := interruption(error)) is not None:
            raise cause from None
        if isinstance(error, RequestError):
            return RunResult(config.overrides, "refused", error=str(error))
        if debug:
            traceback.print_exc()
        path = config.path if (config.path / "meta.json").exists() else None
        return RunResult(config.overrides, "failed", path, error_text(error))
    run = outcome.run
    return RunResult(
        config.overrides,
        run.meta["status"],
        run.path,
        outcome=outcome,
    )


class Executor(ABC):
    """Carries out runs somewhere. No result depends on where."""

    @abstractmethod
    def execute(self, batch: RunBatch) -> None:
        """Carry out runs and add their results to the batch; a failure never stops the others.

        Raises:
            RequestError: If the cluster cannot be reached.
            KeyboardInterrupt: On Ctrl-C, when all processes have stopped.
        """

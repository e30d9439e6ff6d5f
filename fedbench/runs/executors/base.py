"""Base class of executors, and the runs and results exchanged with their callers."""

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

PATIENCE = 25.0  # seconds for a run to finish and save its round; schedulers usually allow 30


@dataclass(frozen=True)
class RunResult:
    """The result of one run in a batch.

    Attributes:
        overrides: The overrides of the run.
        status: ``done``, ``diverged``, ``failed``, ``refused`` (the request was invalid) or
            ``interrupted``.
        path: Directory of the run, or None if the run left no files.
        error: Message of the error that ended the run; empty for a done or diverged run.
        outcome: Outcome of a done or diverged run, else None.
    """

    overrides: tuple[str, ...]
    status: str
    path: Path | None = None
    error: str = ""
    outcome: Outcome | None = None


@dataclass(frozen=True)
class RunBatch:
    """Runs that are executed together.

    Attributes:
        configs: The configuration of each run.
        config_dir: The user's directory with config files and modules.
        debug: Whether to print the traceback of a failed run.
        quiet: Whether to suppress the printing of results.
        results: The results so far, in the order in which the runs ended.
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
            common = set.intersection(*(set(config.overrides) for config in self.configs))
            own = [text for text in result.overrides if text not in common]
            result.outcome.say(own)
        self.results.append(result)


def execute_run(
    config: RunConfig,
    config_dir: Path | None,
    debug: bool,
    cores: int | None = None,
) -> RunResult:
    """Execute one run in this process and return its result, even if the run ended with an error.

    Args:
        config: The configuration of the run.
        config_dir: The user's directory with config files and modules.
        debug: Whether to print the traceback of an error.
        cores: Number of cores that the run may use. If None, all cores available to this process.

    Raises:
        KeyboardInterrupt: If a signal ended the run.
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
        return RunResult(config.overrides, "failed", begun(config), error_text(error))
    run = outcome.run
    return RunResult(
        config.overrides,
        run.meta["status"],
        run.path,
        outcome=outcome,
    )


def begun(config: RunConfig) -> Path | None:
    """Return the directory of a run, or None if the run left no files."""
    return config.path if (config.path / "meta.json").exists() else None


class Executor(ABC):
    """Base class of executors. Results do not depend on where runs are executed."""

    @abstractmethod
    def execute(self, batch: RunBatch) -> None:
        """Execute runs and add their results to the batch; a failed run never stops the others.

        Raises:
            RequestError: If the cluster cannot be reached.
            KeyboardInterrupt: On Ctrl-C, after all processes have stopped.
        """

"""The protocol of executors, and the runs and results that they exchange with their callers."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar

from fedbench.config.schema import RunConfig
from fedbench.config.user_sources import user_code_from
from fedbench.core.atomic_files import NotWritten
from fedbench.core.errors import RequestError
from fedbench.runs.cached_run import Outcome, cached_run
from fedbench.runs.process import interruption

T = TypeVar("T")

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
        overrides: The overrides of each run.
        compose: Composes the configuration of a run from its overrides.
        config_dir: A directory of the user with config files and modules.
        loud: Whether the traceback of a failed run is printed.
        quiet: Whether results are not printed.
        results: The results so far, in the order in which the runs have ended.
    """

    overrides: Sequence[Sequence[str]]
    compose: Callable[[Sequence[str]], RunConfig]
    config_dir: Path | None = None
    loud: bool = False
    quiet: bool = False
    results: list[RunResult] = field(default_factory=list)

    def without_runs(self) -> RunBatch:
        """Return the batch as a process gets it that carries out one run after another."""
        return replace(self, overrides=(), results=[])

    def config(self, overrides: Sequence[str]) -> RunConfig | RunResult:
        """Return the configuration of a run, or its result if the configuration is refused."""
        return self._attempt(overrides, lambda: self.compose(overrides))

    def run(
        self, config: RunConfig, overrides: Sequence[str], cores: int | None = None
    ) -> RunResult:
        """Carry out one run in this process and return its result.

        Args:
            config: The configuration of the run.
            overrides: Its overrides.
            cores: Number of cores that it may use; None is all of this process.

        Raises:
            KeyboardInterrupt: If a signal has ended it.
        """
        outcome = self._attempt(overrides, lambda: cached_run(config, cores))
        if isinstance(outcome, Outcome):
            return RunResult(
                tuple(overrides), outcome.run.meta["status"], outcome.run.path, outcome=outcome
            )

        begun = outcome.status == "failed" and (config.path / "meta.json").exists()
        return replace(outcome, path=config.path) if begun else outcome

    def add(self, result: RunResult) -> None:
        """Add the result of a run, and print it unless the batch is quiet."""
        if result.outcome is not None and not self.quiet:
            result.outcome.say()
        self.results.append(result)

    def _attempt(self, overrides: Sequence[str], step: Callable[[], T]) -> T | RunResult:
        """Return the value of a step of a run, or the result of the run if an error has ended it in this step."""
        try:
            with user_code_from(self.config_dir):
                return step()
        except Exception as error:
            if (cause := interruption(error)) is not None:
                raise cause from None
            if isinstance(error, RequestError):
                return RunResult(tuple(overrides), "refused", error=str(error))
            if self.loud:
                traceback.print_exc()
            message = (
                str(error) if isinstance(error, NotWritten) else f"{type(error).__name__}: {error}"
            )
            return RunResult(tuple(overrides), "failed", error=message)


class Executor(Protocol):
    """Carries out runs somewhere. No result depends on where."""

    def warm_up(self) -> None:
        """Start slow preparations that can go on while the caller checks the runs; by default there are none."""
        return

    def execute(self, batch: RunBatch, configs: Sequence[RunConfig]) -> None:
        """Carry out runs and add their results to the batch; a failure never stops the others.

        Args:
            batch: The runs.
            configs: Configurations of those that are not done, by which the number at a time is
                chosen.

        Raises:
            RequestError: If the cluster cannot be reached.
            KeyboardInterrupt: On Ctrl-C, when all processes have stopped.
        """

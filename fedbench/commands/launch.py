"""Jobs: the one way in which sweeps and ``reproduce`` start runs, here, in workers, or through Hydra's launchers."""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.commands.objective import objective_of, objective_value
from fedbench.commands.run import report
from fedbench.config.compose import Composer
from fedbench.config.overrides import quoted
from fedbench.config.schema import RunConfig
from fedbench.config.user_code import user_code_from
from fedbench.core.errors import RequestError
from fedbench.core.writing import NotWritten
from fedbench.runs.cached_run import cached_run, not_writable
from fedbench.runs.data_sets import DataSets
from fedbench.runs.interrupts import raise_if_interrupted
from fedbench.runs.progress import hidden
from fedbench.runs.run import read_run
from fedbench.runs.sweep_notes import Note, forget, leave

_BASIC_LAUNCHER = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
_BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
_INDEX = "planned_run"  # the axis of a sweep over a list of runs
# what conf/config.yaml says of Hydra, for a sweep that is composed without it
_BARE = ("hydra/hydra_logging=none", "hydra/job_logging=none", "hydra.output_subdir=null", "hydra.sweep.subdir=.")


class Job:
    """What carries out every job of a sweep, maybe in another process.

    A job leaves a note in the sweep's directory and never stops the other jobs. Jobs share the data that they read.

    Args:
        composer: Composes the configuration of a job.
        loud: Print the traceback of a failed job.
        batch: Overrides per job, for a sweep over a list of runs; None for a sweep over the axes of the command line.
        quiet: Do not print the results of the runs.
    """

    def __init__(
        self, composer: Composer, loud: bool, batch: Sequence[Sequence[str]] | None = None, quiet: bool = False
    ) -> None:
        self.composer, self.loud, self.batch, self.quiet = composer, loud, batch, quiet
        self._data = DataSets()

    def __call__(self, config: Any) -> float:
        """Carry out the job whose configuration Hydra has composed: what its launchers call.

        Returns:
            The run's ``objective``, for sweepers; NaN if the run failed.
        """
        from hydra.core.hydra_config import HydraConfig

        hydra = HydraConfig.get()
        number, overrides = int(hydra.job.num), list(hydra.overrides.task)
        if self.batch is not None:
            number = int(config[_INDEX])
            overrides = list(self.batch[number])
        # on a terminal, the bars of several processes would be drawn over one another
        with hidden() if sys.stderr.isatty() else nullcontext():
            note = self.carry_out(number, overrides, Path(hydra.sweep.dir))
        if note.path is None or note.status not in ("done", "diverged"):
            return math.nan
        with user_code_from(self.composer.own):
            return objective_value(read_run(Path(note.path)), objective_of(self.compose(overrides)))

    def compose(self, overrides: Sequence[str]) -> RunConfig:
        """Return the configuration of a job.

        Raises:
            RequestError: If the request is wrong.
        """
        config = self.composer.config(overrides)
        objective_of(config)  # refused now and not after the training
        return config

    def carry_out(
        self,
        number: int,
        overrides: list[str],
        folder: Path,
        config: RunConfig | None = None,
        cores: int | None = None,
    ) -> Note:
        """Carry out a job, leave its note and return it.

        Args:
            number: Number of the job.
            overrides: The overrides of its run.
            folder: Directory of the sweep.
            config: The configuration if it is composed already.
            cores: Number of cores that the run may use; None is all of this process.
        """
        with user_code_from(self.composer.own):
            note = self._carried_out(number, overrides, config, cores)
            leave(folder, note)
            return note

    def _carried_out(self, number: int, overrides: list[str], config: RunConfig | None, cores: int | None) -> Note:
        path: str | None = None
        try:
            config = config or self.compose(overrides)
            path = str(config.path)
            outcome = cached_run(config, self._data, cores)
            if not self.quiet:
                report(outcome)
            return Note(number, overrides, outcome.status, str(outcome.run.path), None)
        except RequestError as error:
            raise_if_interrupted(error)
            return Note(number, overrides, "refused", None, str(error))
        except Exception as error:
            raise_if_interrupted(error)
            if self.loud:
                traceback.print_exc()
            made = path if path and (Path(path) / "meta.json").exists() else None
            what = str(error) if isinstance(error, NotWritten) else f"{type(error).__name__}: {error}"
            return Note(number, overrides, "failed", made, what)


def launch_batch(
    batch: Sequence[Sequence[str]], folder: Path, launcher: Sequence[str], own: Path | None = None
) -> None:
    """Carry out a list of runs as a sweep over their numbers; the notes in ``folder`` have the results.

    Args:
        batch: Overrides per run.
        folder: Directory of the sweep.
        launcher: Overrides that choose Hydra's launcher.
        own: A config tree in addition to fedbench's own.
    """
    composer = Composer(own)
    typed = [*_BARE, *launcher, f"+{_INDEX}=range(0,{len(batch)})"]
    launch(composer, None, typed, folder, Job(composer, loud=False, batch=[list(b) for b in batch]))


def launch(composer: Composer, config_name: str | None, overrides: Sequence[str], folder: Path, job: Job) -> None:
    """Let Hydra's sweeper and launcher carry out jobs.

    Args:
        composer: Knows the config tree.
        config_name: The config that the overrides change, or None for Hydra's own section alone.
        overrides: The axes of the sweep, and what chooses sweeper and launcher.
        folder: Directory of the sweep.
        job: What is called for every job.

    Raises:
        RequestError: If the directory cannot be written to, or the sweep is refused; what it left there is removed.
    """
    from fedbench.config.hints import explain

    make_directory(folder)
    place = f"hydra.sweep.dir={quoted(str(folder))}"
    typed = [*overrides, *composer.search_path(), "hydra.mode=MULTIRUN", place]
    try:
        with composer.hydra() as hydra:
            hydra.multirun(config_name, job, typed, with_log_configuration=False)
    except Exception as error:
        clear = explain(error, lambda: composer.keys([]))
        if isinstance(clear, RequestError):
            forget(folder)
        if clear is error:
            raise
        raise clear from error


def make_directory(folder: Path) -> None:
    """Make the directory of a sweep.

    Raises:
        RequestError: If it cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(folder, folder, error) from error


@dataclass(frozen=True)
class SweepPlan:
    """What carries out a sweep.

    Attributes:
        folder: Directory of the sweep, ``hydra.sweep.dir``.
        enumerates: Whether Hydra's own sweeper is chosen, which takes listed values only.
        basic: Whether Hydra's own launcher is chosen too.
    """

    folder: Path
    enumerates: bool
    basic: bool


def sweep_plan(composer: Composer, config_name: str, overrides: Sequence[str]) -> SweepPlan:
    """Return what carries out a sweep that these overrides ask for."""
    from hydra.types import RunMode

    with composer.hydra() as hydra:
        config = hydra.compose_config(
            config_name=config_name,
            overrides=[*overrides, *composer.search_path(), "hydra.mode=MULTIRUN"],
            run_mode=RunMode.MULTIRUN,
            with_log_configuration=False,
        )
        own = config.hydra.sweeper._target_ == _BASIC_SWEEPER
        return SweepPlan(
            Path(str(config.hydra.sweep.dir)), own, own and config.hydra.launcher._target_ == _BASIC_LAUNCHER
        )

"""Runs through a launcher of Hydra, such as those for SLURM: a sweep over the numbers of the runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from fedbench.config.compose import Composer
from fedbench.config.hints import explain
from fedbench.config.overrides import quoted
from fedbench.config.user_code import user_code_from
from fedbench.core.errors import RequestError
from fedbench.runs.interrupts import raise_if_interrupted
from fedbench.runs.pool import Ended, Runs, announce, carry_out, carry_out_all, shared_gpus
from fedbench.runs.progress import hidden

_INDEX = "planned_run"  # the axis of the sweep
# what conf/config.yaml says of Hydra, for a sweep that is composed without it
_BARE = ("hydra/hydra_logging=none", "hydra/job_logging=none", "hydra.output_subdir=null", "hydra.sweep.subdir=.")


class _Job:
    """One of the runs, carried out where the launcher calls it.

    Args:
        runs: Overrides per run.
        own: A config tree of the user's own.
        loud: Print the traceback of a failed run.
    """

    def __init__(self, runs: Sequence[Sequence[str]], own: Path | None, loud: bool) -> None:
        self._runs, self._own, self._loud = runs, own, loud

    def __call__(self, config: Any) -> Ended:
        overrides = self._runs[int(config[_INDEX])]
        # on a terminal, the bars of several processes would be drawn over one another
        with hidden() if sys.stderr.isatty() else nullcontext(), user_code_from(self._own):
            try:
                composed = Composer(self._own).config(overrides)
            except RequestError as error:
                raise_if_interrupted(error)
                return Ended(tuple(overrides), "refused", error=str(error))
            ended = carry_out(composed, overrides, loud=self._loud)
        ended.say()
        return ended


def launch(
    runs: Sequence[Sequence[str]], folder: Path, launcher: Sequence[str], own: Path | None = None, loud: bool = False
) -> list[Ended]:
    """Return the results of runs, in their order.

    Args:
        runs: Overrides per run.
        folder: Directory that the launcher may write to.
        launcher: Overrides that choose and configure the launcher.
        own: A config tree of the user's own.
        loud: Print the traceback of a failed run.

    Raises:
        RequestError: If the launcher is refused.
    """
    composer = Composer(own)
    typed = [*_BARE, *launcher, *composer.search_path(), "hydra.mode=MULTIRUN"]
    typed += [f"hydra.sweep.dir={quoted(str(folder))}", f"+{_INDEX}=range(0,{len(runs)})"]
    try:
        with composer.hydra() as hydra:
            batches = hydra.multirun(None, _Job(runs, own, loud), typed, with_log_configuration=False)
    except Exception as error:
        clear = explain(error, lambda: composer.keys([]))
        if clear is error:
            raise
        raise clear from error
    return [job.return_value for batch in batches for job in batch]


def train(
    results: Path,
    launcher: Sequence[str],
    jobs: int,
    ended: list[Ended],
    runs: Sequence[Sequence[str]],
    own: Path | None = None,
) -> None:
    """Carry out runs of papers, through a launcher or here, and add their results to ``ended``, however it ends.

    Args:
        results: The results directory.
        launcher: Overrides that choose Hydra's launcher; none for no launcher.
        jobs: Number of runs at a time without a launcher.
        ended: The list of results.
        runs: Overrides per run.
        own: A config tree in addition to fedbench's own.
    """
    if launcher:
        ended += launch(runs, (results / "sweeps" / f"reproduce_{os.getpid()}").resolve(), launcher, own)
        return
    announce(len(runs), min(jobs, len(runs)))
    composer = Composer(own)
    gpus = shared_gpus([composer.config(runs[0])])
    carry_out_all(Runs(runs, composer.config, own), jobs, gpus, ended)

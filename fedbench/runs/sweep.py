"""The combinations of a sweep: which runs they make, the check of all of them, and their execution."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from functools import cache, partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from fedbench.config.compose import Composer
from fedbench.config.overrides import MOST_RUNS, Override, parse_overrides, quoted
from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError
from fedbench.core.validation import integer
from fedbench.runs.durations import Durations
from fedbench.runs.executor import Executor, announce
from fedbench.runs.pool import RunBatch, RunResult, start_importing
from fedbench.runs.process import answered_by, end_at_once
from fedbench.runs.progress import hidden
from fedbench.runs.run import is_done

BATCH_SIZE = "hydra.sweeper.max_batch_size="
_MANY = 20  # configurations whose check takes seconds
_INDEX = "planned_run"  # the axis of a launcher's sweep: the numbers of the runs
_SETTINGS = (
    *("hydra/hydra_logging=none", "hydra/job_logging=none", "hydra.output_subdir=null"),
    "hydra.sweep.subdir=.",
    f"{BATCH_SIZE}1000",  # tasks of an array at most; SLURM's MaxArraySize is 1001 unless the cluster sets another
)


def start(
    runs: Sequence[Sequence[str]],
    composer: Composer,
    configs: Sequence[RunConfig],
    executor: Executor,
    launcher: Sequence[str],
    ended: list[RunResult],
    loud: bool = False,
) -> None:
    """Carry out runs and add their results to ``ended``, however it ends.

    Args:
        runs: Overrides per run.
        composer: Composes their configurations.
        configs: Configurations of the runs that are not done, by which the number at a time is chosen.
        executor: Executes them without a launcher.
        launcher: Overrides that choose Hydra's launcher; none for no launcher.
        ended: The list of results.
        loud: Print the traceback of a failed run.
    """
    if launcher:
        folder = configs[0].results_dir / "sweeps" / f"{datetime.now():%Y-%m-%d_%H-%M-%S}"
        typed = [
            *_SETTINGS,
            *launcher,
            f"hydra.sweep.dir={quoted(str(folder.resolve()))}",
            f"+{_INDEX}=range(0,{len(runs)})",
        ]
        batches = composer.multirun(partial(_job, runs, composer.config_dir, loud), typed)
        ended += [job.return_value for batch in batches for job in batch]
        (folder / "multirun.yaml").unlink(missing_ok=True)  # Hydra's; logs of the launcher stay
        with suppress(OSError):  # a directory that has something in it stays
            for empty in (folder, folder.parent):
                empty.rmdir()
        return
    if executor.cluster is None:
        announce(len(configs), executor.number(configs))
    else:
        runs = sorted(runs, key=_expected(composer, configs[0].results_dir), reverse=True)
    executor.execute(RunBatch(runs, composer.config, composer.config_dir, loud), configs, ended)


def _expected(composer: Composer, results: Path) -> Callable[[Sequence[str]], tuple[bool, float]]:
    """Return what runs are ordered by: the seconds that they take; those of which nothing is known take longest."""
    durations = Durations(results)

    @cache  # the seeds of a setting take as long as one another
    def seconds(setting: tuple[str, ...]) -> tuple[bool, float]:
        config = composer.config(setting)
        known = durations.of(config)
        return known is None, config.rounds if known is None else known

    return lambda run: seconds(tuple(text for text in run if not text.startswith("seed=")))


def _job(runs: Sequence[Sequence[str]], config_dir: Path | None, loud: bool, config: Any) -> RunResult:
    """Carry out one of the runs, where a launcher calls it, and return its result."""
    # on a terminal, the bars of several processes would be drawn over one another
    with hidden() if sys.stderr.isatty() else nullcontext():
        (ended,) = Executor(1).execute(
            RunBatch([runs[int(config[_INDEX])]], Composer(config_dir).config, config_dir, loud), []
        )
    return ended


def combinations(overrides: Sequence[Override]) -> list[list[str]]:
    """The overrides of every run, the last axis varying fastest; a key that is repeated has its last values."""
    axes: dict[tuple[str, ...], list[str]] = {}
    for o in overrides:
        values = o.each()
        keys = parse_overrides(values[:1])[0].keys if "={" in values[0] else ()  # of algo={a: 1},{a: 2}
        axes[o.text.split("=", 1)[0], *keys] = values
    return [list(combination) for combination in product(*axes.values())]


def check_combinations(overrides: Sequence[Override], composer: Composer, starts: bool) -> list[RunConfig]:
    """Check the configuration and the method of every combination, with one seed, before anything is trained.

    Args:
        overrides: The axes of the sweep and all other overrides.
        composer: Composes the configurations.
        starts: Whether other processes of this machine may carry them out, which import torch while this goes on.

    Returns:
        The configuration of every run that is not on disk; the seeds of a setting share one.

    Raises:
        RequestError: For a combination that is wrong, first for one whose keys or choices are.
    """
    axes = [o.each() for o in overrides]
    if (runs := prod(map(len, axes))) > MOST_RUNS:
        raise RequestError(f"the sweep has {runs} runs, at most {MOST_RUNS} are allowed; type fewer values")
    later = [text for texts in axes for text in texts[1:] if text.startswith("seed=")]
    seeds = [integer("seed", parse_overrides([seed])[0].value) for seed in later]  # the first is checked below
    axes = [texts[:1] if texts[0].startswith("seed=") else texts for texts in axes]
    if (count := prod(map(len, axes))) > _MANY:
        print(f"fedbench: checking {count} configurations", file=sys.stderr)
    todo: list[RunConfig] = []
    for config in [composer.config(combination) for combination in product(*axes)]:  # all, before torch is imported
        paths = [config.path, *(config.path.with_name(f"seed_{n}") for n in seeds)]
        missing = [path for path in paths if config.force or not is_done(path)]
        if missing:
            if not todo and len(missing) * count > 1 and starts:
                start_importing()
            with answered_by(end_at_once):
                from fedbench.runs.method import method_of  # imports torch, which takes seconds

            method_of(config)
        todo += [config] * len(missing)
    return todo

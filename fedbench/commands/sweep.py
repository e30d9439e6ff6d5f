"""``fedbench -m KEY=V1,V2 ...`` runs every combination, here or through a sweeper and launcher that Hydra is given."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from math import prod
from pathlib import Path

from fedbench.commands.gpus import placement
from fedbench.commands.launch import Job, SweepPlan, launch, make_directory, sweep_plan
from fedbench.commands.side_by_side import announce, jobs_by_default
from fedbench.commands.sweep_view import follow_notes
from fedbench.commands.workers import start_importing, work_through
from fedbench.config.compose import Composer
from fedbench.config.overrides import Override, parse_overrides
from fedbench.config.schema import RunConfig
from fedbench.config.user_code import user_code_from
from fedbench.core.errors import RequestError, integer
from fedbench.runs.interrupts import at_once
from fedbench.runs.run import is_done, read_run
from fedbench.runs.sweep_notes import forget, notes

_MANY = 20  # configurations whose check takes seconds


def carry_out(asked: Namespace) -> int:
    """Run every combination, print a table, and return the exit status: 0 if all runs are done.

    Raises:
        RequestError: If a combination is wrong; nothing is left on disk.
    """
    if asked.resolve:
        raise RequestError("--resolve needs --cfg job")
    config_dir, loud, jobs = asked.config_dir, asked.loud, asked.jobs
    overrides = parse_overrides(asked.overrides)
    composer = Composer(config_dir)
    for override in overrides:
        if override.key.startswith("hydra.sweeper.params"):
            raise RequestError(f"{override.text}: type the axes of the sweep as overrides, such as seed=0,1,2")
    launched = next((o.text for o in overrides if _for_hydra(o)), None)
    if launched is not None and jobs is not None:
        raise RequestError(f"--jobs {jobs} cannot be combined with {launched}; remove one of them")
    with user_code_from(config_dir):
        draws = any(o.key.startswith(("hydra/sweeper", "hydra.sweeper")) for o in overrides)  # a few of all values
        checked = [_one(o) if draws or o.bounds is not None else o for o in overrides]
        todo = check_combinations(checked, composer, jobs if launched is None else 1)
        typed = [o.text for o in overrides]
        plan = sweep_plan(composer, "config", typed)
        _refuse_unlisted(overrides, plan)
        folder = plan.folder
        if jobs is not None and not plan.basic:
            raise RequestError(
                f"--jobs {jobs} cannot be combined with the launcher or sweeper of Hydra that the configuration "
                "chooses; remove one of them"
            )
        try:
            if launched is not None or not plan.basic:
                listed = not draws and all(o.each() for o in overrides if not o.key.startswith(("hydra.", "hydra/")))
                with loky_silent(), follow_notes(folder, len(combinations(overrides)) if listed else None):
                    launch(composer, "config", typed, folder, Job(composer, loud))
            else:
                jobs = jobs_by_default(todo, len(todo)) if jobs is None else min(jobs, max(1, len(todo)))
                make_directory(folder)
                gpus = placement(todo)
                announce(len(todo), jobs, gpus)
                work_through(Job(composer, loud), combinations(overrides), folder, jobs, gpus)
        except KeyboardInterrupt:
            _close(folder, config_dir)
            raise
    return _close(folder, config_dir)


@contextmanager
def loky_silent() -> Iterator[None]:
    """Keep the warnings of loky, joblib's pool of processes, from the terminal inside this block.

    It warns that a worker stopped when it replaces one whose memory has grown, and its tracker of resources, a process
    of its own, warns of what such a worker left and what it removes itself. Neither loses a run.
    """
    name = "PYTHONWARNINGS"  # the tracker is started with it
    before = os.environ.get(name)
    os.environ[name] = ",".join(filter(None, (before, "ignore:resource_tracker:UserWarning")))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "A worker stopped while some jobs were given to the executor", UserWarning
            )
            yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _refuse_unlisted(overrides: Sequence[Override], plan: SweepPlan) -> None:
    """Refuse values that Hydra's own sweeper cannot list."""
    for o in overrides:
        if o.bounds is not None and plan.enumerates:
            raise RequestError(
                f"{o.text} has no list of values; type some, or choose a sweeper that draws them, such as "
                "hydra/sweeper=optuna, or use `fedbench tune`"
            )


def _one(override: Override) -> Override:
    """Return an axis with one of its values."""
    if override.bounds is not None:
        return parse_overrides([f"{override.text.split('=', 1)[0]}={override.bounds[0]}"])[0]
    return parse_overrides(override.each()[:1])[0] if override.sweeps and override.each() else override


def _for_hydra(override: Override) -> bool:
    """Return whether an override leaves the runs to Hydra's launchers: it names one, or values that Hydra must list."""
    ours = ("hydra.sweep.dir", "hydra.sweep.subdir", "hydra.run.dir")
    return (override.key.startswith(("hydra.", "hydra/")) and override.key not in ours) or not override.each()


def combinations(overrides: Sequence[Override]) -> list[list[str]]:
    """Return the overrides of every run, the last axis varying fastest; a key that is repeated has its last values."""
    axes = {o.text.split("=", 1)[0]: o.each() for o in overrides if not o.key.startswith("hydra.")}
    return [list(combination) for combination in product(*axes.values())]


def check_combinations(overrides: Sequence[Override], composer: Composer, jobs: int | None) -> list[RunConfig]:
    """Check the configuration and the method of every combination, with one seed, before anything is trained.

    Args:
        overrides: The axes of the sweep and all other overrides.
        composer: Composes the configurations.
        jobs: Number of runs at a time, as far as it is known; workers start to import torch while this goes on.

    Returns:
        The configuration of every run that is not on disk; the seeds of a setting share one.

    Raises:
        RequestError: For the first combination that is wrong.
    """
    axes = [texts for o in overrides if (texts := o.each())]
    later = [text for texts in axes for text in texts[1:] if text.startswith("seed=")]
    seeds = [integer("seed", parse_overrides([seed])[0].value) for seed in later]  # the first is checked below
    axes = [texts[:1] if texts[0].startswith("seed=") else texts for texts in axes]
    if (count := prod(map(len, axes))) > _MANY:
        print(f"fedbench: checking {count} configurations", file=sys.stderr)
    todo: list[RunConfig] = []
    importing = False
    for combination in product(*axes):
        config = composer.config(combination)
        paths = [config.path, *(config.path.with_name(f"seed_{n}") for n in seeds)]
        missing = [path for path in paths if config.force or not is_done(path)]
        todo += [config] * len(missing)
        if missing:
            if not importing and len(todo) > 1 and (jobs or jobs_by_default(todo, len(todo))) > 1:
                start_importing()
                importing = True
            with at_once():
                from fedbench.runs.build import method_of  # imports torch
            method_of(config)
    return todo


def _close(folder: Path, config_dir: Path | None) -> int:
    """Print the results of a sweep and return its exit status."""
    from fedbench.report.present import summary

    found = notes(folder)
    # a directory counts once, however many jobs led to it
    runs = [read_run(Path(path)) for path in dict.fromkeys(n.path for n in found) if path is not None]
    wrong = [n for n in found if n.status in ("refused", "failed")]
    for error in dict.fromkeys(n.error for n in wrong):
        jobs = [n for n in wrong if n.error == error]
        print(f"fedbench: {jobs[0].status}: {' '.join(jobs[0].overrides)}: {error}", file=sys.stderr)
        if len(jobs) > 1:
            print(f"fedbench: and {len(jobs) - 1} more for the same reason", file=sys.stderr)
    own = [] if config_dir is None else ["--config-dir", str(config_dir)]
    for note in (n for n in wrong if n.status == "failed"):
        _warn(f"fedbench: to repeat it: {shlex.join(['fedbench', *own, *note.overrides])}")
    if not runs:
        forget(folder)
        return 2
    print("\n" + summary(runs))
    return 0 if all(n.status == "done" for n in found) else 1


def _warn(text: str) -> None:
    """Print a line on standard error, in red on a terminal."""
    from rich.console import Console  # late: most sweeps have nothing to warn of

    Console(stderr=True).print(text, style="red", markup=False, highlight=False, soft_wrap=True)

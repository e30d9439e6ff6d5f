"""``fedbench -m KEY=V1,V2 ...`` runs every combination, here or through a launcher of Hydra."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from datetime import datetime
from itertools import product
from math import prod
from pathlib import Path

from rich.console import Console

from fedbench.commands.launch import launch
from fedbench.config.compose import Composer
from fedbench.config.overrides import Override, parse_overrides
from fedbench.config.schema import RunConfig
from fedbench.config.user_code import user_code_from
from fedbench.core.errors import RequestError, integer
from fedbench.report.tables import summary
from fedbench.runs.build_method import method_of
from fedbench.runs.cached_run import not_writable
from fedbench.runs.pool import Ended, Runs, announce, carry_out_all, jobs_by_default, shared_gpus, start_importing
from fedbench.runs.run import is_done, read_run

_MANY = 20  # configurations whose check takes seconds


def carry_out(asked: Namespace) -> int:
    """Run every combination, print a table, and return the exit status: 0 if all runs are done.

    Raises:
        RequestError: If a combination is wrong; nothing is left on disk.
    """
    if asked.resolve:
        raise RequestError("--resolve needs --cfg job")
    overrides = parse_overrides(asked.overrides)
    launcher = [o.text for o in overrides if o.key.startswith(("hydra.", "hydra/"))]
    axes = [o for o in overrides if o.text not in launcher]
    _refuse(axes, launcher, asked.jobs)
    composer = Composer(asked.config_dir)
    ended: list[Ended] = []
    with user_code_from(asked.config_dir):
        todo = check_combinations(axes, composer, 1 if launcher else asked.jobs)
        for results in {config.results_dir for config in todo}:
            _make(results)
        runs = combinations(axes)
        try:
            if launcher:
                folder = composer.config(runs[0]).results_dir / "sweeps" / f"{datetime.now():%Y-%m-%d_%H-%M-%S}"
                ended += launch(runs, folder.resolve(), launcher, asked.config_dir, asked.loud)
            else:
                jobs = min(asked.jobs or jobs_by_default(todo, len(todo)), max(1, len(todo)))
                gpus = shared_gpus(todo)
                announce(len(todo), jobs)
                several = Runs(runs, composer.config, asked.config_dir, asked.loud)
                carry_out_all(several, jobs, gpus, ended)
        except KeyboardInterrupt:
            _close(ended, asked.config_dir)
            raise
    return _close(ended, asked.config_dir)


def _make(results: Path) -> None:
    """Make a results directory, so that one that cannot be written to is refused once and not by every run."""
    try:
        results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(f"results_dir={results}", error) from error


def _refuse(axes: Sequence[Override], launcher: Sequence[str], jobs: int | None) -> None:
    """Refuse what cannot be swept over."""
    for text in launcher:
        if text.startswith(("hydra.sweeper", "hydra/sweeper")):
            raise RequestError(f"{text}: type the axes of the sweep as overrides, such as seed=0,1,2")
        if jobs is not None:
            raise RequestError(f"--jobs {jobs} cannot be combined with {text}; remove one of them")
    for axis in axes:
        if not axis.each():
            raise RequestError(f"{axis.text} has no list of values; type some, or use `fedbench tune`")


def combinations(overrides: Sequence[Override]) -> list[list[str]]:
    """Return the overrides of every run, the last axis varying fastest; a key that is repeated has its last values."""
    axes = {o.text.split("=", 1)[0]: o.each() for o in overrides}
    return [list(combination) for combination in product(*axes.values())]


def check_combinations(overrides: Sequence[Override], composer: Composer, jobs: int | None) -> list[RunConfig]:
    """Check the configuration and the method of every combination, with one seed, before anything is trained.

    Args:
        overrides: The axes of the sweep and all other overrides.
        composer: Composes the configurations.
        jobs: Number of runs at a time, as far as it is known; the others start to import torch while this goes on.

    Returns:
        The configuration of every run that is not on disk; the seeds of a setting share one.

    Raises:
        RequestError: For the first combination that is wrong.
    """
    axes = [o.each() for o in overrides]
    later = [text for texts in axes for text in texts[1:] if text.startswith("seed=")]
    seeds = [integer("seed", parse_overrides([seed])[0].value) for seed in later]  # the first is checked below
    axes = [texts[:1] if texts[0].startswith("seed=") else texts for texts in axes]
    if (count := prod(map(len, axes))) > _MANY:
        print(f"fedbench: checking {count} configurations", file=sys.stderr)
    todo: list[RunConfig] = []
    for combination in product(*axes):
        config = composer.config(combination)
        paths = [config.path, *(config.path.with_name(f"seed_{n}") for n in seeds)]
        missing = [path for path in paths if config.force or not is_done(path)]
        if missing:
            if not todo and len(missing) * count > 1 and jobs != 1:
                start_importing()
            method_of(config)
        todo += [config] * len(missing)
    return todo


def _close(ended: Sequence[Ended], config_dir: Path | None) -> int:
    """Print the results of a sweep and return its exit status."""
    wrong = [e for e in ended if e.status in ("refused", "failed")]
    for error in dict.fromkeys(e.error for e in wrong):
        alike = [e for e in wrong if e.error == error]
        print(f"fedbench: {alike[0].status}: {' '.join(alike[0].overrides)}: {error}", file=sys.stderr)
        if len(alike) > 1:
            print(f"fedbench: and {len(alike) - 1} more for the same reason", file=sys.stderr)
    own = [] if config_dir is None else ["--config-dir", str(config_dir)]
    red = Console(stderr=True)  # on a terminal
    for e in (e for e in wrong if e.status == "failed"):
        repeat = f"fedbench: to repeat it: {shlex.join(['fedbench', *own, *e.overrides])}"
        red.print(repeat, style="red", markup=False, highlight=False, soft_wrap=True)
    # a directory counts once, however many runs led to it
    runs = [read_run(path) for path in dict.fromkeys(e.path for e in ended) if path is not None]
    if not runs:
        return 2
    print("\n" + summary(runs))
    return 0 if all(e.status == "done" for e in ended) else 1

"""``fedbench -m KEY=V1,V2 ...`` runs every combination, through whatever sweeper and launcher Hydra is given."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import product
from math import prod
from pathlib import Path

from fedbench.commands.launch import Job, launch, sweep_directory
from fedbench.config.compose import Composer
from fedbench.config.overrides import Override, parse_overrides
from fedbench.config.user_code import user_code_from
from fedbench.core.errors import RequestError, integer
from fedbench.runs.execute import under_its_digest
from fedbench.runs.interrupts import at_once
from fedbench.runs.store import is_done, read_run
from fedbench.runs.sweep_notes import forget, notes

_MANY = 20  # configurations whose check takes seconds


def sweep(texts: Sequence[str], config_dir: Path | None, loud: bool) -> int:
    """Run every combination, print a table, and return the exit status: 0 if all runs are done.

    Args:
        texts: Overrides, some of which have several values.
        config_dir: A config tree of the user's own.
        loud: Print the traceback of a failed job.

    Raises:
        RequestError: If a combination is wrong; nothing is left on disk.
    """
    overrides = parse_overrides(texts)
    composer = Composer(config_dir)
    for override in overrides:
        if override.key.startswith("hydra.sweeper.params"):
            raise RequestError(f"{override.text}: type the axes of the sweep as overrides, such as seed=0,1,2")
    with user_code_from(config_dir):
        check_combinations(overrides, composer)
        typed = [o.text for o in overrides]
        folder = sweep_directory(composer, "config", typed)
        try:
            launch(composer, "config", typed, folder, Job(composer, loud))
        except KeyboardInterrupt:
            _close(folder)
            raise
    return _close(folder)


def check_combinations(overrides: Sequence[Override], composer: Composer) -> None:
    """Check the configuration and the method of every combination, with one seed, before anything is trained.

    Raises:
        RequestError: For the first combination that is wrong.
    """
    axes = [texts for o in overrides if (texts := o.each())]
    for seed in (text for texts in axes for text in texts[1:] if text.startswith("seed=")):
        integer("seed", parse_overrides([seed])[0].value)
    axes = [texts[:1] if texts[0].startswith("seed=") else texts for texts in axes]
    if (count := prod(map(len, axes))) > _MANY:
        print(f"fedbench: checking {count} configurations", file=sys.stderr)
    for combination in product(*axes):
        config = under_its_digest(composer.config(combination))
        if not is_done(config.path):
            with at_once():
                from fedbench.runs.build import method_of  # imports torch
            method_of(config)


def _close(folder: Path) -> int:
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
    if not runs:
        forget(folder)
        return 2
    print("\n" + summary(runs))
    return 0 if all(n.status == "done" for n in found) else 1

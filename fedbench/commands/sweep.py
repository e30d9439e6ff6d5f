"""``fedbench -m KEY=V1,V2 ...`` runs every combination, through whatever sweeper and launcher Hydra is given."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fedbench.commands.launch import Job, launch, sweep_directory
from fedbench.config.compose import Composer
from fedbench.config.overrides import Override, parse_overrides
from fedbench.config.own_code import own_code
from fedbench.core.errors import integer
from fedbench.runs.store import read_run
from fedbench.runs.sweep_notes import forget, notes


def sweep(texts: Sequence[str], config_dir: Path | None, loud: bool) -> int:
    """Run every combination, print a table, and return the exit status: 0 if all runs are done.

    Args:
        texts: Overrides, some of which have several values.
        config_dir: A config tree of the user's own.
        loud: Print the traceback of a failed job.

    Raises:
        RequestError: If any value of any axis is wrong; nothing is left on disk.
    """
    overrides = parse_overrides(texts)
    composer = Composer(config_dir)
    with own_code(config_dir):
        check_axes(overrides, composer)
        typed = [o.text for o in overrides]
        folder = sweep_directory(composer, "config", typed)
        try:
            launch(composer, "config", typed, folder, Job(composer, loud))
        except KeyboardInterrupt:
            _close(folder)
            raise
    return _close(folder)


def check_axes(overrides: Sequence[Override], composer: Composer) -> None:
    """Check every value of every axis once, the other axes at their first values, before anything is trained.

    Raises:
        RequestError: For the first wrong value.
    """
    axes = [texts for o in overrides if (texts := o.each())]
    first = [values[0] for values in axes]
    for n, values in enumerate(axes):
        for value in values if n == 0 else values[1:]:
            if value.startswith("seed=") and value != values[0]:
                integer("seed", parse_overrides([value])[0].value)
            else:
                composer.setting([*first[:n], value, *first[n + 1 :]])


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

"""The words of the command line as functions: what they print is printed, and errors of a request are raised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from fedbench.cli import execute
from fedbench.config.overrides import as_value, to_overrides
from fedbench.core.config_values import leaves
from fedbench.runs.run import Run, is_done, read_run

Overrides: TypeAlias = str | Sequence[str] | Mapping[str, Any]


def sweep(overrides: Overrides, *, jobs: int = 1, config_dir: str | Path | None = None) -> list[Run]:
    """Run every combination of values, as ``fedbench -m``, and return the runs that are complete, in that order.

    Args:
        overrides: As for ``fedbench.run``, but a key may have several values: ``"seed=0,1,2"`` or, in a mapping, a
            list, ``{"seed": [0, 1, 2]}``.
        jobs: Number of runs at a time. In a script, more than one needs ``if __name__ == "__main__":``.
        config_dir: A directory with config files and Python files of your own, as ``--config-dir``.

    Raises:
        RequestError: If a combination is wrong; nothing is left on disk.
    """
    args = execute(["run", "-m", *_texts(overrides), *_flags(jobs=jobs, config_dir=config_dir)])
    return [read_run(path) for path in dict.fromkeys(args.paths) if path is not None and is_done(path)]


def tune(overrides: Overrides, *, jobs: int = 1, config_dir: str | Path | None = None) -> Path | None:
    """Choose values of a method's keys on validation data, as ``fedbench tune``; return the page of the tables.

    Args:
        overrides: Keys of the search and of the runs, with several values as for ``sweep``.
        jobs: As for ``sweep``.
        config_dir: As for ``sweep``.

    Raises:
        RequestError: If the request is wrong.
    """
    return _written("tune", *_texts(overrides), jobs=jobs, config_dir=config_dir)


def compare(overrides: Overrides, *, jobs: int = 1, config_dir: str | Path | None = None) -> Path | None:
    """Tune methods with one budget, run and test them, as ``fedbench compare``; return the page of the report.

    Args:
        overrides: As for ``tune``; the methods are ``methods``.
        jobs: As for ``sweep``.
        config_dir: As for ``sweep``.

    Raises:
        RequestError: If the request is wrong.
    """
    return _written("compare", *_texts(overrides), jobs=jobs, config_dir=config_dir)


def report(folder: str | Path = "results", **flags: Any) -> Path | None:
    """Write the report of a directory of runs, as ``fedbench report``, and return its page, or main.tex.

    Args:
        folder: Directory of the runs.
        flags: Those of the command: ``compare="algo"``, ``latex=True`` and so on.

    Raises:
        RequestError: If there are no runs, or a flag is wrong.
    """
    return _written("report", str(folder), **flags)


def plot(folder: str | Path = "results", **flags: Any) -> Path | None:
    """Draw a metric of the runs in a directory, as ``fedbench plot``, and return the file.

    Args:
        folder: Directory of the runs.
        flags: Those of the command: ``y="accuracy_worst30"``, ``where=["algo=fedavg"]`` and so on.

    Raises:
        RequestError: If there is nothing to draw, or a flag is wrong.
    """
    return _written("plot", str(folder), **flags)


def _texts(given: Overrides) -> list[str]:
    """Return overrides as texts; a list in a mapping is several values."""
    if not isinstance(given, Mapping):
        return to_overrides(given)
    several = {key: v if isinstance(v, list | tuple | range) else [v] for key, v in leaves(dict(given)).items()}
    return [f"{key}={','.join(map(as_value, values))}" for key, values in several.items()]


def _flags(**given: Any) -> list[str]:
    """Return flags as typed: True is a flag alone, and those with None or False are left out."""
    given = {f"--{k.replace('_', '-')}": v if isinstance(v, list) else [v] for k, v in given.items()}
    typed = [(k, v) for k, several in given.items() for v in several if v is not None and v is not False]
    return [k if v is True else f"{k}={v}" for k, v in typed]


def _written(word: str, *texts: str, **flags: Any) -> Path | None:
    """Carry out a word, and return the file to open of those that it has written, or None."""
    return cast(Path | None, execute([word, *texts, *_flags(**flags)]).page)

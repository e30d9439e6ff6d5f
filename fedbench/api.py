"""The commands that run something as functions of Python values.

They print the same and raise errors of a request. Their modules are imported when they are called:
Matplotlib, Optuna and pandas take seconds together.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

from fedbench.commands.result import CommandResult
from fedbench.config.compose import Composer
from fedbench.config.overrides import as_value, to_overrides
from fedbench.config.user_sources import user_code_from
from fedbench.core.config_values import leaves
from fedbench.core.files import existing_directory
from fedbench.runs.cached_run import cached_run
from fedbench.runs.executors.options import make_executor
from fedbench.runs.run import Run

Overrides: TypeAlias = str | Sequence[str] | Mapping[str, Any]


def run(
    overrides: Overrides = "",
    *,
    config_dir: str | Path | None = None,
) -> Run:
    """Run one experiment and return it; a run that is done already is read from disk.

    Args:
        overrides: The arguments of ``fedbench`` on the command line, as one string (split as a
            shell would) or a sequence; or a nested mapping: ``{"algo": "fedavg", "local": {"lr":
            0.1}}``.
        config_dir: A directory with config files and Python files of your own, as ``--config-dir``.

    Returns:
        The run on disk, with ``config``, ``meta``, ``rounds()`` and ``clients()``. Its
        ``meta["status"]`` is done or diverged.

    Raises:
        RequestError: If the request is wrong; nothing is left on disk.
        Exception: Any error that ended the training; calling ``run`` again resumes it.
    """
    with _user_code(config_dir) as folder:
        config = Composer(folder).config(to_overrides(overrides))
        return cached_run(config).run


def sweep(
    overrides: Overrides,
    *,
    jobs: int = 1,
    config_dir: str | Path | None = None,
) -> list[Run]:
    """Run every combination, as ``fedbench -m``, and return the complete runs in their order.

    Args:
        overrides: As for ``fedbench.run``, but a key may have several values: ``"seed=0,1,2"`` or,
            in a mapping, a list, ``{"seed": [0, 1, 2]}``.
        jobs: Number of runs at a time. In a script, more than one needs ``if __name__ ==
            "__main__":``.
        config_dir: A directory with config files and Python files of your own, as ``--config-dir``.

    Raises:
        RequestError: If a combination is wrong; nothing is left on disk.
    """
    from fedbench.commands.sweep import execute

    with _user_code(config_dir) as folder:
        return list(execute(_axes(overrides), make_executor(jobs), folder).runs)


def tune(
    overrides: Overrides,
    *,
    jobs: int = 1,
    config_dir: str | Path | None = None,
) -> CommandResult:
    """Choose values of a method's keys on validation data, as ``fedbench tune``.

    Args:
        overrides: Keys of the search and of the runs, with several values as for ``sweep``.
        jobs: As for ``sweep``.
        config_dir: As for ``sweep``.

    Returns:
        The result: its ``page`` has the tables.

    Raises:
        RequestError: If the request is wrong.
    """
    return _search("tune", overrides, jobs, config_dir)


def compare(
    overrides: Overrides,
    *,
    jobs: int = 1,
    config_dir: str | Path | None = None,
) -> CommandResult:
    """Tune methods with one budget, run and test them, as ``fedbench compare``.

    Args:
        overrides: As for ``tune``; the methods are ``methods``.
        jobs: As for ``sweep``.
        config_dir: As for ``sweep``.

    Returns:
        The result: its ``page`` is that of the report.

    Raises:
        RequestError: If the request is wrong.
    """
    return _search("compare", overrides, jobs, config_dir)


def _search(
    command: Literal["tune", "compare"],
    overrides: Overrides,
    jobs: int,
    config_dir: str | Path | None,
) -> CommandResult:
    from fedbench.commands.tune import execute

    with _user_code(config_dir) as folder:
        return execute(command, _axes(overrides), make_executor(jobs), folder)


@contextmanager
def _user_code(config_dir: str | Path | None) -> Iterator[Path | None]:
    """Let targets name modules of a user's directory inside this block."""
    folder = None if config_dir is None else existing_directory("config_dir", config_dir)
    with user_code_from(folder):
        yield folder


def _axes(overrides: Overrides) -> list[str]:
    """Return overrides as texts; a list in a mapping is several values."""
    if not isinstance(overrides, Mapping):
        return to_overrides(overrides)
    texts = []
    for key, value in leaves(dict(overrides)).items():
        values = value if isinstance(value, list | tuple | range) else [value]
        texts.append(f"{key}={','.join(map(as_value, values))}")
    return texts

"""Python functions for the commands that run experiments.

They print the same output as the commands, and raise ``RequestError`` for an invalid request.
Command modules are imported on the first call, because importing Matplotlib, Optuna and pandas
takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fedbench.commands.result import CommandResult
from fedbench.config.compose import Composer
from fedbench.config.overrides import as_value, to_overrides
from fedbench.config.user_sources import user_code_from
from fedbench.core.config_values import leaves
from fedbench.core.errors import RequestError
from fedbench.core.files import existing_directory
from fedbench.runs.cached_run import announce_earlier_names, cached_run
from fedbench.runs.executors.options import make_executor
from fedbench.runs.process import Interrupted
from fedbench.runs.run import Run, read_run

if TYPE_CHECKING:
    from torch import nn

Overrides: TypeAlias = str | Sequence[str] | Mapping[str, Any]


def run(
    overrides: Overrides = "",
    *,
    config_dir: str | Path | None = None,
    **keys: Any,
) -> Run:
    """Run one experiment and return it; a finished run is loaded from disk.

    Args:
        overrides: The command-line arguments of ``fedbench``, as one string (split as in a shell)
            or a sequence; or a nested mapping, such as ``{"algo": "fedavg", "local": {"lr":
            0.1}}``.
        config_dir: Your directory with config files and Python files, like ``--config-dir``.
        keys: Further overrides: ``run(algo="fedavg", local={"lr": 0.1})``.

    Returns:
        The run on disk, with ``config``, ``meta``, ``rounds()`` and ``clients()``.
        ``meta["status"]`` is "done" or "diverged".

    Raises:
        RequestError: If the request is invalid; nothing is left on disk.
        Exception: Any error that ended the training; calling ``run`` again resumes it.
        KeyboardInterrupt: On Ctrl-C, after the current round; calling ``run`` again resumes it.
    """
    with _user_code(config_dir) as folder:
        texts = to_overrides(overrides) + to_overrides(keys)
        config = Composer(folder).config(texts)
        announce_earlier_names([config])
        outcome = cached_run(config)
        if outcome.signal is not None:  # the run was in its last round
            raise Interrupted(outcome.signal)
        return outcome.run


def load_run(directory: str | Path) -> Run:
    """Return the run in a directory, finished or not.

    Raises:
        RequestError: If the directory does not exist.
        DamagedRun: If its files cannot be read.
    """
    return read_run(existing_directory("directory", directory))


def trained_model(
    run: Run | str | Path,
    *,
    config_dir: str | Path | None = None,
) -> nn.Module:
    """Return the global model of a finished run, on the CPU and ready for predictions.

    The data set is read as well, because it fixes the shapes of the model.

    Args:
        run: The run, or its directory.
        config_dir: As for ``fedbench.run``, if the run has parts of your own.

    Raises:
        RequestError: If the run is not finished, its model cannot be read, or its overrides now
            stand for other settings than those of the run.
    """
    from fedbench.runs.build import model_from

    run = run if isinstance(run, Run) else load_run(run)
    with _user_code(config_dir) as folder:
        config = Composer(folder).config(run.meta["overrides"])
        if config.digest != run.meta["hash"]:
            raise RequestError(
                f"the overrides of {run.path} now stand for other settings (hash {config.digest}): "
                "files in conf/, your code or this version of fedbench have changed since the run"
            )
        return model_from(config, run.path / "model.safetensors")


def sweep(
    overrides: Overrides = "",
    *,
    jobs: int | None = 1,
    config_dir: str | Path | None = None,
    **keys: Any,
) -> list[Run]:
    """Run all combinations, like ``fedbench -m``, and return the complete runs in order.

    Args:
        overrides: As for ``fedbench.run``, but a key may have several values: ``"seed=0,1,2"`` or,
            in a mapping, a list, ``{"seed": [0, 1, 2]}``.
        jobs: Number of simultaneous runs, or None for as many as cores, GPUs and memory allow,
            which is the default of the command. The default is 1 here because more than one
            requires ``if __name__ == "__main__":`` in a script.
        config_dir: Your directory with config files and Python files, like ``--config-dir``.
        keys: Further overrides: ``sweep(algo=["fedavg", "fedprox"], seed=[0, 1, 2])``.

    Raises:
        RequestError: If a combination is invalid; nothing is left on disk.
    """
    from fedbench.commands.sweep import execute

    with _user_code(config_dir) as folder:
        texts = _axes(overrides) + _axes(keys)
        return list(execute(texts, make_executor(jobs), folder).runs)


def tune(
    overrides: Overrides = "",
    *,
    jobs: int | None = 1,
    config_dir: str | Path | None = None,
    **keys: Any,
) -> CommandResult:
    """Choose values for a method's keys on validation data, like ``fedbench tune``.

    Args:
        overrides: Configuration keys of the search and of its runs. A key may have several values,
            as in ``sweep``.
        jobs: As for ``sweep``.
        config_dir: As for ``sweep``.
        keys: As for ``sweep``.

    Returns:
        The result; its ``page`` contains the tables.

    Raises:
        RequestError: If the request is invalid.
    """
    texts = _axes(overrides) + _axes(keys)
    return _search("tune", texts, jobs, config_dir)


def compare(
    overrides: Overrides = "",
    *,
    jobs: int | None = 1,
    config_dir: str | Path | None = None,
    **keys: Any,
) -> CommandResult:
    """Tune methods with the same budget, then run and compare them, like ``fedbench compare``.

    Args:
        overrides: As for ``tune``; the key ``methods`` lists the methods.
        jobs: As for ``sweep``.
        config_dir: As for ``sweep``.
        keys: As for ``sweep``.

    Returns:
        The result; its ``page`` is the page of the report.

    Raises:
        RequestError: If the request is invalid.
    """
    texts = _axes(overrides) + _axes(keys)
    return _search("compare", texts, jobs, config_dir)


def _search(
    command: Literal["tune", "compare"],
    overrides: Sequence[str],
    jobs: int | None,
    config_dir: str | Path | None,
) -> CommandResult:
    from fedbench.commands.tune import execute

    with _user_code(config_dir) as folder:
        return execute(command, overrides, make_executor(jobs), folder)


@contextmanager
def _user_code(config_dir: str | Path | None) -> Iterator[Path | None]:
    """Allow targets to name modules in the user's directory within this block."""
    folder = None if config_dir is None else existing_directory("config_dir", config_dir)
    with user_code_from(folder):
        yield folder


def _axes(overrides: Overrides) -> list[str]:
    """Return overrides as strings; a list in a mapping stands for several values."""
    if not isinstance(overrides, Mapping):
        return to_overrides(overrides)
    texts = []
    for key, value in leaves(dict(overrides)).items():
        values = value if isinstance(value, list | tuple | range) else [value]
        texts.append(f"{key}={','.join(map(as_value, values))}")
    return texts

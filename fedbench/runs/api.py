"""``fedbench.run``: one run from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.config.compose import Composer
from fedbench.config.overrides import to_overrides
from fedbench.config.targets import user_code_from
from fedbench.core.errors import RequestError
from fedbench.core.files import user_path
from fedbench.runs.cached_run import cached_run
from fedbench.runs.run import Run


def run(overrides: str | Sequence[str] | Mapping[str, Any] = "", *, config_dir: str | Path | None = None) -> Run:
    """Run one experiment and return it; a run that is done already is read from disk.

    Args:
        overrides: What would follow ``fedbench`` on the command line, as one string (split as a shell would) or a
            sequence; or a nested mapping: ``{"algo": "fedavg", "local": {"lr": 0.1}}``.
        config_dir: A directory with config files and Python files of your own, as ``--config-dir``.

    Returns:
        The run on disk, with ``config``, ``meta``, ``rounds()`` and ``clients()``. Its ``meta["status"]`` is done or
        diverged.

    Raises:
        RequestError: If the request is wrong; nothing is left on disk.
        Exception: Whatever ended the training; calling ``run`` again resumes it.
    """
    if not isinstance(config_dir, str | Path | None):
        raise RequestError(f"config_dir must be a path, got {config_dir!r}")
    folder = None if config_dir is None else user_path("config_dir", config_dir)
    if folder is not None and not folder.is_dir():
        raise RequestError(f"config_dir={folder} is not a directory")
    with user_code_from(folder):
        return cached_run(Composer(folder).config(to_overrides(overrides))).run

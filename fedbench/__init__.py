"""fedbench: a benchmark harness for federated optimization and fairness across clients.

``run`` runs an experiment, ``load_results`` reads finished runs as pandas frames; ``Algorithm``, ``Averaging``,
``Stage``, ``descent`` and ``server_descent`` are what a method of one's own is made of.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbench.core.algorithm import Algorithm, Averaging, Stage, descent, server_descent
    from fedbench.runs.results import load_results
    from fedbench.runs.start import run

    __version__: str

__all__ = ["Algorithm", "Averaging", "Stage", "descent", "load_results", "run", "server_descent"]

_HOMES = {
    "Algorithm": "fedbench.core.algorithm",
    "Averaging": "fedbench.core.algorithm",
    "Stage": "fedbench.core.algorithm",
    "descent": "fedbench.core.algorithm",
    "server_descent": "fedbench.core.algorithm",
    "load_results": "fedbench.runs.results",
    "run": "fedbench.runs.start",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: torch, Hydra and pandas take seconds together."""
    if name == "__version__":
        globals()[name] = found = _version()
        return found
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # late: it takes 0.06 s

    try:
        return version("fedbench-harness")
    except PackageNotFoundError:  # the sources are on the path but the package is not installed
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})

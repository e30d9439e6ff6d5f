"""fedbench: a benchmark harness for federated optimization and fairness across clients.

``run`` runs one experiment and ``sweep`` runs many; ``load_results`` reads finished runs as pandas
frames, and ``load_run`` reads one of them; ``tune``, ``compare``, ``report`` and ``plot``
correspond to the commands of the same names; ``Algorithm``, ``Averaging``, ``Objective``,
``Stage``, ``descent`` and ``server_descent`` are the building blocks for your own methods.
"""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbench.api import compare, load_run, run, sweep, trained_model, tune
    from fedbench.commands.plot import plot
    from fedbench.commands.report import report
    from fedbench.core.algorithm import Algorithm, Averaging, Stage, descent, server_descent
    from fedbench.core.objective import Objective
    from fedbench.runs.results import load_results

__all__ = [
    "Algorithm",
    "Averaging",
    "Objective",
    "Stage",
    "compare",
    "descent",
    "load_results",
    "load_run",
    "plot",
    "report",
    "run",
    "server_descent",
    "sweep",
    "trained_model",
    "tune",
]

try:
    __version__ = version("fedbench-harness")
except PackageNotFoundError:  # the source is on the path, but the package is not installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """Import a public name on first use: importing torch, Hydra and pandas takes seconds."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("plot", "report"):
        home = f"fedbench.commands.{name}"
    elif name in ("compare", "load_run", "run", "sweep", "trained_model", "tune"):
        home = "fedbench.api"
    elif name == "load_results":
        home = "fedbench.runs.results"
    elif name == "Objective":
        home = "fedbench.core.objective"
    else:
        home = "fedbench.core.algorithm"
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)

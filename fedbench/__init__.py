"""fedbench: a benchmark harness for federated optimisation and fairness across clients."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("fedbench-harness")
except PackageNotFoundError:  # the sources are on the path but the package is not installed
    __version__ = "0+unknown"

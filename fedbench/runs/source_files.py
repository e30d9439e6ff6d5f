"""The published files of a configuration's data source."""

import importlib

from fedbench.config.schema import RunConfig
from fedbench.config.targets import function_of
from fedbench.data.files.fetch import Files


def official_files(config: RunConfig) -> tuple[Files, ...]:
    """Return the published files of the data source in a configuration.

    The result is empty for generated data and for the user's own files.
    """
    source = function_of(config.data.source.target, "data.source")
    module = importlib.import_module(source.__module__)
    files: tuple[Files, ...] = getattr(module, "FILES", ())
    return files

"""The published files of a configuration's data source."""

import importlib

from fedbench.config.schema import RunConfig
from fedbench.config.targets import function_of
from fedbench.data.files.fetch import Files


def official_files(config: RunConfig) -> tuple[Files, ...]:
    """Return the published files of a configuration's source.

    There are none for generated data and for files of the user's own.
    """
    source = function_of(config.data.source.target, "data.source")
    module = importlib.import_module(source.__module__)
    files: tuple[Files, ...] = getattr(module, "FILES", ())
    return files

"""The published files of a configuration's data source."""

import importlib

from fedbench.config.schema import RunConfig
from fedbench.config.targets import function_of
from fedbench.data.files.fetch import Files


def official_files(config: RunConfig) -> tuple[Files, ...]:
    """Return the published files of a configuration's source; none for generated data and files of the user's own."""
    module = importlib.import_module(
        function_of(config.data.source.target, "data.source").__module__
    )
    files: tuple[Files, ...] = getattr(module, "FILES", ())
    return files

"""What a plan says of data that are not there: looked for by name, without reading or downloading anything."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from fedbench.config.compose import compose_run
from fedbench.data.files.places import Places, missing


def missing_files(experiments: Iterable[str], data_dir: Path) -> dict[str, str]:
    """Return the experiments whose data are not in the data directory, with the files that are missing, as text.

    Args:
        experiments: Names of experiments.
        data_dir: Directory of all data sets.
    """
    found = {experiment: missing(_places(experiment), data_dir) for experiment in dict.fromkeys(experiments)}
    return {experiment: ", ".join(files) for experiment, files in found.items() if files}


@cache
def _places(experiment: str) -> Places:
    """Return where the data of an experiment are looked for; nowhere if they are generated."""
    source = compose_run([f"experiment={experiment}", "algo=fedavg"]).data.source.target or ""
    places: Places = getattr(importlib.import_module(source.rpartition(".")[0]), "PLACES", ())
    return places

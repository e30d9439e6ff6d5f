"""Where the files of data sets are looked for, so that a plan knows what is missing without reading or downloading.

A source declares ``PLACES``: groups of files, each of which is needed. A group has alternatives, each a list of files
or directories below the data directory, of which one is enough, such as an archive, or the files that are in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

Places: TypeAlias = tuple[tuple[tuple[str, ...], ...], ...]  # groups, their alternatives, the paths of an alternative


def any_of(*alternatives: Sequence[str]) -> Places:
    """Return a group of files that is there if one of its alternatives is."""
    return (tuple(tuple(paths) for paths in alternatives),)


def missing(places: Places, data_dir: Path) -> list[str]:
    """Return one path for each group of files that is not there: what its first alternative lacks.

    Args:
        places: What a source declares.
        data_dir: Directory of all data sets.
    """
    found = []
    for group in places:
        lacks = [[path for path in paths if not (data_dir / path).exists()] for paths in group]
        if all(lacks):
            found.append(lacks[0][0])
    return found

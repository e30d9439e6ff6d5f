"""Descriptions of choices from the config tree: comments, citations, and names of methods."""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fedbench.config.overrides import CONFIG_DIR
from fedbench.core.config_values import read_yaml


class Citation(NamedTuple):
    """Name, licence and reference of a source.

    Attributes:
        licence: The licence as its publisher states it.
        reference: The reference that a paper which uses the data cites.
        name: The name of the data as papers print it; empty for the user's own.
    """

    licence: str
    reference: str
    name: str = ""


def about(path: Path) -> str:
    """Return the comment at the head of a config file in one line."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if "@package" not in line:
            lines.append(line.lstrip("# "))
    return " ".join(lines)


@cache
def citation(target: str) -> Citation | None:
    """Return the licence and reference of a data source; None for one outside of fedbench.

    Args:
        target: Dotted path of a function, such as ``fedbench.data.sources.mnist.load``.
    """
    before, _, name = target.partition("fedbench.data.sources.")
    if before:
        return None
    citations = read_yaml(CONFIG_DIR / "citations.yaml")
    entry = citations.get(name) or citations.get(name.partition(".")[0])
    return Citation(**entry) if entry else None


@cache
def method_name(algo: str) -> str:
    """Return a method's name as papers print it, by the head of its config file; else ``algo``."""
    path = CONFIG_DIR / "algo" / f"{algo}.yaml"
    if not path.is_file():
        return algo
    return re.split(r" \(|:", about(path))[0]

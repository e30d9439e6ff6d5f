"""Descriptions of choices in the config tree: comments, citations and names of methods."""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fedbench.config.overrides import CONFIG_DIR
from fedbench.core.config_values import read_yaml


class Citation(NamedTuple):
    """Name, licence and reference of a data source.

    Attributes:
        licence: The licence as stated by the publisher.
        reference: The reference to cite in a paper that uses the data.
        name: The name of the data as printed in papers; empty for the user's data.
    """

    licence: str
    reference: str
    name: str = ""


def about(path: Path) -> str:
    """Return the header comment of a config file as one line."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if "@package" not in line:
            lines.append(line.lstrip("# "))
    return " ".join(lines)


def earlier_name(data: str) -> str:
    """Return the header of a data set that is an earlier name of another, or an empty string."""
    path = CONFIG_DIR / "data" / f"{data}.yaml"
    header = about(path) if path.is_file() else ""
    return header if header.startswith("Earlier name of ") else ""


@cache
def citation(target: str) -> Citation | None:
    """Return the licence and reference of a data source, or None for a source outside fedbench.

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
    """Return a method's printed name from the header of its config file, or else ``algo``."""
    path = CONFIG_DIR / "algo" / f"{algo}.yaml"
    if not path.is_file():
        return algo
    return re.split(r" \(|:", about(path))[0]

"""The config groups: where their files lie, their choices, and what to cite for a source of data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from fedbench.core.errors import RequestError, nearest

GROUPS = ("algo", "data", "model", "experiment", "tracker", "debug")
LISTED = ("algo", "data", "model", "experiment")  # groups that `fedbench list` shows
_MOST_LISTED = 30  # choices that a message lists


class Citation(NamedTuple):
    """Licence and reference of a source.

    Attributes:
        licence: The licence as its publisher states it.
        reference: What a paper that uses the data cites.
    """

    licence: str
    reference: str


def config_dir() -> Path:
    """The directory of fedbench's config tree: inside an installed package, next to the package in a checkout."""
    package = Path(__file__).resolve().parent.parent
    return package / "conf" if (package / "conf").is_dir() else package.parent / "conf"


def options(group: str, where: Path | None = None) -> list[str]:
    """The choices of a config group as typed on the command line.

    Args:
        group: The group, such as ``algo`` or ``data/partition``.
        where: A config tree to look in instead of fedbench's own.
    """
    root = (where or config_dir()) / group
    files = root.rglob("*.yaml") if group == "experiment" else root.glob("*.yaml")
    named = (f for f in files if not f.name.startswith("_"))  # files with an underscore are included by others
    return sorted(f.relative_to(root).as_posix().removesuffix(".yaml") for f in named)


def unknown_choice(group: str, name: str, known: Sequence[str]) -> RequestError:
    """The error for a choice that a config group does not have, with what was probably meant."""
    similar = [k for k in known if k.startswith(name)] or [k for k in known if name in k]
    hint = nearest(name, known)
    if len(name) > 2 and similar and (len(similar) > 1 or not hint):
        shown = similar if len(similar) <= 6 else [*similar[:6], "..."]
        one_of = "" if len(similar) == 1 else "one of "
        hint = f"; did you mean {one_of}{', '.join(shown)}?"
    given = f"{group}={name} is unknown" if name else f"{group} needs a choice"
    own = f"; to use {name}.yaml of your own, add --config-dir DIR" if name and group in LISTED else ""
    if group in LISTED and hint:
        return RequestError(f"{given}{hint} Or see `fedbench list {group}`")
    if group in LISTED and len(known) > _MOST_LISTED:
        return RequestError(f"{given}; see `fedbench list {group}`{own}")
    return RequestError(f"{given}{hint}{' It' if hint else f'; {group}'} is one of {', '.join(known)}{own}")


def citation(target: str) -> Citation | None:
    """Licence and reference of the source that a ``_target_`` names; None for one outside of fedbench.

    Args:
        target: Dotted path of a function, such as ``fedbench.data.sources.mnist.load``.
    """
    before, _, name = target.partition("fedbench.data.sources.")
    known = yaml.safe_load((config_dir() / "citations.yaml").read_text(encoding="utf-8"))
    found = None if before else known.get(name) or known.get(name.partition(".")[0])
    return Citation(**found) if found else None

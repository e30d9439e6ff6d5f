"""``fedbench list GROUP NAME``: the card of one algorithm, model, partition or tracker."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

from fedbench.config.comments import ConfigFile, Key, read
from fedbench.config.groups import config_dir, options
from fedbench.config.overrides import unknown_choice
from fedbench.config.targets import function_of
from fedbench.core.errors import RequestError
from fedbench.tuning.space import search_space

_WIDTH = 110
_SECTIONS = re.compile(r"\n\n(?:Args|Returns|Raises|Attributes):\n.*?(?=\n\n(?! )|\Z)", re.S)


def card(group: str, name: str, own: Path | None) -> str:
    """Return what a choice of a group is, with its keys and their defaults.

    Args:
        group: ``algo``, ``model``, ``tracker`` or ``data/partition``.
        name: The choice.
        own: A config tree of the user's own.

    Raises:
        RequestError: If the choice is unknown, or its function cannot be found.
    """
    roots = [config_dir(), *([own] if own else [])]
    paths = {n: root / group / f"{n}.yaml" for root in roots for n in options(group, root)}
    if name not in paths:
        raise unknown_choice(group, name, [*paths])
    file, section = read(paths[name]), group.replace("/", ".")
    keys = _keys(file, paths)
    target = keys.pop("_target_").value
    parts = [f"{name}: {file.about}" if file.about else name, "", _docstring(target, section)]
    searched: dict[str, str] = {}
    if group == "algo":
        from fedbench.runs.build_method import cost_of  # imports torch

        models, probes = cost_of(paths[name])
        parts += ["", f"models down/up, and more: {models}" + (f"; measured first: {probes}" if probes else "")]
        searched = _searched(name, own)
    if keys:
        parts += ["", "keys:", *(line for key in keys.values() for line in _key(section, key, searched))]
    first = f" {section}.{next(iter(keys))}=..." if keys else ""
    return "\n".join([*parts, "", f"use: fedbench {group}={name}{first}"])


def _keys(file: ConfigFile, paths: Mapping[str, Path]) -> dict[str, Key]:
    """Return the keys of a config file, and before them those of the files of its group that it starts from."""
    keys: dict[str, Key] = {}
    for name in file.includes:
        if name in paths:
            keys |= _keys(read(paths[name]), paths)
    keys |= {key.name: key for key in file.keys}
    if "_target_" not in keys:
        raise RequestError("the config file has no _target_")
    return keys


def _docstring(target: str, section: str) -> str:
    """Return what the docstring of a function says besides its arguments: paper, formula, identity, deviations.

    Of one that cannot be imported, as a tracker without its extra, it returns why.
    """
    try:
        text = inspect.cleandoc(function_of(target, section).__doc__ or "")
    except RequestError as error:
        return str(error)
    return _SECTIONS.sub("", text).strip() or f"{target} has no docstring"


def _searched(name: str, own: Path | None) -> dict[str, str]:
    """Return the values by key that ``fedbench tune`` searches; none for a method without a search space."""
    try:
        space = search_space(name, own, ())
    except RequestError:
        return {}
    return {axis.key: axis.text.partition("=")[2] for axis in space}


def _key(section: str, key: Key, searched: Mapping[str, str]) -> list[str]:
    """Return the lines on a key: its default, what is searched, and its comment."""
    name = f"{section}.{key.name}"
    facts = [f"default {key.value or 'a section'}"]
    if name in searched:
        facts.append(f"tune searches {searched[name]}")
    lines = [f"  {name}: {'; '.join(facts)}"]
    if key.comment:
        lines += textwrap.wrap(key.comment, _WIDTH, initial_indent="      ", subsequent_indent="      ")
    return lines

"""``fedbench list``: the choices of the config groups and the tables of the papers, or the card of one choice."""

from __future__ import annotations

import inspect
import re
import textwrap
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import yaml

from fedbench.commands.arguments import LISTED
from fedbench.config.comments import ConfigFile, Key, citation, read
from fedbench.config.compose import Composer
from fedbench.config.overrides import CONFIG_DIR, options, unknown_choice
from fedbench.config.targets import function_of
from fedbench.core.errors import RequestError
from fedbench.reproduce.plan import table_names
from fedbench.tuning.space import search_space

_WIDTH = 110
_SECTIONS = re.compile(r"\n\n(?:Args|Returns|Raises|Attributes):\n.*?(?=\n\n(?! )|\Z)", re.S)


def carry_out(asked: Namespace) -> int:
    """Print the choices of a group, or the card of one.

    Raises:
        RequestError: If the choice is unknown, or has no card.
    """
    group = "data/partition" if asked.group == "partition" else asked.group
    if asked.name is None:
        for word in LISTED if group is None else (asked.group,):
            print(_choices(word, asked.config_dir, titled=group is None))
        return 0
    if group in ("experiment", "table"):
        raise RequestError(f"unexpected argument {asked.name}; experiments and tables have no card")
    files = _files(group, asked.config_dir)
    if asked.name not in files:
        raise unknown_choice(group, asked.name, [*files])
    print(_data_card(asked.name, asked.config_dir) if group == "data" else card(group, asked.name, asked.config_dir))
    return 0


def _files(group: str, own: Path | None) -> dict[str, Path]:
    """Return the config files of a group, by the name of the choice."""
    roots = [CONFIG_DIR, *([own] if own else [])]
    return {name: root / group / f"{name}.yaml" for root in roots for name in options(group, root)}


def _choices(word: str, own: Path | None, titled: bool) -> str:
    """Return a line per choice with its description."""
    if word == "table":
        rows = table_names()
    else:
        files = _files("data/partition" if word == "partition" else word, own)
        rows = [(name, _about(path)) for name, path in files.items()]
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {about}".rstrip() for name, about in rows]
    return "\n".join([f"{word}:", *lines] if titled else lines)


def _about(path: Path) -> str:
    """Return the first comment of a config file, or what is wrong with the file."""
    try:
        return read(path).about.partition("\n")[0]
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        return f"cannot be read: {path}: {' '.join(str(error).split())[:300]}"


def _data_card(name: str, own: Path | None) -> str:
    """Return a line per fact about a data set: its defaults, licence and citation."""
    tree, choices = Composer(own).composed([f"data={name}"])
    target = str(tree["data"]["source"]["_target_"])
    source = citation(target)
    facts = {
        "data": f"{name}: {_about(_files('data', own)[name])}",
        "partition": choices.get("data/partition") or "natural: as the source records it",
        "model": choices.get("model"),
        "source": target,
        "licence": source.licence if source else "not recorded: the source is not one of fedbench's",
        "cite": source.reference if source else "not recorded",
    }
    return "\n".join(f"{k:<9}  {v}" for k, v in facts.items() if v)


def card(group: str, name: str, own: Path | None) -> str:
    """Return a choice of a group as text: its docstring, and its keys with defaults, searched values and comments.

    Args:
        group: ``algo``, ``model``, ``tracker`` or ``data/partition``.
        name: The choice.
        own: A config tree of the user's own.

    Raises:
        RequestError: If its config file has no function.
    """
    files, section = _files(group, own), group.replace("/", ".")
    file = read(files[name])
    keys = _keys(file, files)
    target = keys.pop("_target_").value
    searched = _searched(name, own) if group == "algo" else {}
    parts = [f"{name}: {file.about}" if file.about else name, "", _docstring(target, section)]
    if keys:
        parts += ["", "keys:", *(line for key in keys.values() for line in _key(section, key, searched))]
    first = f" {section}.{next(iter(keys))}=..." if keys else ""
    return "\n".join([*parts, "", f"use: fedbench {group}={name}{first}"])


def _keys(file: ConfigFile, files: Mapping[str, Path]) -> dict[str, Key]:
    """Return the keys of a config file, and before them those of the files of its group that it starts from."""
    keys: dict[str, Key] = {}
    for name in file.includes:
        if name in files:
            keys |= _keys(read(files[name]), files)
    keys |= {key.name: key for key in file.keys}
    if "_target_" not in keys:
        raise RequestError("the config file has no _target_")
    return keys


def _docstring(target: str, section: str) -> str:
    """Return the docstring of a function without its arguments: paper, formula, identity, deviations.

    Of one that cannot be imported, such as a tracker without its extra, it is the reason.
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
    """Return the lines on a key: its default, the values that are searched, and its comment."""
    name = f"{section}.{key.name}"
    tuned = f"; tune searches {searched[name]}" if name in searched else ""
    lines = [f"  {name}: default {key.value or 'a section'}{tuned}"]
    if key.comment:
        lines += textwrap.wrap(key.comment, _WIDTH, initial_indent="      ", subsequent_indent="      ")
    return lines

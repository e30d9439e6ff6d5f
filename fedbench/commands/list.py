"""``fedbench list``: the choices of the config groups and the tables of the papers, or the card of one choice."""

from __future__ import annotations

import inspect
import re
import textwrap
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from fedbench.commands.arguments import LISTED
from fedbench.config.comments import Key, citation, read
from fedbench.config.compose import Composer
from fedbench.config.overrides import CONFIG_DIR, options, unknown_choice
from fedbench.config.targets import function_of
from fedbench.core.errors import RequestError
from fedbench.core.metrics import CATALOGUE
from fedbench.reproduce.plan import table_names
from fedbench.tuning.space import search_space

_WIDTH = 110
_SECTIONS = re.compile(r"\n\n(?:Args|Returns|Raises|Attributes):\n.*?(?=\n\n(?! )|\Z)", re.S)


def execute(args: Namespace) -> int:
    """Print the choices of a group, or the card of one.

    Raises:
        RequestError: If the choice is unknown, or has no card.
    """
    if args.name is None:
        for word in (args.group,) if args.group else LISTED:
            if args.group is None:
                print(f"{word}:")
            _print_choices(word, args.config_dir)
        return 0
    if args.group in ("experiment", "table", "metric"):
        raise RequestError(f"unexpected argument {args.name}; experiments, tables and metrics have no card")
    group = "data/partition" if args.group == "partition" else args.group
    files = _files(group, args.config_dir)
    if args.name not in files:
        raise unknown_choice(group, args.name, [*files])
    print((_data_card if group == "data" else card)(group, args.name, args.config_dir))
    return 0


def _print_choices(word: str, config_dir: Path | None) -> None:
    """Print a line per choice with its description."""
    rows = _metrics() if word == "metric" else table_names() if word == "table" else []
    if not rows:
        files = _files("data/partition" if word == "partition" else word, config_dir)
        rows = [(name, read(path).about) for name, path in files.items()]
    width = max(len(name) for name, _ in rows)
    for name, about in rows:
        print(f"  {name:<{width}}  {about}".rstrip())


def _metrics() -> list[tuple[str, str]]:
    """The names that --metric, --y and objective take, with meaning, unit and better direction."""
    rows = [(m.name, f"{m.axis}{f'; {m.direction} is better' if m.direction else ''}") for m in CATALOGUE.values()]
    return [*rows, ("client:K", "accuracy of client K (%)"), ("val_NAME", "NAME on validation examples, for objective")]


def _files(group: str, config_dir: Path | None) -> dict[str, Path]:
    """The config files of a group, by the name of the choice."""
    roots = [CONFIG_DIR, *([config_dir] if config_dir else [])]
    return {name: root / group / f"{name}.yaml" for root in roots for name in options(group, root)}


def _data_card(group: str, name: str, config_dir: Path | None) -> str:
    """A line per fact about a data set: its defaults, licence and citation."""
    tree, choices = Composer(config_dir).composed([f"data={name}"])
    target = str(tree["data"]["source"]["_target_"])
    source = citation(target)
    facts = {
        "data": f"{name}: {read(_files(group, config_dir)[name]).about}",
        "partition": choices.get("data/partition") or "natural: as the source records it",
        "model": choices.get("model"),
        "source": target,
        "licence": source.licence if source else "not recorded: the source is not one of fedbench's",
        "cite": source.reference if source else "not recorded",
    }
    return "\n".join(f"{k:<9}  {v}" for k, v in facts.items() if v)


def card(group: str, name: str, config_dir: Path | None) -> str:
    """A choice of a group as text: its docstring, and its keys with defaults, searched values and comments.

    Args:
        group: The config group, such as ``algo`` or ``data/partition``.
        name: The choice.
        config_dir: A directory of the user with config files and modules.
    """
    files, section = _files(group, config_dir), group.replace("/", ".")
    about, keys = read(files[name]).about, _keys(name, files)
    target = keys.pop("_target_", Key("_target_", "", "")).value
    text = ""
    try:
        if target not in ("", "null"):
            text = _SECTIONS.sub("", inspect.cleandoc(function_of(target, section).__doc__ or "")).strip()
            text = text or f"{target} has no docstring"
    except RequestError as error:  # such as a tracker without its package
        text = str(error)
    try:
        space = {axis.key: axis.text.partition("=")[2] for axis in search_space(name, config_dir, ())}
    except RequestError:  # no method, or one without a search space
        space = {}
    lines = [f"{name}: {about}" if about else name, *(["", text] if text else [])]
    lines += ["", "keys:"] if keys else []
    for key in keys.values():
        tuned = f"; tune searches {space[f'{section}.{key.name}']}" if f"{section}.{key.name}" in space else ""
        lines.append(f"  {section}.{key.name}: default {key.value or 'a section'}{tuned}")
        lines += textwrap.wrap(key.comment, _WIDTH, initial_indent="      ", subsequent_indent="      ")
    first = f" {section}.{next(iter(keys))}=..." if keys else ""
    where = f"--config-dir {config_dir} " if config_dir is not None and files[name].is_relative_to(config_dir) else ""
    return "\n".join([*lines, "", f"use: fedbench {where}{group}={name}{first}"])


def _keys(name: str, files: Mapping[str, Path]) -> dict[str, Key]:
    """The keys of a config file by their names, after those of the files of its group that it starts from."""
    file = read(files[name])
    keys: dict[str, Key] = {}
    for other in file.includes:
        keys |= _keys(other, files) if other in files else {}
    return keys | {key.name: key for key in file.keys}

"""The comments of the config tree, which document every key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TypeAlias

import yaml

Node: TypeAlias = tuple[str, yaml.Node, yaml.Node]  # dotted name, key and value


@dataclass(frozen=True)
class Key:
    """One key of a config file.

    Attributes:
        name: Dotted path of the key inside its file.
        value: The value as the file writes it, or an empty string for a section.
        comment: The comment at the end of the key's line, its continuation, and the comment lines
            above the key.
    """

    name: str
    value: str
    comment: str


@dataclass(frozen=True)
class ConfigFile:
    """The comments of a config file.

    Attributes:
        about: The comment at the head of the file.
        is_global: Whether the keys belong to the top level (``# @package _global_``) and not to the
            file's group.
        keys: Every key in the order of the file, without the defaults list.
    """

    about: str
    is_global: bool
    keys: tuple[Key, ...]


def read(path: Path) -> ConfigFile:
    """Return the keys of a config file with their comments."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    head = list(takewhile(lambda line: line.startswith("#"), lines))
    about = [_plain(line) for line in head if "@package" not in line]

    tree = yaml.compose(text, Loader=yaml.SafeLoader)
    nodes = [node for node in _keys(tree) if node[0] != "defaults"]
    comments = _comments(lines, nodes, first_row=len(head))
    keys = []
    for name, _, value in nodes:
        written = ""
        if not _is_block(value):
            start = value.start_mark.index
            end = value.end_mark.index
            written = text[start:end]
        comment = " ".join(comments[name])
        keys.append(Key(name, written, comment))

    return ConfigFile(
        about=" ".join(about),
        is_global=any("@package _global_" in line for line in head),
        keys=tuple(keys),
    )


def _keys(
    tree: yaml.Node | None,
    prefix: str = "",
) -> Iterator[Node]:
    """Yield the dotted name, key node and value node of every key in block style, in order."""
    if not isinstance(tree, yaml.MappingNode) or tree.flow_style:
        return
    for key, value in tree.value:
        name = prefix + key.value
        yield name, key, value
        yield from _keys(value, f"{name}.")


def _is_block(value: yaml.Node) -> bool:
    return isinstance(value, yaml.CollectionNode) and not value.flow_style


def _comments(
    lines: Sequence[str],
    nodes: Sequence[Node],
    first_row: int,
) -> dict[str, list[str]]:
    """Return the comment lines of each key: above it, at its end, and continued below."""
    starts = {}
    ends = {}
    for name, key, value in nodes:
        starts[key.start_mark.line] = name
        end = value.end_mark
        if _is_block(value):
            end = key.end_mark
        ends[end.line] = (name, end.column)

    comments: dict[str, list[str]] = defaultdict(list)
    lines_above: list[str] = []
    continued = lines_above
    for row, line in enumerate(lines[first_row:], first_row):
        if line.lstrip().startswith("#"):
            continued.append(_plain(line))
            continue
        if row in starts:
            comments[starts[row]] += lines_above
        continued = lines_above = []
        name, column = ends.get(row, ("", len(line)))
        tail = line[column:].lstrip(" :")
        if tail.startswith("#"):
            continued = comments[name]
            continued.append(_plain(tail))
    return comments


def _plain(comment: str) -> str:
    return comment.lstrip("# ").rstrip()

"""The comments of the config tree: read per key, and written into the YAML text that ``--cfg job`` prints."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedbench.config.groups import config_dir
from fedbench.core.errors import RequestError
from fedbench.core.trees import Tree, leaves

_UNKNOWN = object()  # the value of a key that the configuration does not have
_WIDTH = 120  # columns of an annotated line
_FIRST = ("data", "data/partition", "model", "algo", "tracker")  # in this order; experiments and debug come last


@dataclass(frozen=True)
class Key:
    """One key of a config file.

    Attributes:
        name: Dotted path of the key inside its file.
        value: The value as the file writes it, or an empty string for a section.
        comment: The comment at the end of the key's line, its continuation, and the comment lines above the key.
    """

    name: str
    value: str
    comment: str


@dataclass(frozen=True)
class ConfigFile:
    """What a config file says in its comments.

    Attributes:
        about: The comment at the head of the file.
        is_global: Whether the keys belong to the top level (``# @package _global_``) and not to the file's group.
        includes: Files of the defaults list whose keys this file takes over, as ``group/name`` or a sibling's name.
        keys: Every key in the order of the file, without the defaults list.
    """

    about: str
    is_global: bool
    includes: tuple[str, ...]
    keys: tuple[Key, ...]


def read(path: Path) -> ConfigFile:
    """Read the keys of a config file with their comments."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    head = next((n for n, line in enumerate(lines) if not line.startswith("#")), len(lines))
    about = [line.lstrip("# ") for line in lines[:head] if "@package" not in line]
    taken = set(range(head))  # lines whose comment belongs to something above them
    keys = []
    for name, key, value in _keys(text):
        comment = _comment(lines, taken, key, value)
        written = "" if _is_block(value) else text[value.start_mark.index : value.end_mark.index]
        keys.append(Key(name, written, comment))
    return ConfigFile(
        " ".join(about),
        any("@package _global_" in line for line in lines[:head]),
        tuple(_includes(yaml.safe_load(text))),
        tuple(k for k in keys if k.name != "defaults"),
    )


def comments(
    choices: Mapping[str, str | None], roots: Sequence[Path] | None = None, config: Tree | None = None
) -> dict[str, str]:
    """Return the comments that explain a composed configuration.

    A key that several files set has the comments of all of them, the general one first. A comment often explains
    where a default comes from, so that the default is added where the configuration has another value.

    Args:
        choices: Chosen file per config group, as Hydra reports them (``{"data": "npz", "data/partition": "iid"}``);
            groups without a choice, and Hydra's own, are left out.
        roots: Config directories, searched in this order; fedbench's own by default.
        config: The composed configuration, unresolved or resolved; without it no defaults are added.

    Returns:
        Comment per dotted key. A section that a group fills has the comment at the head of the chosen file.

    Raises:
        RequestError: If a chosen file does not exist.
    """
    where = list(roots) if roots is not None else [config_dir()]
    found, values = {}, leaves(config or {})
    files = [(read(_file(where, "config")), "")]
    groups = [g for g in (*_FIRST, *(c for c in choices if c not in _FIRST)) if not g.startswith("hydra/")]
    for group in groups:
        if name := choices.get(group):
            files += _files(where, group, name, group.replace("/", "."))
    for file, package in files:
        if package and file.about:
            found[package] = file.about
        for key in file.keys:
            name = f"{package}.{key.name}" if package else key.name
            _append(found, name, key.comment + _default(key, values.get(name, _UNKNOWN)))
    if preset := found.get(f"presets.{choices.get('algo')}"):
        _append(found, "algo", preset)
    return {k: v for k, v in found.items() if k.split(".")[0] not in ("presets", "hydra")}


def annotate(yaml_text: str, comments: Mapping[str, str], package: str = "") -> str:
    """Return YAML text with comments: at the end of a key's line where they fit, otherwise on lines above the key.

    Args:
        yaml_text: A mapping in block style; it parses to the same value afterwards.
        comments: Comment per dotted key; keys that the text does not have are ignored.
        package: Dotted key of the section that the text shows; the whole configuration by default.
    """
    lines = yaml_text.splitlines(keepends=True)
    prefix = f"{package}." if package else ""
    for name, key, value in reversed(list(_keys(yaml_text))):
        comment = " ".join(comments.get(prefix + name, "").split())
        if not comment:
            continue
        row, indent = key.start_mark.line, " " * key.start_mark.column
        one_line = _is_block(value) or value.end_mark.line == row
        commented = f"{lines[row].rstrip()}  # {comment}"
        if one_line and len(commented) <= _WIDTH:
            lines[row] = f"{commented}\n"
        else:
            width = _WIDTH - len(indent) - 2
            wrapped = textwrap.wrap(comment, width, break_long_words=False, break_on_hyphens=False)
            lines[row:row] = [f"{indent}# {line}\n" for line in wrapped]
    return "".join(lines)


def _keys(text: str) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Yield the dotted name, the key and the value of every key in block style, in the order of the text."""

    def walk(node: yaml.Node | None, prefix: str) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        if isinstance(node, yaml.MappingNode) and not node.flow_style:
            for key, value in node.value:
                yield prefix + key.value, key, value
                yield from walk(value, f"{prefix}{key.value}.")

    return walk(yaml.compose(text, Loader=yaml.SafeLoader), "")


def _is_block(value: yaml.Node) -> bool:
    return isinstance(value, yaml.CollectionNode) and not value.flow_style


def _comment(lines: Sequence[str], taken: set[int], key: yaml.Node, value: yaml.Node) -> str:
    """Return the comment of a key and add the lines that it takes to ``taken``."""

    def is_free(row: int) -> bool:
        return 0 <= row < len(lines) and row not in taken and lines[row].lstrip().startswith("#")

    above, end = key.start_mark.line, key.end_mark if _is_block(value) else value.end_mark
    while is_free(above - 1):
        above -= 1
    parts = lines[above : key.start_mark.line]
    tail = lines[end.line][end.column :].lstrip(" :")
    if tail.startswith("#"):
        below = end.line + 1
        while is_free(below):
            below += 1
        taken |= set(range(end.line, below))
        parts = [*parts, tail, *lines[end.line + 1 : below]]
    return " ".join(part.lstrip("# ").rstrip() for part in parts)


def _includes(tree: Any) -> Iterator[str]:
    """Yield the files that a defaults list takes over into the file's own package; groups have choices instead."""
    for entry in (tree or {}).get("defaults", []):
        name = entry.removesuffix("@_here_") if isinstance(entry, str) else "_self_"
        if name != "_self_":
            yield name


def _files(roots: Sequence[Path], group: str, name: str, package: str) -> list[tuple[ConfigFile, str]]:
    """Return a file and, before it, those that it includes, with the section that their keys belong to."""
    file = read(_file(roots, f"{group}/{name}"))
    files = []
    for other in file.includes:
        at, _, sibling = other.removeprefix("/").rpartition("/")
        files += _files(roots, at or group, sibling, package)
    return [*files, (file, "" if file.is_global else package)]


def _default(key: Key, value: object) -> str:
    """Return a remark with the value that the file has, if it is another one than the configuration's."""
    if not key.comment or not key.value or "${" in key.value or value is _UNKNOWN:
        return ""
    return "" if yaml.safe_load(key.value) == value else f" (default {key.value})"


def _append(found: dict[str, str], name: str, comment: str) -> None:
    if comment and comment != found.get(name):
        found[name] = f"{found[name]}; here: {comment}" if name in found else comment


def _file(roots: Sequence[Path], name: str) -> Path:
    for root in roots:
        if (path := root / f"{name}.yaml").is_file():
            return path
    raise RequestError(f"{name}.yaml is not in {', '.join(map(str, roots))}")

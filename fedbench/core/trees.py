"""Nested dictionaries, as configurations are, and the YAML that they are written in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import yaml

Tree: TypeAlias = dict[str, Any]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where libyaml is there
_DEEPEST = 500  # levels of nesting


def from_yaml(text: str) -> Any:
    """Return the content of a YAML document.

    Raises:
        yaml.YAMLError: If the text is not YAML, or nested more than 500 levels deep.
    """
    if sum(map(text.count, "[{-?:")) > _DEEPEST:  # each level takes one of these
        _check_depth(text)
    try:
        return yaml.load(text, _LOADER)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise yaml.YAMLError(f"a value cannot be read: {error}") from error  # such as `!!int ""`


def _check_depth(text: str) -> None:
    """Refuse a document that is nested deeply: the C parser recurses into it until the stack overflows."""
    depth = 0
    for event in yaml.parse(text, _LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise yaml.YAMLError(f"it is nested more than {_DEEPEST} levels deep")


def from_json(text: str | bytes) -> Any:
    """Return the content of a JSON document.

    Raises:
        ValueError: If the text is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def yaml_events(text: str) -> Iterator[yaml.Event]:
    """Yield the events of a YAML document: its values as text, in their order, without any object made of them.

    Raises:
        yaml.YAMLError: If the text is not YAML.
    """
    events: Iterator[yaml.Event] = yaml.parse(text, _LOADER)
    return events


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Tree:
    """Return the values of nested mappings under dotted keys."""
    flat: Tree = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(leaves(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def config_value(value: Any) -> str:
    """Return a value as it is typed in an override; equal numbers have the same text, and no digit is lost."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ",".join(config_value(v) for v in value) + "]"
    if isinstance(value, float):
        short = f"{value:g}"
        if value.is_integer():
            return str(int(value))
        return short if float(short) == value else repr(value)
    return str(value)


def listed(value: Any) -> list[Any]:
    """Return a value as a list."""
    return list(value) if isinstance(value, list | tuple) else [value]

"""Nested dictionaries, as configurations are, and the YAML that they are written in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

import yaml

Tree: TypeAlias = dict[str, Any]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where libyaml is there


def from_yaml(text: str) -> Any:
    """The content of a YAML document.

    Raises:
        yaml.YAMLError: If the text is not YAML.
    """
    try:
        return yaml.load(text, _LOADER)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise yaml.YAMLError(f"a value cannot be read: {error}") from error  # such as `!!int ""`


def from_json(text: str | bytes) -> Any:
    """The content of a JSON document.

    Raises:
        ValueError: If the text is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Tree:
    """The values of nested mappings under dotted keys."""
    flat: Tree = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(leaves(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def config_value(value: Any) -> str:
    """A value as it is typed in an override; equal numbers have the same text, and no digit is lost."""
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

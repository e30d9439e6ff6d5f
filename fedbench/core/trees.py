"""Nested dictionaries, as configurations are."""

from __future__ import annotations

from typing import Any, TypeAlias

Tree: TypeAlias = dict[str, Any]


def leaves(tree: Tree, prefix: str = "") -> Tree:
    """Return the values of nested dictionaries under dotted keys."""
    flat: Tree = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat.update(leaves(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def config_value(value: Any) -> str:
    """Return a value in the form in which it is typed in an override."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(config_value(v) for v in value) + "]"
    return str(value)


def listed(value: Any) -> list[Any]:
    """Return a value as a list."""
    return list(value) if isinstance(value, list | tuple) else [value]

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

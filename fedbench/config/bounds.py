"""Limits on what a configuration may contain, so that any file or override is answered within a second.

Config files are looked at before Hydra reads them: OmegaConf copies what a YAML alias names, and a few aliases of
aliases ("billion laughs") are more than any memory holds. Interpolations can do the same, and are followed before they
are resolved.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from fedbench.core.errors import RequestError, shown
from fedbench.core.trees import Tree, yaml_events

MOST_BYTES = 2**20  # of a config file
_MOST_NODES = 20_000  # values of a config file, where an alias counts as what it names
_MOST_DEPTH = 40  # of sections in each other, and of interpolations that lead to each other
_MOST_SCALAR = 2**16  # characters of a value
_MOST_EXPANDED = 2**20  # characters of a configuration once interpolations are resolved
_MOST_OVERRIDE = 2**16  # characters of an override
_MOST_KEY = 300  # characters of a key
_MOST_ITEMS = 2000  # values in an override; Hydra's parser takes about a millisecond for each
_NUMBER = re.compile(r"[-+\d_.:xobeE]{1000,}")
_INSIDE = re.compile(r"\$\{([^{}]*)\}")
_REFERENCE = re.compile(r"\.*[A-Za-z_][\w.-]*")
_COMPUTED = re.compile(r"\$\{[^:{}]*\$\{|\$\{\s*oc\.(select|dict\.\w+)\s*:[^}]*\$\{")


def refuse_long_override(text: str) -> None:
    """Refuse an override that is longer than any sensible one.

    Raises:
        RequestError: With its length and what is allowed.
    """
    key = shown(text.partition("=")[0])
    if len(text.partition("=")[0]) > _MOST_KEY:
        raise RequestError(f"{key} is not a key: keys have at most {_MOST_KEY} characters")
    if len(text) > _MOST_OVERRIDE:
        raise RequestError(f"the override of {key} has {len(text)} characters; at most {_MOST_OVERRIDE} are read")
    items = sum(text.count(sign) for sign in ",[{(:")
    if items > _MOST_ITEMS:
        raise RequestError(
            f"the override of {key} has about {items} items; at most {_MOST_ITEMS} are read; for many seeds use a "
            "range, such as seed=range(0,5000)"
        )


def fault_of(file: Path) -> str | None:
    """Return why a config file is too large to be read; None if it is not. Whether it is valid YAML is Hydra's part."""
    try:
        facts = file.stat()
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return _fault(file, facts.st_size, facts.st_mtime_ns)


@lru_cache(maxsize=4096)
def _fault(file: Path, size: int, changed: int) -> str | None:
    if size > MOST_BYTES:
        return f"has {size} bytes; a config file has at most {MOST_BYTES}"
    try:
        return _fault_in(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None


def _fault_in(text: str) -> str | None:
    """Return what is too large in a YAML document, from its events, of which no value is made."""
    sizes: dict[str, int] = {}  # anchor -> values below it, once aliases are replaced
    open_ones: list[tuple[str | None, int]] = []  # the sections around the present one: anchor, values before it
    total = 0
    for event in yaml_events(text):
        if isinstance(event, yaml.AliasEvent):
            name = str(event.anchor)
            if any(anchor == name for anchor, _ in open_ones):
                return f"has the alias *{name} inside of what it names"
            total += sizes.get(name, 1)
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
            if len(event.value) > _MOST_SCALAR:
                return f"has a value of {len(event.value)} characters; a value has at most {_MOST_SCALAR}"
            if not event.style and _NUMBER.fullmatch(event.value):
                return f"has a number of {len(event.value)} digits"
        elif isinstance(event, yaml.CollectionStartEvent):
            open_ones.append((event.anchor, total))
            total += 1
            if len(open_ones) > _MOST_DEPTH:
                return f"has more than {_MOST_DEPTH} sections or lists in each other"
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_ones.pop()
            if anchor:
                sizes[anchor] = total - before
        if total > _MOST_NODES:
            return f"has more than {_MOST_NODES} values; an alias counts as what it names"
    return None


def refuse_expansion(tree: Tree) -> None:
    """Refuse a configuration whose interpolations would make more text than any configuration has.

    Every word inside an interpolation counts as a reference if a key has that name.

    Args:
        tree: The configuration with interpolations as they are written.

    Raises:
        RequestError: Naming the key.
    """
    known: dict[tuple[str, ...], tuple[int, int]] = {}
    for key, value in tree.items():
        try:
            size, depth = _expanded(tree, value, (key,), known)
        except RecursionError:
            size, depth = _MOST_EXPANDED + 1, len(known)
        if size > _MOST_EXPANDED or depth > _MOST_DEPTH:
            raise RequestError(
                f"{key} has interpolations of {depth} steps that expand to {size:.1e} characters, or go in a circle; "
                f"at most {_MOST_DEPTH} steps and {_MOST_EXPANDED} characters are read"
            )


def _expanded(
    tree: Tree, value: Any, path: tuple[str, ...], known: dict[tuple[str, ...], tuple[int, int]]
) -> tuple[int, int]:
    """Return the characters of a value once its interpolations are resolved, or more, and how many lead to it.

    Args:
        tree: The whole configuration.
        value: The value.
        path: Its place.
        known: The results for places that have been visited; a place that is being visited counts as too large.
    """
    if path in known:
        return known[path]
    known[path] = (_MOST_EXPANDED + 1, 0)  # a circle, which OmegaConf refuses too
    size, parts, step = 1, [], 0
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        parts = [_expanded(tree, v, (*path, str(k)), known) for k, v in items]
    elif isinstance(value, str):
        size = len(value)
        if _COMPUTED.search(value):
            place = f"{'.'.join(path)}={shown(value)}"
            raise RequestError(f"{place}: the key in an interpolation cannot be computed by another")
        words = _REFERENCE.findall(" ".join(_INSIDE.findall(value)))
        found = [_named(tree, word, path) for word in words]
        step = int(bool(words))
        parts = [_expanded(tree, v, place, known) for v, place in found if v is not None]
    known[path] = (size + sum(n for n, _ in parts), step + max((depth for _, depth in parts), default=0))
    return known[path]


def _named(tree: Tree, word: str, path: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """Return the value that a word of an interpolation refers to, and its place; None if there is none."""
    name = word.lstrip(".")
    up = len(word) - len(name)
    place = (*(path[:-up] if up else ()), *name.split("."))
    found: Any = tree
    for part in place:
        found = found.get(part) if isinstance(found, dict) else None
    return found, place

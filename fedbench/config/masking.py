"""Values that come from environment variables, such as tokens, are not written to the files of a run.

The run itself, and its identity, have the true values: masking changes no number and no directory, and a run resumes
under the same ones. What is stored has a mask, the same for every value, so a file says that there was one and no more;
two settings that differ in such a value differ in their ``hash``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedbench.config.keys import USER_FILES
from fedbench.core.trees import Tree, leaves

MASK = "*** (from the environment)"
_ENVIRONMENT = re.compile(r"\$\{\s*oc\.env\b|\boc\.env\s*:")
_VARIABLE = re.compile(r"\boc\.env\s*:\s*['\"]?([A-Za-z_]\w*)")
_SHORT = 4  # characters
_REFERENCE = re.compile(r"\.*[A-Za-z_][\w.-]*")
# paths, and what the schema allows a few words for; further keys of a data source are harmless if a key of ``data`` is
_HARMLESS = {"data_dir", "results_dir", "device", "seed", "sampling", "keep_clients", "participation", *USER_FILES}
_HARMLESS |= {"data.local_test", "data.noise", "local", "engine", "tracker.project", "tracker.entity"}
_HARMLESS |= {f"data.source.{key.removeprefix('data.')}" for key in USER_FILES}


def from_environment(written: Tree) -> frozenset[str]:
    """Return the dotted keys whose value comes from an environment variable and may be a secret.

    A value comes from there if it, or a value that it refers to, has ``${oc.env:...}``.

    Args:
        written: The configuration with interpolations as they are written.
    """
    flat = {key: str(v) for key, v in leaves(written).items() if isinstance(v, str | list)}
    found = {key for key, value in flat.items() if _ENVIRONMENT.search(value)}
    if not found:
        return frozenset()
    refers = {key: _named(key, value) for key, value in flat.items() if "${" in value}
    while more := {k for k, names in refers.items() if k not in found and _meets(names, found)}:
        found |= more
    return frozenset(key for key in found if not harmless(key))


def secrets(written: Tree, tree: Tree, keys: frozenset[str]) -> tuple[str, ...]:
    """Return the texts that no message in a file may contain: the values of keys, and of the variables they name.

    Args:
        written: The configuration with interpolations as they are written.
        tree: The same one, resolved.
        keys: Dotted keys (``from_environment``).
    """
    values, texts = leaves(tree), leaves(written)
    found = {v for key in keys for v in _texts(values.get(key))}
    found |= {os.environ.get(name, "") for key in keys for name in _VARIABLE.findall(str(texts.get(key, "")))}
    return tuple(sorted(found - {""}))


def without(text: str, secrets: Sequence[str]) -> str:
    """Return a message with a mask in place of secrets, as they are, quoted by Python, or with other white space.

    A secret of a few letters counts as a word of its own only: the message would be unreadable otherwise.
    """
    forms = {form for s in secrets for form in (s, repr(s)[1:-1], json.dumps(s)[1:-1], " ".join(s.split())) if form}
    for form in sorted(forms, key=len, reverse=True):  # one may contain another
        pattern = re.escape(form) if len(form) >= _SHORT else rf"(?<!\w){re.escape(form)}(?!\w)"
        text = re.sub(pattern, MASK, text)
    return text


def _texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for v in value for text in _texts(v)]
    return [value] if isinstance(value, str) else []


def harmless(key: str) -> bool:
    """Return whether the value of a key may be stored wherever it comes from."""
    return key.endswith("_target_") or any(key == h or key.startswith(f"{h}.") for h in _HARMLESS)


def masked(tree: Tree, keys: frozenset[str], prefix: str = "") -> Tree:
    """Return a configuration with a mask in place of the text of some keys; numbers stay, since results depend on them.

    Args:
        tree: The resolved configuration, or a section of it.
        keys: Dotted keys.
        prefix: Dotted key of the section, with a dot at its end.
    """
    return {
        k: masked(v, keys, f"{prefix}{k}.") if isinstance(v, dict) else _hidden(v) if f"{prefix}{k}" in keys else v
        for k, v in tree.items()
    }


def masked_changes(changes: Mapping[str, list[Any]], keys: frozenset[str]) -> dict[str, list[Any]]:
    """Return departures, key -> [value there, value here], with a mask in place of the text of some keys."""
    return {key: [_hidden(v) for v in change] if key in keys else change for key, change in changes.items()}


def _hidden(value: Any) -> Any:
    if isinstance(value, list):
        return [_hidden(v) for v in value]
    return MASK if isinstance(value, str) else value


def _named(key: str, value: str) -> set[str]:
    """Return the keys that the words of a value may refer to."""
    section = key.split(".")[:-1]
    names = set()
    for word in _REFERENCE.findall(value):
        name = word.lstrip(".")
        up = len(word) - len(name)
        names.add(".".join([*(section[: len(section) + 1 - up] if up else ()), name]))
    return names


def _meets(names: set[str], found: set[str]) -> bool:
    """Return whether one of the names is one of the found keys, or a section around one."""
    return any(f == n or f.startswith(f"{n}.") for n in names for f in found)

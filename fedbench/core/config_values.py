"""Values of a configuration: nested mappings, YAML, and values as typed in overrides."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Tree = dict[str, Any]
WEIGHTS = ("algo.weights", "algo.prior")  # keys that choose the weights of clients
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast if libyaml is available
_FUNCTION = re.compile(  # a choice in a config group: one of fedbench's functions, or none
    r"""
    ([\w.]+)\._target_=  # section
    (?:fedbench\.(?:\w+\.)*?)?
    (\w+?)(?:\.load)?(?![\w.])  # name
    """,
    re.X,
)


def from_yaml(text: str) -> Any:
    """Return the content of a YAML document.

    Raises:
        yaml.YAMLError: If the text is not YAML.
    """
    return yaml.load(text, _LOADER)


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file.

    Raises:
        OSError: If the file cannot be read.
        yaml.YAMLError: If the file is not YAML.
    """
    return from_yaml(path.read_text(encoding="utf-8"))


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Tree:
    """Return the values of nested mappings under dotted keys."""
    flat: Tree = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(leaves(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def weights_of(values: Mapping[str, Any]) -> str | None:
    """Return the weights of a method's clients, ``size`` or ``uniform``; None without a choice.

    Args:
        values: The method's values by dotted key.
    """
    for key in WEIGHTS:
        if values.get(key) in ("size", "uniform"):
            return str(values[key])
    return None


def config_value(value: Any) -> str:
    """Return a value as typed in an override.

    Equal numbers have the same text, and all digits are kept.
    """
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


def keys_text(keys: Mapping[str, Any]) -> str:
    """Return keys and values as typed, with fedbench's functions as choices in config groups."""
    text = " ".join(f"{k}={config_value(v)}" for k, v in keys.items())
    return _FUNCTION.sub(lambda match: f"{match[1].replace('.', '/')}={match[2]}", text)

"""The source of an experiment's data, looked up in its config files without composing a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from fedbench.config.places import config_dir
from fedbench.core.trees import from_yaml

_HERE = "@_here_"


@cache
def source_of(experiment: str) -> str | None:
    """Return the function that reads the data of one of fedbench's experiments, as ``module.function``.

    None if the experiment's files do not name one, as where it is chosen elsewhere.
    """
    for defaults in _chain("experiment", experiment):
        if (name := defaults.get("override /data")) is not None:
            return next((t for d in _chain("data", name) if (t := (d.get("source") or {}).get("_target_"))), None)
    return None


def _chain(group: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield the content of a config file and of the files of its group that it includes, those that count first.

    A choice in its defaults list is a key of the content.
    """
    content = from_yaml((config_dir() / group / f"{name}.yaml").read_text(encoding="utf-8"))
    listed = content.pop("defaults", [])
    yield content | {key: value for entry in listed if isinstance(entry, dict) for key, value in entry.items()}
    for entry in reversed(listed):
        included = entry.removesuffix(_HERE) if isinstance(entry, str) else "_self_"
        if included != "_self_" and Path(included).name != "_self_":
            yield from _chain(group, included.removeprefix(f"/{group}/"))

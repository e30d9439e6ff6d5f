"""Requests for many settings of few experiments: Hydra composes an experiment once, its rows are set on the result."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf, open_dict

from fedbench.config.compose import _GROUPS, _compose, _plain, compose_request, explain
from fedbench.config.schema import Request, make_request, options
from fedbench.core.trees import Tree, config_value

_SWAPPED = ("algo", "model")  # groups whose choices are sections without references to other keys


@dataclass(frozen=True)
class _Base:
    """A composed experiment: resolved, the choices of the groups, and the keys whose values appear under others."""

    tree: Tree
    names: dict[str, str | None]
    references: frozenset[str]


class Composer:
    """Composes settings: an experiment, an algorithm and config keys.

    A configuration takes Hydra 0.2 s, a plan has hundreds of them. Here an experiment costs that once, and each of its
    settings milliseconds; ``compose_request`` of the same overrides gives the same request (by test).

    Args:
        common: Overrides for all settings, such as results_dir.
    """

    def __init__(self, common: Sequence[str]) -> None:
        self.common = list(common)
        self._experiments: dict[str, _Base] = {}

    @cached_property
    def results_dir(self) -> Path:
        """Where the runs are."""
        return Path(compose_request(self.common).config["results_dir"]).expanduser()

    def request(self, experiment: str, algo: str, keys: Mapping[str, Any]) -> Request:
        """Return the checked request for a setting with seed 0.

        Raises:
            RequestError: For an unknown experiment, algorithm or key, or a value out of range.
        """
        values = (f"{k}={config_value(v)}" for k, v in keys.items())
        overrides = [f"experiment={experiment}", f"algo={algo}", *values, *self.common]
        base = self._experiment(experiment)
        if base.references & keys.keys() or algo not in self._sections["algo"]:
            return compose_request(overrides)
        tree, names = copy.deepcopy(base.tree), {**base.names, "algo": algo}
        tree["algo"] = copy.deepcopy(self._sections["algo"][algo])
        if (model := keys.get("model")) is not None:
            tree["model"], names["model"] = copy.deepcopy(self._sections["model"].get(model)), model
        if not all(_put(tree, key.split("."), value) for key, value in keys.items() if key != "model"):
            return compose_request(overrides)  # whose error says what is wrong
        return make_request(tree, names, overrides)

    def _experiment(self, name: str) -> _Base:
        if name not in self._experiments:
            self._experiments[name] = _base([f"experiment={name}", *self.common])
        return self._experiments[name]

    @cached_property
    def _sections(self) -> dict[str, Tree]:
        """All choices of the groups that a setting may exchange, in one composition."""
        every = [f"+{g}@_sections.{g}.c{i}={name}" for g in _SWAPPED for i, name in enumerate(options(g))]
        tree = _base(every).tree
        return {g: {name: tree["_sections"][g][f"c{i}"] for i, name in enumerate(options(g))} for g in _SWAPPED}


def _base(overrides: list[str]) -> _Base:
    try:
        cfg = _compose(overrides, return_hydra_config=True)
    except Exception as error:
        raise explain(error) from error
    names = {g: cfg.hydra.runtime.choices.get(g) for g in _GROUPS}
    with open_dict(cfg):
        del cfg["hydra"]
    written = OmegaConf.to_container(cfg)
    return _Base(_plain(cfg), names, frozenset(re.findall(r"\$\{([\w.]+)\}", str(written))))


def _put(tree: Tree, path: Sequence[str], value: Any) -> bool:
    """Set a value at a path that exists; return whether it does."""
    section: Any = tree
    for part in path[:-1]:
        section = section.get(part) if isinstance(section, dict) else None
    if not isinstance(section, dict) or path[-1] not in section:
        return False
    section[path[-1]] = value
    return True

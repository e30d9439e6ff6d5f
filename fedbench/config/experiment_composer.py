"""Configurations of many settings of few experiments: Hydra composes an experiment once, its rows are set on that."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedbench.config.compose import Composer, merge_presets
from fedbench.config.overrides import parse_overrides
from fedbench.config.schema import Choices, RunConfig, options, parse
from fedbench.core.trees import Tree, config_value

_SWAPPED = ("algo", "model")  # groups whose choices are sections without references to other keys


@dataclass(frozen=True)
class _Base:
    """A composed experiment: resolved, the choices of the groups, and the keys whose values appear under others."""

    tree: Tree
    names: Choices
    references: frozenset[str]


class ExperimentComposer:
    """Composes settings: an experiment, an algorithm and config keys.

    Hydra takes 0.2 s for a configuration, and a plan has hundreds of them. Here each experiment takes that once, and
    each of its settings milliseconds; ``compose_run`` of the same overrides gives the same configuration (by test).

    Args:
        common: Overrides for all settings, such as results_dir.
        own: A config tree in addition to fedbench's own.
    """

    def __init__(self, common: Sequence[str], own: Path | None = None) -> None:
        self.common = list(common)
        self._given = {k for o in parse_overrides(common) for k in o.keys}
        self._composer = Composer(own)
        self._experiments: dict[str, _Base] = {}

    @cached_property
    def results_dir(self) -> Path:
        """The directory of the results."""
        return self._composer.config(self.common).results_dir

    def config(self, experiment: str, algo: str, keys: Mapping[str, Any]) -> RunConfig:
        """Return the configuration of a setting with seed 0, without its departures from the experiment.

        Raises:
            RequestError: For an unknown experiment, algorithm or key, or a value out of range.
        """
        values = (f"{k}={config_value(v)}" for k, v in keys.items())
        overrides = [f"experiment={experiment}", f"algo={algo}", *values, *self.common]
        base = self._experiment(experiment)
        if base.references & keys.keys() or algo not in self._sections["algo"]:
            return self._composer.config(overrides)
        tree, names = copy.deepcopy(base.tree), replace(base.names, algo=algo)
        tree["algo"] = copy.deepcopy(self._sections["algo"][algo])
        if (model := keys.get("model")) is not None:
            tree["model"], names = copy.deepcopy(self._sections["model"].get(model)), replace(names, model=model)
        if not all(_put(tree, key.split("."), value) for key, value in keys.items() if key != "model"):
            return self._composer.config(overrides)  # whose error says what is wrong
        return parse(merge_presets(tree, algo, self._given | keys.keys()), names, overrides)

    def _experiment(self, name: str) -> _Base:
        if name not in self._experiments:
            texts = [f"experiment={name}", *self.common]
            tree, written, names = self._composer.with_references(texts)
            self._experiments[name] = _Base(tree, names, frozenset(re.findall(r"\$\{([\w.]+)\}", str(written))))
        return self._experiments[name]

    @cached_property
    def _sections(self) -> dict[str, Tree]:
        """All choices of the groups that a setting may exchange, in one composition."""
        every = [f"+{g}@_sections.{g}.c{i}={name}" for g in _SWAPPED for i, name in enumerate(options(g))]
        tree, _ = self._composer.with_presets(every)
        return {g: {name: tree["_sections"][g][f"c{i}"] for i, name in enumerate(options(g))} for g in _SWAPPED}


def _put(tree: Tree, path: Sequence[str], value: Any) -> bool:
    """Set a value at a path that exists; return whether it does."""
    section: Any = tree
    for part in path[:-1]:
        section = section.get(part) if isinstance(section, dict) else None
    if not isinstance(section, dict) or path[-1] not in section:
        return False
    section[path[-1]] = value
    return True

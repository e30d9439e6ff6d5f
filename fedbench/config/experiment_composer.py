"""Configurations of many settings of few experiments: Hydra composes an experiment once, its rows are set on that."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedbench.config.compose import Composer, merge_presets, resolved
from fedbench.config.overrides import Override, parse_overrides
from fedbench.config.schema import Choices, RunConfig, options, parse
from fedbench.core.trees import Tree, config_value

_SWAPPED = ("algo", "model")  # groups whose choices are sections without references to other keys


@dataclass(frozen=True)
class _Base:
    """A composed experiment: as it is written, the choices of the groups, and the keys whose values others repeat."""

    written: Tree
    names: Choices
    references: frozenset[str]
    resolved: dict[str, Tree] = field(default_factory=dict)

    def tree(self, values: Mapping[str, Any]) -> Tree | None:
        """Return a copy of the resolved configuration with values of ``references``; None if there is no such key."""
        text = json.dumps(values, sort_keys=True)
        if text not in self.resolved:
            written = copy.deepcopy(self.written)
            if not all(_put(written, key.split("."), value) for key, value in values.items()):
                return None
            self.resolved[text] = resolved(written)
        return copy.deepcopy(self.resolved[text])


class ExperimentComposer:
    """Composes settings: an experiment, an algorithm and config keys.

    Hydra takes 0.2 s for a configuration, and a plan has hundreds of them. Here each experiment takes that once, and
    each of its settings milliseconds; ``compose_run`` of the same
    overrides gives the same configuration (by test).

    Args:
        common: Overrides for all settings, such as results_dir.
        own: A config tree in addition to fedbench's own.
    """

    def __init__(self, common: Sequence[str], own: Path | None = None) -> None:
        self.common = list(common)
        overrides = parse_overrides(common)
        self._given = {k for o in overrides for k in o.keys}
        self._values = {o.key: o.value for o in overrides if _is_plain(o)}
        self._choices = [o.text for o in overrides if not _is_plain(o)]
        self._composer = Composer(own)
        self._bases: dict[tuple[str, ...], _Base] = {}
        self._expected = {group: options(group) for group in _SWAPPED}

    @cached_property
    def without(self) -> RunConfig:
        """The configuration without an experiment, which has the directories.

        Raises:
            RequestError: For an override of an unknown key, or a value out of range.
        """
        base = None if self._choices else self._base([])
        tree = None if base is None else self._with(base, self._values)
        if base is None or tree is None:
            return self._composer.config(self.common)  # whose error says what is wrong
        return parse(merge_presets(tree, base.names.algo, self._given), base.names, self.common)

    def expect(self, algos: Collection[str], models: Collection[str]) -> None:
        """Announce the choices that settings will have, before the first one: others take Hydra's time each."""
        for group, names in (("algo", algos), ("model", models)):
            self._expected[group] = sorted({*names} & {*options(group)})

    def config(self, experiment: str, algo: str, keys: Mapping[str, Any]) -> RunConfig:
        """Return the configuration of a setting with seed 0, without its departures from the experiment.

        Raises:
            RequestError: For an unknown experiment, algorithm or key, or a value out of range.
        """
        values = (f"{k}={config_value(v)}" for k, v in keys.items())
        overrides = [f"experiment={experiment}", f"algo={algo}", *values, *self.common]
        base = self._base([f"experiment={experiment}"])
        sections = {"algo": self._sections["algo"].get(algo)}
        if (model := keys.get("model")) is not None:
            sections["model"] = self._sections["model"].get(model)
        known = {group: section for group, section in sections.items() if section is not None}
        if len(known) < len(sections):
            return self._composer.config(overrides)
        names = replace(base.names, algo=algo, **({} if model is None else {"model": model}))
        given = {k: v for k, v in {**keys, **self._values}.items() if k != "model"}
        tree = self._with(base, given, known)
        if tree is None:
            return self._composer.config(overrides)  # whose error says what is wrong
        return parse(merge_presets(tree, algo, self._given | keys.keys()), names, overrides)

    def _with(self, base: _Base, values: Mapping[str, Any], sections: Mapping[str, Tree] | None = None) -> Tree | None:
        """Return a configuration with other sections and with values; None if it lacks one of their keys."""
        tree = base.tree({k: v for k, v in values.items() if k in base.references})
        if tree is None:
            return None
        tree |= copy.deepcopy(dict(sections or {}))
        return tree if all(_put(tree, key.split("."), value) for key, value in values.items()) else None

    def _base(self, texts: Sequence[str]) -> _Base:
        key = (*texts, *self._choices)
        if key not in self._bases:
            written, names = self._written(key)
            found = re.findall(r"\$\{([\w.]+)\}", str(written))
            self._bases[key] = _Base(written, names, frozenset(found))
        return self._bases[key]

    def _written(self, texts: Sequence[str]) -> tuple[Tree, Choices]:
        """Return what Hydra makes of some overrides, with interpolations as they are written."""
        return self._composer.with_presets(texts, resolve=False)

    @cached_property
    def _sections(self) -> dict[str, Tree]:
        """The expected choices of the groups that a setting may exchange, in one composition."""
        every = [f"+{g}@_sections.{g}.c{i}={name}" for g in _SWAPPED for i, name in enumerate(self._expected[g])]
        if not every:
            return {g: {} for g in _SWAPPED}
        found = self._written(every)[0]["_sections"]
        return {g: {name: found[g][f"c{i}"] for i, name in enumerate(self._expected[g])} for g in _SWAPPED}


def _is_plain(o: Override) -> bool:
    """Return whether an override sets a key that is there: not a choice, a new key, a reference or one of Hydra's.

    A value that refers to others, as ``${oc.env:HOME}/runs`` does, is resolved with the rest of the configuration.
    """
    refers = "${" in o.text
    return not (o.group or o.added or o.sweeps or refers or isinstance(o.value, dict) or o.key.startswith("hydra"))


def _put(tree: Tree, path: Sequence[str], value: Any) -> bool:
    """Set a value at a path that exists; return whether it does."""
    section: Any = tree
    for part in path[:-1]:
        section = section.get(part) if isinstance(section, dict) else None
    if not isinstance(section, dict) or path[-1] not in section:
        return False
    section[path[-1]] = value
    return True

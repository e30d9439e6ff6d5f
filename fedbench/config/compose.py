"""Composition of a typed configuration from override strings.

Hydra composes the config groups, this module sets keys and presets, and the schema parses the
result. Hydra needs 0.05 to 0.1 s per choice of config groups, and a plan contains thousands of
configurations. The groups are therefore composed once per process without the method; the method's
section is composed separately and merged in. Trees are never modified in place.
"""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf, open_dict

from fedbench.config.explanations import Known, explained
from fedbench.config.identity import REPORTING_KEYS, setting
from fedbench.config.overrides import (
    ADDITIONS,
    CONFIG_DIR,
    GROUPS,
    Override,
    choice_files,
    options,
    parse_overrides,
    quoted,
)
from fedbench.config.plans import digests_of
from fedbench.config.schema import Choices, RunConfig, parse
from fedbench.core.config_values import Tree, leaves
from fedbench.core.errors import RequestError, WrongValue, nearest, typed

# a configuration and the choice in each config group
Composed = tuple[Tree, dict[str, str | None]]
_REFERENCE = re.compile(r"\$\{|\?\?\?")  # interpolations and missing values
# sections of data that accept additional keys
_OPEN = ("data.source.", "data.partition.", "data.noise.")
_LOCK = threading.RLock()  # Hydra's state is global, so only one thread at a time may use it
_composed: dict[tuple[str | None, ...], Composed] = {}  # cache for fedbench's own config tree


def compose_run(overrides: Sequence[str]) -> RunConfig:
    """Return the configuration that overrides select from fedbench's own config tree.

    Raises:
        RequestError: If a key is unknown or a value is out of range.
    """
    return Composer().config(overrides)


class Composer:
    """Composer of configurations from fedbench's config tree and the user's directory.

    Every call restores Hydra's global state, even inside another program that uses Hydra. A
    composer reads each config file once; after a file has changed, make another composer.

    Args:
        config_dir: The user's config tree, which extends fedbench's own.

    Raises:
        RequestError: If one of the user's files would never be read, because fedbench has a
            different file with the same name.
    """

    def __init__(self, config_dir: Path | None = None) -> None:
        self.config_dir = config_dir
        self._composed = _composed
        self._search: list[str] = []
        self._files: Any = None
        self._resolved: dict[str, Tree] = {}
        self._baselines: dict[tuple[str, str], Tree] = {}
        if config_dir is not None:
            _refuse_hidden_files(config_dir)
            self._composed = {}
            location = quoted(f"file://{config_dir.resolve()}")
            self._search = [f"hydra.searchpath=[{location}]"]

    def config(
        self,
        texts: Sequence[str],
        departures: bool = True,
    ) -> RunConfig:
        """Return the configuration that the overrides define.

        Args:
            texts: The overrides.
            departures: Whether to record departures from the chosen experiment, and plans.

        Raises:
            RequestError: If a key is unknown or a value is out of range.
        """
        overrides = parse_overrides(texts)
        _refuse_hydra_keys(overrides)
        with explained(lambda: self._known(overrides)):
            written, choices = self._written(overrides)
            tree = resolved(written, self._resolved)

        parsed = parse(tree, choices, [o.text for o in overrides])
        config = replace(parsed, stored_tree=stored(written, parsed.tree))
        if config.names.experiment is None:
            _refuse_epochs_and_steps(config, _set_keys(overrides))
        elif departures:
            config = replace(
                config,
                departures=self._departures(config.names, written),
                plans=digests_of(config.results_dir, config.names.experiment, config.seed),
            )
        return config

    def composed(
        self,
        texts: Sequence[str],
        resolve: bool = False,
    ) -> Composed:
        """Return the configuration with presets merged in, and the choice in each config group.

        The choices include those of nested groups such as ``data/partition``.

        Args:
            texts: The overrides.
            resolve: Whether to resolve interpolations.

        Raises:
            RequestError: If a key or choice is unknown.
        """
        overrides = parse_overrides(texts)
        with explained(lambda: self._known(overrides)):
            tree, choices = self._written(overrides)
            return copy.deepcopy(resolved(tree, {}) if resolve else tree), choices

    def multirun(
        self,
        task: Callable[[Any], Any],
        texts: Sequence[str],
    ) -> Any:
        """Run a Hydra sweep and return its batches of jobs, each job with the task's return value.

        Raises:
            RequestError: If Hydra rejects the launcher.
        """
        typed = [*texts, *self._search, "hydra.mode=MULTIRUN"]
        with explained(), _hydra() as hydra:
            return hydra.multirun(None, task, typed, with_log_configuration=False)

    def _departures(
        self,
        names: Choices,
        written: Tree,
    ) -> dict[str, list[Any]]:
        """Return the keys that differ, each with [the experiment's value, this run's value]."""
        texts = (f"experiment={names.experiment}", f"algo={names.algo}")
        if texts not in self._baselines:
            as_published, _ = self._written(parse_overrides(texts))
            self._baselines[texts] = setting(as_published)
        baseline = self._baselines[texts]
        actual = setting(written)

        departures: dict[str, list[Any]] = {}
        for key in sorted(actual.keys() | baseline.keys()):
            section = key.partition(".")[0]
            published, given = baseline.get(key), actual.get(key)
            if published != given and section not in REPORTING_KEYS:
                departures[key] = [published, given]
        return departures

    def _written(self, overrides: Sequence[Override]) -> Composed:
        """Return the unresolved configuration that overrides define, with presets merged in.

        Existing keys are set here. Hydra adds new keys, and explains why an override cannot be set.
        """
        _check_values_and_keys(overrides)
        refuse_repeated_groups(overrides)
        chosen = tuple(o.text for o in overrides if o.chooses)
        try:
            tree, choices = self._of_groups(chosen)
            for o in overrides:
                if o.added:
                    raise KeyError(o.key)
                if not o.chooses:
                    tree = _with_value(tree, o.key.split("."), o.value)
        except KeyError:
            tree, choices = self._by_hydra("config", tuple(o.text for o in overrides))
        merged = merge_presets(tree, str(choices["algo"]), _set_keys(overrides))
        methods = choice_files("algo", self.config_dir)
        for name in tree.get("presets") or ():
            if name not in methods:
                hint = nearest(str(name), methods) or "; one of your own needs --config-dir DIR"
                raise RequestError(f"presets.{name}: there is no method {name}{hint}")
        for group in ADDITIONS:
            if not merged[group]:
                del merged[group]
        return merged, choices

    def _of_groups(self, texts: tuple[str, ...]) -> Composed:
        """Return the configuration of group choices; a method's section is composed separately."""
        methods = [text for text in texts if text.startswith("algo=")]
        if len(methods) != 1:
            return self._by_hydra("config", texts)
        method, chosen = self._by_hydra(None, (f"+{methods[0]}",))
        # the method's file sets keys outside its own section
        if set(method) != {"algo"} or not isinstance(method["algo"], dict):
            return self._by_hydra("config", texts)

        others = tuple("algo=_none" if text in methods else text for text in texts)
        tree, choices = self._by_hydra("config", others)
        section = OmegaConf.to_container(OmegaConf.merge(method["algo"], tree["algo"]))
        return tree | {"algo": section}, choices | chosen

    def _by_hydra(
        self,
        name: str | None,
        texts: tuple[str, ...],
    ) -> Composed:
        """Return Hydra's composition without Hydra's own section, and the choice in each group."""
        if (name, *texts) not in self._composed:
            from hydra import compose

            with _hydra() as hydra:
                if not any("hydra" in text for text in texts):
                    loader = hydra.config_loader
                    self._files = self._files or _with_cached_files(loader.repository)
                    loader.repository = self._files
                cfg = compose(name, [*texts, *self._search], return_hydra_config=True)
            choices = {}
            for group, choice in cfg.hydra.runtime.choices.items():
                if not group.startswith("hydra/"):
                    choices[group] = choice
            with open_dict(cfg):
                del cfg["hydra"]
            tree: Any = OmegaConf.to_container(cfg)
            self._composed[name, *texts] = tree, choices
        return self._composed[name, *texts]

    def _known(self, overrides: Sequence[Override]) -> Known:
        """Return the keys and choices that result from the group choices in the overrides."""
        chosen = []
        for o in overrides:
            if o.chooses and options(o.key) and "@" not in o.text:
                chosen.append(o.text)
        tree, choices = self._by_hydra("config", tuple(chosen))
        return list(leaves(tree)), choices


def _refuse_hidden_files(config_dir: Path) -> None:
    """Raise a RequestError if fedbench has a different file with the name of a user's file."""
    for group in GROUPS:
        for file in sorted((config_dir / group).rglob("*.yaml")):
            name = file.relative_to(config_dir)
            twin = CONFIG_DIR / name
            if twin.is_file() and twin.read_bytes() != file.read_bytes():
                raise RequestError(
                    f"{file} is hidden by fedbench's own {name}; give it another name"
                )


def _refuse_hydra_keys(overrides: Sequence[Override]) -> None:
    """Raise a RequestError for Hydra's own keys, which do not apply to single runs."""
    for o in overrides:
        if o.key.startswith(("hydra.", "hydra/")):
            raise RequestError(
                f"{o.text} configures sweeps, which -m makes; "
                "results_dir=DIR is where runs are written"
            )


def _refuse_epochs_and_steps(config: RunConfig, given: set[str]) -> None:
    """Raise a RequestError if both local epochs and local steps are given.

    With an experiment, both may be set: one by the row of the paper, one by a reduced profile.
    """
    if config.local.steps and {"local.epochs", "local.steps"} <= given:
        raise RequestError(
            "local.epochs and local.steps are both given; steps replace epochs: remove one"
        )


def _check_values_and_keys(overrides: Sequence[Override]) -> None:
    """Raise a RequestError for a key with several values, or for a new key in ``data``."""
    for o in overrides:
        if o.sweeps:
            values = f" ({', '.join(o.values)})" if o.values else ""
            raise RequestError(
                f"{o.key} has several values{values}; to run each of them, add -m; a list is [A,B]"
            )
        is_closed = o.key.startswith("data.") and not o.key.startswith(_OPEN)
        if o.added and is_closed:
            raise RequestError(
                f"unknown key {o.key}; `fedbench --cfg job data=NAME` shows the keys of a data set"
            )


def refuse_repeated_groups(overrides: Sequence[Override]) -> None:
    """Raise a RequestError if a config group is chosen twice; Hydra would take the last choice."""
    chosen: dict[str, Override] = {}
    for o in overrides:
        if not o.chooses:
            continue
        first = chosen.setdefault(o.key, o)
        if first.text != o.text:
            values = [text.partition("=")[2] for text in (first.text, o.text)]
            raise RequestError(
                f"{first.text} and {o.text} are both given; remove one, "
                f"or type -m {o.key}={','.join(values)} to run both"
            )


def _set_keys(overrides: Sequence[Override]) -> set[str]:
    """Return the configuration keys that overrides set."""
    return {key for o in overrides for key in o.keys}


@contextmanager
def _hydra() -> Iterator[Any]:
    """Yield Hydra, initialised with the config tree, and restore its global state afterwards."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.utils import JobRuntime
    from hydra.version import VersionBase

    with _LOCK:
        outer, base = GlobalHydra.instance().hydra, VersionBase.instance().version_base
        job = JobRuntime.instance().get("name")
        try:
            GlobalHydra.instance().clear()
            with initialize_config_dir(str(CONFIG_DIR), "fedbench", version_base="1.3"):
                yield GlobalHydra.instance().hydra
        finally:
            GlobalHydra.instance().hydra = outer
            VersionBase.instance().version_base = base
            JobRuntime.instance().conf["name"] = job


def _with_cached_files(repository: Any) -> Any:
    """Return Hydra's repository of config files, changed so that it reads each file only once.

    It is for compositions that do not concern Hydra itself: Hydra's own config groups, such as its
    launcher, are left out. A plan needs a hundred compositions, and this halves their time.
    """
    read = cache(repository.load_config)

    def load_config(config_path: str) -> Any:
        file = copy.deepcopy(read(config_path))  # Hydra merges other files into it
        if config_path == "hydra/config":
            for default in file.defaults_list:
                default.value = None  # a file may still override it
        return file

    repository.load_config = load_config
    repository.__deepcopy__ = lambda memo: repository  # Hydra copies it for every composition
    return repository


def _with_value(
    section: Any,
    path: Sequence[str],
    value: Any,
) -> Any:
    """Return a section with the value at a path replaced.

    Raises:
        KeyError: If the path does not exist, or the value is a mapping, which only Hydra can merge.
    """
    if not path:
        if isinstance(value, dict):
            raise KeyError(str(value))
        return value
    name, *rest = path
    if not isinstance(section, dict) or name not in section:
        raise KeyError(name)
    return section | {name: _with_value(section[name], rest, value)}


def merge_presets(
    tree: Tree,
    algo: str,
    given: set[str],
) -> Tree:
    """Return the configuration with the experiment's settings for the chosen algorithm.

    A key under ``presets.<algo>.local`` belongs to ``local``; any other key belongs to ``algo``.

    Args:
        tree: The configuration with ``presets``.
        algo: The chosen algorithm.
        given: Keys set on the command line; they keep their values.

    Raises:
        RequestError: If a preset is not a section, or sets a key that the algorithm does not have.
    """
    merged = {key: value for key, value in tree.items() if key != "presets"}
    presets = tree.get("presets") or {}
    settings = presets.get(algo) if isinstance(presets, dict) else presets
    if not isinstance(settings or {}, dict):
        raise WrongValue(f"presets.{algo}", f"must be a section with keys, got {typed(settings)}")

    for name, value in leaves(settings or {}).items():
        key = name if name.startswith("local.") else f"algo.{name}"
        if key in given:
            continue
        try:
            merged = _with_value(merged, key.split("."), value)
        except KeyError as error:
            raise RequestError(f"presets.{algo} sets {key}, which does not exist") from error
    return merged


def resolved(written: Tree, known: dict[str, Tree]) -> Tree:
    """Return a configuration with its interpolations replaced by their values.

    OmegaConf needs 15 ms for a whole configuration. It is therefore given only the sections with
    interpolations or missing values, and the sections to which they may refer.

    Args:
        written: The configuration.
        known: Cache of resolved sections by their text; newly resolved sections are added.
    """
    texts = filter(_REFERENCE.search, map(str, written.values()))
    words = set(re.findall(r"\w+", " ".join(texts)))
    sections = {}
    for key, value in written.items():
        if key in words or _REFERENCE.search(str(value)):
            sections[key] = value

    text = str(sections)
    if text not in known:
        values: Any = OmegaConf.to_container(
            OmegaConf.create(sections), resolve=True, throw_on_missing=True
        )
        known[text] = values
    return written | known[text]


def stored(written: Tree, tree: Tree) -> Tree:
    """Return the configuration for files and trackers, without text from environment variables.

    Args:
        written: The configuration with unresolved interpolations.
        tree: The resolved configuration.
    """
    values = leaves(tree)
    secrets = []
    for key, text in leaves(written).items():
        value = values.get(key)
        if "oc.env" in str(text) and value and isinstance(value, str | list):
            secrets.append(str(value))
    kept: Tree = _as_written(tree, written, secrets)
    return kept


def _as_written(
    value: Any,
    written: Any,
    secrets: Sequence[str],
) -> Any:
    """Return a value in which parts that contain a secret are replaced by their source text."""
    if isinstance(value, dict):
        texts = written if isinstance(written, dict) else {}
        kept = {}
        for name, inner in value.items():
            kept[name] = _as_written(inner, texts.get(name, inner), secrets)
        return kept
    if isinstance(value, str | list) and any(secret in str(value) for secret in secrets):
        return written
    return value

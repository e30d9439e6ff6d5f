"""From override texts to a typed configuration: Hydra composes, presets are merged in, and the schema parses."""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from fedbench.config.explain import explain
from fedbench.config.identity import core
from fedbench.config.keys import WATCHING
from fedbench.config.overrides import GROUPS, Override, by_hydra, parse_overrides, quoted
from fedbench.config.places import config_dir
from fedbench.config.schema import TOP_KEYS, Choices, RunConfig, options, parse, with_integers
from fedbench.core.errors import RequestError
from fedbench.core.trees import Tree, leaves

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override as HydraOverride

# last parts of the keys that take a list of values
_LISTS = {"epochs", "keep_clients", "shape", "size", "classes", "mean", "std", "hidden", "channels"}
# Hydra's own groups that say nothing of a run: without them Hydra composes in two thirds of the time
_HYDRAS = ("~hydra/help", "~hydra/hydra_help", "~hydra/output", "~hydra/launcher", "~hydra/sweeper")
_LOCK = threading.RLock()  # Hydra's state is global: threads take turns
_UNRESOLVED = re.compile(r"\$\{|\?\?\?")  # interpolations and missing values
_OF_KEYS = re.compile(r"\$\{(?!oc\.env:)")  # interpolations other than those of environment variables
_OPEN = ("data.source.", "data.partition.", "data.noise.")  # sections of data that take further keys


def compose_run(overrides: Sequence[str]) -> RunConfig:
    """Return the configuration that overrides make; its departures from the experiment are not looked up.

    Raises:
        RequestError: If a key is unknown or a value is out of range.
    """
    return Composer().config(overrides)


class Composer:
    """Composes configurations from fedbench's config tree and, if given, a directory of the user's own.

    Hydra's global state is the same after every call, also inside another program that uses Hydra.

    Args:
        own: A config tree in addition to fedbench's own.
    """

    def __init__(self, own: Path | None = None) -> None:
        self.own = own

    def config(self, texts: Sequence[str]) -> RunConfig:
        """Return the configuration that overrides make, without its departures from the experiment.

        Raises:
            RequestError: If a key is unknown or a value is out of range.
        """
        overrides = parse_overrides(texts)
        refuse_sweeps(overrides)
        with self._explained(overrides):
            tree, written, names = self._merged(overrides)
        config = parse(tree, names, [o.text for o in overrides if not o.key.startswith("hydra")])
        return replace(config, stored_tree=stored(written, config.tree))

    def config_with_departures(self, texts: Sequence[str]) -> RunConfig:
        """Return the configuration that overrides make, with its departures from the experiment.

        Raises:
            RequestError: If a key is unknown or a value is out of range.
        """
        config = self.config(texts)
        if config.names.experiment is None:
            return config
        baseline, written, _ = self._merged(
            parse_overrides([f"experiment={config.names.experiment}", f"algo={config.names.algo}"])
        )
        return replace(config, departures=_departures(config.stored_tree, stored(written, with_integers(baseline))))

    def unresolved(self, texts: Sequence[str]) -> tuple[Tree, dict[str, str | None]]:
        """Return the configuration with presets merged in and interpolations as they are written.

        The second value is the choice of each config group, also of groups within groups such as ``data/partition``.

        Raises:
            RequestError: If a key or choice is unknown.
        """
        overrides = parse_overrides(texts)
        refuse_sweeps(overrides)
        with self._explained(overrides):
            tree, choices = self._chosen([o.text for o in overrides], resolve=False)
            return self._with_presets_merged(tree, str(choices["algo"]), overrides), choices

    @contextmanager
    def hydra(self) -> Iterator[Any]:
        """Return Hydra, initialised on the config tree inside this block."""
        from hydra import initialize_config_dir
        from hydra.core.global_hydra import GlobalHydra

        if self.own is not None:
            _refuse_hidden_files(self.own)
        with _LOCK, _hydra_put_back():
            GlobalHydra.instance().clear()
            with initialize_config_dir(str(config_dir()), "fedbench", version_base="1.3"):
                hydra = GlobalHydra.instance().hydra
                assert hydra is not None
                yield hydra

    def search_path(self) -> list[str]:
        """Return the overrides that make Hydra look into the user's own directory too."""
        return [] if self.own is None else [f"hydra.searchpath=[{quoted(f'file://{self.own.resolve()}')}]"]

    def keys(self, overrides: Sequence[Override]) -> list[str]:
        """Return the keys of the configuration that the choices of groups among some overrides make."""
        with self.hydra():
            cfg, _ = self._composed(
                [
                    o.text
                    for o in overrides
                    if o.group and options(o.key) and not isinstance(o.value, dict) and "@" not in o.text
                ]
            )
        return list(leaves(plain(cfg, resolve=False)))

    def _composed(self, texts: Sequence[str]) -> tuple[DictConfig, dict[str, str | None]]:
        """Return the configuration that Hydra composes, without Hydra's own section, and the choice of each group.

        Hydra takes a tenth of a second for the choices of groups, which are therefore composed once. Keys are set on
        a copy, as Hydra does; where that fails or keys are added, Hydra composes all.
        """
        parsed = [by_hydra(text) for text in texts]
        keys = [] if any(o.is_add() or o.is_force_add() for o in parsed) else [o for o in parsed if self._sets_keys(o)]
        cfg, choices = self._kept([text for text in texts if by_hydra(text) not in keys])
        try:
            for o in keys:
                OmegaConf.update(cfg, o.key_or_group, o.value(), merge=True)
        except OmegaConfBaseException:
            return self._kept(texts)
        return cfg, choices

    def _kept(self, texts: Sequence[str]) -> tuple[DictConfig, dict[str, str | None]]:
        typed = next((text for text in texts if text.lstrip("+").startswith("hydra.searchpath")), None)
        if self.own is not None and typed is not None:
            raise RequestError(f"{typed} cannot be combined with --config-dir {self.own}, which takes its place")
        only_ours = self.own is None and not any("hydra" in text for text in texts)
        composed, choices = _composed_groups((*texts, *self.search_path()), _written() if only_ours else self)
        return pickle.loads(composed), dict(choices)

    def _sets_keys(self, o: HydraOverride) -> bool:
        """Return whether an override changes keys, and neither chooses from a group nor configures Hydra."""
        name = o.key_or_group
        if o.is_delete():
            return False
        if o.is_sweep_override() or o.package is not None or "/" in name or name.split(".")[0] == "hydra":
            return False
        own_group = self.own is not None and (self.own / name).is_dir()
        return "." in name or isinstance(o.value(), dict) or (name in TOP_KEYS - {*GROUPS} and not own_group)

    def with_presets(self, texts: Sequence[str], resolve: bool = True) -> tuple[Tree, Choices]:
        """Return the configuration with the section ``presets`` as it is written, and the choices of the groups.

        Args:
            texts: Overrides that Hydra accepts as they are.
            resolve: Whether interpolations are replaced by their values.
        """
        tree, choices = self._chosen(texts, resolve)
        return tree, _names(choices)

    def _chosen(self, texts: Sequence[str], resolve: bool) -> tuple[Tree, dict[str, str | None]]:
        with self.hydra():
            cfg, choices = self._composed(texts)
            return plain(cfg, resolve), choices

    def with_references(self, texts: Sequence[str]) -> tuple[Tree, Tree, Choices]:
        """Return the configuration with ``presets``, resolved and as it is written, and the choices of the groups.

        Args:
            texts: Overrides that Hydra accepts as they are.
        """
        with self.hydra():
            cfg, choices = self._composed(texts)
            return plain(cfg, resolve=True), plain(cfg, resolve=False), _names(choices)

    def _merged(self, overrides: Sequence[Override]) -> tuple[Tree, Tree, Choices]:
        """Return the configuration with presets merged in, resolved and as it is written, and the choices."""
        *both, names = self.with_references([o.text for o in overrides])
        tree, written = (self._with_presets_merged(t, names.algo, overrides) for t in both)
        return tree, written, names

    def _with_presets_merged(self, tree: Tree, algo: str, overrides: Sequence[Override]) -> Tree:
        _refuse_new_data_keys(overrides)
        return merge_presets(tree, algo, {k for o in overrides for k in o.keys})

    @contextmanager
    def _explained(self, overrides: Sequence[Override]) -> Iterator[None]:
        known = partial(self.keys, overrides)
        try:
            yield
        except UnicodeDecodeError as error:
            raise RequestError(f"a config file in {self.own} is not text in UTF-8: {error}") from error
        except Exception as error:
            clear = explain(error, known)
            if clear is error:
                raise
            raise clear from error


@lru_cache(maxsize=256)
def _composed_groups(texts: tuple[str, ...], valid: object) -> tuple[bytes, dict[str, str | None]]:
    """Return what Hydra composes, without its own section and pickled, and the choice of each group.

    Args:
        texts: Overrides.
        valid: What the result is valid for: a state of the config files, or a ``Composer``.
    """
    from hydra import compose

    unused = () if any("hydra" in text for text in texts) else _HYDRAS
    cfg = compose("config", [*texts, *unused], return_hydra_config=True)
    choices = dict(cfg.hydra.runtime.choices)
    with open_dict(cfg):
        del cfg["hydra"]
    return pickle.dumps(cfg), choices


def _written() -> frozenset[tuple[str, int]]:
    """Return when each file of the config tree was last written."""
    return frozenset((str(file), file.stat().st_mtime_ns) for file in config_dir().rglob("*.yaml"))


@contextmanager
def _hydra_put_back() -> Iterator[None]:
    """Leave Hydra's global state as it was before this block."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.utils import JobRuntime
    from hydra.version import VersionBase

    outer, base = GlobalHydra.instance().hydra, VersionBase.instance().version_base
    job = JobRuntime.instance().get("name")
    try:
        yield
    finally:
        GlobalHydra.instance().hydra = outer
        VersionBase.instance().version_base = base
        JobRuntime.instance().conf["name"] = job


def merge_presets(tree: Tree, algo: str, given: set[str]) -> Tree:
    """Return the configuration with the experiment's settings for the chosen algorithm instead of its defaults.

    A key under ``presets.<algo>.local`` belongs to ``local``, any other to ``algo``.

    Args:
        tree: The configuration with ``presets``.
        algo: The chosen algorithm.
        given: Keys that the command line sets; they keep their values.

    Raises:
        RequestError: If a preset names a key that the algorithm does not have.
    """
    presets = (tree.get("presets") or {}).get(algo) or {}
    tree = {k: v for k, v in tree.items() if k != "presets"}
    own = {k: v for k, v in presets.items() if k != "local"}
    for group, values in (("algo", own), ("local", presets.get("local") or {})):
        section = tree[group]
        if not isinstance(section, dict):  # refused when it is parsed
            continue
        if unknown := sorted(set(values) - set(section)):
            raise RequestError(
                f"presets.{algo} sets {unknown[0]}, which {group} does not have; "
                f"it has {', '.join(k for k in section if k != '_target_')}"
            )
        tree = {**tree, group: section | {k: v for k, v in values.items() if f"{group}.{k}" not in given}}
    return tree


def _refuse_hidden_files(own: Path) -> None:
    """Refuse config files of the user that would never be read, since fedbench has others under the same names.

    Raises:
        RequestError: Naming the file.
    """
    ours = config_dir()
    for file in sorted(path for group in GROUPS for path in (own / group).rglob("*.yaml")):
        twin = ours / file.relative_to(own)
        if twin.is_file() and twin.read_bytes() != file.read_bytes():
            raise RequestError(f"{file} is hidden by fedbench's own {file.relative_to(own)}; give it another name")


def refuse_sweeps(overrides: Sequence[Override]) -> None:
    """Refuse several values where one run is asked for.

    Raises:
        RequestError: Naming the key.
    """
    for o in overrides:
        if o.sweeps:
            values = f" ({', '.join(o.values)})" if o.values else ""
            as_list = (
                f", or type a list as {o.key}=[{','.join(o.values)}]"
                if o.values and o.key.split(".")[-1] in _LISTS
                else ""
            )
            raise RequestError(f"{o.key} has several values{values}; to run each of them, add -m{as_list}")


def resolved(written: Tree) -> Tree:
    """Return a configuration with its interpolations replaced by their values.

    OmegaConf takes 15 ms for a whole one, and most have a single interpolation, of an environment variable. So it gets
    the sections that have interpolations or missing values, and all if one of these refers to another key.
    """
    sections = {key: value for key, value in written.items() if _UNRESOLVED.search(str(value))}
    if _OF_KEYS.search(str(sections)):
        return plain(OmegaConf.create(written), resolve=True)
    return {**written, **plain(OmegaConf.create(sections), resolve=True)}


def stored(written: Tree, tree: Tree) -> Tree:
    """The configuration as files and trackers get it: text from environment variables, as tokens are, is unresolved.

    Args:
        written: The configuration with interpolations as they are written.
        tree: The same one, resolved.
    """

    def escaped(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: escaped(v) for k, v in value.items()}
        if isinstance(value, list):
            return [escaped(v) for v in value]
        return value.replace("${", r"\${") if isinstance(value, str) and "oc.env" in value else value

    def texts(here: Tree, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: texts(here[k], v) for k, v in value.items()}
        return here if isinstance(value, str | list) else value

    return texts(resolved(escaped(written)), tree) if "oc.env" in str(written) else tree


def plain(cfg: DictConfig, resolve: bool) -> Tree:
    """Return a composed configuration as dictionaries."""
    tree = OmegaConf.to_container(cfg, resolve=resolve, throw_on_missing=resolve)
    assert isinstance(tree, dict)
    return {str(k): v for k, v in tree.items()}


def _refuse_new_data_keys(overrides: Sequence[Override]) -> None:
    for o in overrides:
        if o.added and o.key.startswith("data.") and not o.key.startswith(_OPEN):
            raise RequestError(f"unknown key {o.key}; `fedbench --cfg job data=NAME` shows the keys of a data set")


def _departures(tree: Tree, baseline: Tree) -> dict[str, list[Any]]:
    """Return the keys whose values differ: [value of the baseline, value here]."""
    here, there = leaves(core(tree)), leaves(core(baseline))
    departures: dict[str, list[Any]] = {}
    for key in sorted(here.keys() | there.keys()):
        change = [there.get(key), here.get(key)]
        repeated = key.startswith("data.source.") and departures.get(key.replace("source.", "", 1)) == change
        if change[0] != change[1] and key.split(".")[0] not in WATCHING and not repeated:
            departures[key] = change
    return departures


def _names(choices: Mapping[str, str | None]) -> Choices:
    algo, data, model = (str(choices[group]) for group in ("algo", "data", "model"))
    return Choices(algo, data, model, choices.get("experiment"))

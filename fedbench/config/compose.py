"""From override texts to a typed configuration: Hydra composes the groups, keys and presets are set, the schema parses.

Hydra takes 0.1 s for a choice of config groups, and a plan has thousands of configurations. So the groups are composed
once per process, without the method, whose section is composed apart and merged in; keys are set on a copy.
"""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf, open_dict

from fedbench.config.groups import GROUPS, config_dir, options
from fedbench.config.hints import explain
from fedbench.config.identity import REPORTING_KEYS, setting
from fedbench.config.overrides import Override, parse_overrides, quoted
from fedbench.config.schema import TOP_KEYS, RunConfig, parse
from fedbench.core.errors import RequestError
from fedbench.core.files import Tree, leaves

_Choices = dict[str, str | None]  # config group -> choice
_LISTS = {"epochs", "keep_clients", "shape", "size", "classes", "mean", "std", "hidden", "channels"}  # take lists
# Hydra's own groups that say nothing of a run: without them Hydra composes in two thirds of the time
_HYDRAS = tuple(
    f"~hydra/{group}"
    for group in ("help", "hydra_help", "output", "launcher", "sweeper", "job_logging", "hydra_logging")
)
_NO_METHOD = "algo=_none"
_REFERENCE = re.compile(r"\$\{|\?\?\?")  # interpolations and missing values
_OPEN = ("data.source.", "data.partition.", "data.noise.")  # sections of data that take further keys
_LOCK = threading.RLock()  # Hydra's state is global: threads take turns
_composed: dict[tuple[str | None, ...], tuple[Tree, _Choices]] = {}  # of fedbench's own files


def compose_run(overrides: Sequence[str]) -> RunConfig:
    """The configuration that overrides make of fedbench's own config tree.

    Raises:
        RequestError: If a key is unknown or a value is out of range.
    """
    return Composer().config(overrides)


class Composer:
    """Composes configurations from fedbench's config tree and, if given, a directory of the user's own.

    Hydra's global state is the same after every call, also inside another program that uses Hydra.

    Args:
        own: A config tree in addition to fedbench's own. Its files are read once.
    """

    def __init__(self, own: Path | None = None) -> None:
        self.own = own
        self._composed: dict[tuple[str | None, ...], tuple[Tree, _Choices]] = {}
        self._baselines: dict[tuple[str, ...], Tree] = {}

    def config(self, texts: Sequence[str]) -> RunConfig:
        """The configuration that overrides make.

        Raises:
            RequestError: If a key is unknown or a value is out of range.
        """
        overrides = parse_overrides(texts)
        refuse_sweeps(overrides)
        for o in overrides:
            if o.key.startswith(("hydra.", "hydra/")):
                raise RequestError(
                    f"{o.text} configures sweeps, which -m makes; results_dir=DIR is where runs are written"
                )
        with self._explained(overrides):
            written, choices = self._written(overrides)
            tree = resolved(written)
        config = parse(tree, choices, [o.text for o in overrides])
        config = replace(config, stored_tree=stored(written, config.tree))
        if config.names.experiment is None:
            return config
        baseline = self._baseline(f"experiment={config.names.experiment}", f"algo={config.names.algo}")
        return replace(config, departures=_departures(baseline, setting(config.stored_tree)))

    def composed(self, texts: Sequence[str], resolve: bool = False) -> tuple[Tree, _Choices]:
        """The configuration with presets merged in, as it is written or with interpolations replaced by values.

        The second value is the choice of each config group, also of groups within groups such as ``data/partition``.

        Raises:
            RequestError: If a key or choice is unknown.
        """
        overrides = parse_overrides(texts)
        refuse_sweeps(overrides)
        with self._explained(overrides):
            tree, choices = self._written(overrides)
            return resolved(tree) if resolve else tree, choices

    def with_presets(self, texts: Sequence[str]) -> tuple[Tree, _Choices]:
        """As ``unresolved``, with the section ``presets`` as it is written instead of merged in."""
        return self._with_keys(parse_overrides(texts))

    def keys(self, overrides: Sequence[Override]) -> list[str]:
        """The keys of the configuration that the choices of groups among some overrides make."""
        chosen = [o.text for o in overrides if o.group and options(o.key) and not self._sets_key(o)]
        return list(leaves(self._by_hydra("config", [text for text in chosen if "@" not in text])[0]))

    def multirun(self, task: Callable[[Any], Any], texts: Sequence[str]) -> Any:
        """What Hydra's launcher makes of a sweep: batches of jobs, each with the value that the task returns.

        Raises:
            RequestError: If the launcher is refused.
        """
        typed = [*texts, *self.search_path(), "hydra.mode=MULTIRUN"]
        with self._explained([]), self.hydra() as hydra:
            return hydra.multirun(None, task, typed, with_log_configuration=False)

    @contextmanager
    def hydra(self) -> Iterator[Any]:
        """Hydra, initialised on the config tree inside this block."""
        from hydra import initialize_config_dir
        from hydra.core.global_hydra import GlobalHydra

        if self.own is not None:
            _refuse_hidden_files(self.own)
        with _LOCK, _hydra_put_back():
            GlobalHydra.instance().clear()
            with initialize_config_dir(str(config_dir()), "fedbench", version_base="1.3"):
                yield GlobalHydra.instance().hydra

    def search_path(self) -> list[str]:
        """The overrides that make Hydra look into the user's own directory too."""
        return [] if self.own is None else [f"hydra.searchpath=[{quoted(f'file://{self.own.resolve()}')}]"]

    def _baseline(self, *texts: str) -> Tree:
        """The dotted keys of an experiment with its settings for a method, which departures are counted from."""
        if texts not in self._baselines:
            written, choices = self._written(parse_overrides(texts))
            config = parse(resolved(written), choices)
            self._baselines[texts] = setting(stored(written, config.tree))
        return self._baselines[texts]

    def _written(self, overrides: Sequence[Override]) -> tuple[Tree, _Choices]:
        for o in overrides:
            if o.added and o.key.startswith("data.") and not o.key.startswith(_OPEN):
                raise RequestError(f"unknown key {o.key}; `fedbench --cfg job data=NAME` shows the keys of a data set")
        tree, choices = self._with_keys(overrides)
        return merge_presets(tree, str(choices["algo"]), {k for o in overrides for k in o.keys}), choices

    def _with_keys(self, overrides: Sequence[Override]) -> tuple[Tree, _Choices]:
        """The configuration that overrides make, as it is written, and the choices of the groups.

        Keys that exist are set here. Hydra adds keys, and says what is wrong with an override that cannot be set.
        """
        if any(o.added for o in overrides):
            return self._by_hydra("config", [o.text for o in overrides])
        keys = [o for o in overrides if self._sets_key(o)]
        tree, choices = self._of_groups([o.text for o in overrides if o not in keys])
        if all(_put(tree, o.key.split("."), o.value) for o in keys):
            return tree, choices
        return self._by_hydra("config", [o.text for o in overrides])

    def _sets_key(self, o: Override) -> bool:
        """Whether an override changes keys, and neither chooses from a group nor configures Hydra."""
        if o.added or "@" in o.text.partition("=")[0] or o.key.split(".")[0] == "hydra" or "/" in o.key:
            return False
        own_group = self.own is not None and (self.own / o.key).is_dir()
        return "." in o.key or isinstance(o.value, dict) or (o.key in TOP_KEYS - {*GROUPS} and not own_group)

    def _of_groups(self, texts: Sequence[str]) -> tuple[Tree, _Choices]:
        """The configuration of choices: all but the method's section, into which what other files set is merged."""
        methods = [text for text in texts if text.startswith("algo=")]
        if len(methods) != 1:
            return self._by_hydra("config", texts)
        method, chosen = self._by_hydra(None, [f"+{methods[0]}"])
        if set(method) != {"algo"} or not isinstance(method["algo"], dict):  # its file sets more than its section
            return self._by_hydra("config", texts)
        tree, choices = self._by_hydra("config", [_NO_METHOD if text in methods else text for text in texts])
        tree["algo"] = OmegaConf.to_container(OmegaConf.merge(method["algo"], tree["algo"]))
        return tree, choices | chosen

    def _by_hydra(self, name: str | None, texts: Sequence[str]) -> tuple[Tree, _Choices]:
        """What Hydra composes, without its own section, and the choice of each group."""
        from hydra import compose

        of_hydra = any("hydra" in text for text in texts)
        if self.own is not None and any(text.lstrip("+").startswith("hydra.searchpath") for text in texts):
            raise RequestError(f"hydra.searchpath cannot be combined with --config-dir {self.own}; remove one of them")
        cache = _composed if self.own is None and not of_hydra else self._composed
        if (name, *texts) not in cache:
            with self.hydra():
                unused = () if of_hydra else _HYDRAS
                cfg = compose(name, [*texts, *self.search_path(), *unused], return_hydra_config=True)
                choices = {group: c for group, c in cfg.hydra.runtime.choices.items() if not group.startswith("hydra/")}
                with open_dict(cfg):
                    del cfg["hydra"]
                cache[name, *texts] = _plain(cfg, resolve=False), choices
        tree, choices = cache[name, *texts]
        return copy.deepcopy(tree), dict(choices)

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


def _put(tree: Tree, path: Sequence[str], value: Any) -> bool:
    """Set a value at a path that exists, of a mapping the values in it; whether it does."""
    section: Any = tree
    for part in path[:-1]:
        section = section.get(part) if isinstance(section, dict) else None
    if not isinstance(section, dict) or path[-1] not in section:
        return False
    if isinstance(value, dict) and isinstance(section[path[-1]], dict):
        return all(_put(section[path[-1]], [str(key)], v) for key, v in value.items())
    section[path[-1]] = copy.deepcopy(value)
    return True


def merge_presets(tree: Tree, algo: str, given: set[str]) -> Tree:
    """The configuration with the experiment's settings for the chosen algorithm instead of its defaults.

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
    """Refuse config files of the user that would never be read, since fedbench has others under the same names."""
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
            is_list = o.values and o.key.split(".")[-1] in _LISTS
            as_list = f", or type a list as {o.key}=[{','.join(o.values)}]" if is_list else ""
            raise RequestError(f"{o.key} has several values{values}; to run each of them, add -m{as_list}")


def resolved(written: Tree) -> Tree:
    """A configuration with its interpolations replaced by their values.

    OmegaConf takes 15 ms for a whole one, so it gets the sections that have interpolations or missing values, and those
    that these may refer to.
    """
    found = {key for key, value in written.items() if _REFERENCE.search(str(value))}
    words = re.findall(r"\w+", " ".join(re.findall(r"\$\{[^}]*", str([written[key] for key in found]))))
    sections = {key: value for key, value in written.items() if key in found or key in words}
    return {**written, **_plain(OmegaConf.create(sections), resolve=True)}


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


def _departures(there: Tree, here: Tree) -> dict[str, list[Any]]:
    """The dotted keys whose values differ: [value there, value here]."""
    departures: dict[str, list[Any]] = {}
    for key in sorted(here.keys() | there.keys()):
        change = [there.get(key), here.get(key)]
        repeated = key.startswith("data.source.") and departures.get(key.replace("source.", "", 1)) == change
        if change[0] != change[1] and key.split(".")[0] not in REPORTING_KEYS and not repeated:
            departures[key] = change
    return departures


def _plain(cfg: Any, resolve: bool) -> Tree:
    """A configuration of OmegaConf's as dictionaries."""
    tree = OmegaConf.to_container(cfg, resolve=resolve, throw_on_missing=resolve)
    assert isinstance(tree, dict)
    return {str(k): v for k, v in tree.items()}

"""What config files of the user's directory may say to Hydra: which launcher or sweeper, and its limits and sizes.

Hydra executes what its own section names: callbacks, loggers, arguments of launchers, shell commands of batch jobs,
environment variables of jobs. A file that came from elsewhere sets none of that. What is typed on the command line is
the user's own.

Every configuration that Hydra composes passes here, in this process and in those of its launchers, before Hydra does
anything with it. It is compared with what the same choices give without the user's directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigSource
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from fedbench.config.names import within_fedbench
from fedbench.config.overrides import parse_overrides
from fedbench.config.user_code import TRUST, trusted_by_environment
from fedbench.core.errors import RequestError, shown
from fedbench.core.trees import Tree, leaves

# launchers and sweepers of Hydra -> their choice, which a file of the user's may stand upon under another name
_OFFICIAL = {
    "hydra._internal.core_plugins.basic_launcher.BasicLauncher": "basic",
    "hydra._internal.core_plugins.basic_sweeper.BasicSweeper": "basic",
    "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher": "joblib",
    "hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher": "submitit_local",
    "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher": "submitit_slurm",
    "hydra_plugins.hydra_optuna_sweeper.optuna_sweeper.OptunaSweeper": "optuna",
}
# keys that say how much and how long, and where in a cluster; none is a path, a command or a name of code
_SIZES = {
    "launcher": {
        "n_jobs", "prefer", "verbose", "batch_size", "timeout", "timeout_min", "cpus_per_task", "gpus_per_node",
        "tasks_per_node", "mem_gb", "nodes", "name", "stderr_to_stdout", "partition", "qos", "comment", "constraint",
        "exclude", "gres", "cpus_per_gpu", "gpus_per_task", "mem_per_gpu", "mem_per_cpu", "account", "signal_delay_s",
        "max_num_timeout", "array_parallelism",
    },
    "sweeper": {"max_batch_size", "n_trials", "n_jobs", "direction", "study_name", "sampler.seed"},
}  # fmt: skip
# what Hydra itself writes into its section
_OF_HYDRA = re.compile(
    r"hydra\.(runtime\.(version|version_base|cwd|config_sources|choices\..*)|job\.(override_dirname|config_name))"
)
_TYPED_LISTS = ("hydra.overrides.hydra", "hydra.overrides.task")
_WORD = re.compile(r"[\w .,:=@%+*/&|!-]{0,200}", re.ASCII)  # no line breaks: it may be written into a shell script
_CHOICE = re.compile(r"hydra/[\w/]+")
_Path: TypeAlias = tuple[Any, ...]  # of a key, from "hydra" on
_composed: dict[tuple[str | None, ...], dict[_Path, Any]] = {}  # search path, config and choices -> Hydra's section


class Door(ConfigLoader):
    """Hydra's loader of configurations, which refuses those in which files of the user's say too much to Hydra.

    Args:
        loader: The loader, on a search path without the user's directory, which overrides add.
    """

    def __init__(self, loader: ConfigLoader) -> None:
        self._loader = loader

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """Return the configuration that overrides make.

        Raises:
            RequestError: If a file sets a key of Hydra that it must not set.
        """
        found = self._loader.load_configuration(config_name, overrides, run_mode, from_shell, validate_sweep_overrides)
        self._refuse(found, overrides)
        return found

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """Return the configuration of a job.

        Raises:
            RequestError: If a file sets a key of Hydra that it must not set.
        """
        found = self._loader.load_sweep_config(master_config, sweep_overrides)
        self._refuse(found, [*master_config.hydra.overrides.hydra, *sweep_overrides])
        return found

    def get_search_path(self) -> ConfigSearchPath:
        """Return where config files are looked for."""
        return self._loader.get_search_path()

    def get_sources(self) -> list[ConfigSource]:
        """Return the directories and packages of config files."""
        return self._loader.get_sources()

    def list_groups(self, parent_name: str) -> list[str]:
        """Return the groups in a group."""
        return self._loader.list_groups(parent_name)

    def get_group_options(
        self,
        group_name: str,
        results_filter: ObjectType | None = ObjectType.CONFIG,
        config_name: str | None = None,
        overrides: list[str] | None = None,
    ) -> list[str]:
        """Return the choices of a group."""
        return self._loader.get_group_options(group_name, results_filter, config_name, overrides)

    def compute_defaults_list(self, config_name: str | None, overrides: list[str], run_mode: RunMode) -> Any:
        """Return the files that a configuration is made of."""
        return self._loader.compute_defaults_list(config_name, overrides, run_mode)

    def _refuse(self, config: DictConfig, overrides: Sequence[str]) -> None:
        """Refuse a configuration in which a file of the user's sets what it must not set.

        Args:
            config: The configuration.
            overrides: What is typed.
        """
        if not any(text.lstrip("+").startswith("hydra.searchpath") for text in overrides):
            return  # all files are fedbench's and Hydra's own
        section = _plain(config)
        without = self._without_files(config.hydra.job.config_name, section)
        typed = _typed(overrides)
        for path, value in _leaves(section):
            key = ".".join(map(str, path))
            if key in _TYPED_LISTS:
                allowed = set(value) <= set(overrides)
            else:
                allowed = (
                    (path in without and without[path] == value)
                    or _OF_HYDRA.fullmatch(key) is not None
                    or any(f"{key}.".startswith(f"{name}.") for name in typed)
                    or _is_size(path, value)
                    or _is_trusted(section, path, value)
                )
            if not allowed:
                raise _refusal(key, value)

    def _without_files(self, config_name: str | None, section: Tree) -> dict[_Path, Any]:
        """Return the values of Hydra's section that the same choices make without files of the user's."""
        choices = []
        for group, name in section["runtime"]["choices"].items():
            if not (_CHOICE.fullmatch(str(group)) and isinstance(name, str)):
                continue
            known = self._loader.get_group_options(group)
            if name not in known:
                target = (section.get(group.split("/")[1]) or {}).get("_target_") if group.count("/") == 1 else None
                name = _OFFICIAL.get(target, "") if isinstance(target, str) else ""
            if name in known:
                choices.append(f"{group}={name}")
        asked = (str(self._loader.get_search_path()), config_name, *choices)
        if asked not in _composed:
            found = self._loader.load_configuration(config_name, choices, RunMode.MULTIRUN)
            _composed[asked] = dict(_leaves(_plain(found)))
        return _composed[asked]


def _plain(config: DictConfig) -> Tree:
    """Return Hydra's section of a configuration, with interpolations as they are written."""
    section = OmegaConf.to_container(config.hydra, resolve=False)
    assert isinstance(section, dict)
    return {str(key): value for key, value in section.items()}


def _leaves(section: Mapping[Any, Any], path: _Path = ("hydra",)) -> Iterator[tuple[_Path, Any]]:
    """Yield the values of a section with their places; an empty section is a value too."""
    for key, value in section.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _typed(overrides: Sequence[str]) -> set[str]:
    """Return the keys of Hydra that are typed: ``hydra.launcher={n_jobs: 2}`` types hydra.launcher.n_jobs."""
    keys: set[str] = set()
    for o in parse_overrides(overrides):
        if o.key.startswith("hydra.") and not o.group:
            keys |= set(leaves(o.value, f"{o.key}.")) if isinstance(o.value, dict) else {o.key}
        if o.key == "hydra.job.env_copy" and isinstance(o.value, list):
            keys |= {f"hydra.job.env_set.{name}" for name in o.value}  # to which Hydra copies them
    return keys


def _is_size(path: _Path, value: object) -> bool:
    """Return whether a value is a number or a word for a key that takes sizes."""
    return ".".join(map(str, path[2:])) in _SIZES.get(path[1], ()) and _is_plain(value)


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, int | float) or (
        isinstance(value, str) and _WORD.fullmatch(value) is not None
    )  # fmt: skip


def _is_trusted(section: Tree, path: _Path, value: object) -> bool:
    """Return whether a value is a function that FEDBENCH_TRUST names, or a plain argument of one."""
    *sections, name = path[1:]
    found: Any = section
    for part in sections:
        found = found[part]
    target = found.get("_target_")
    if not isinstance(target, str) or "." not in target or "${" in target or within_fedbench(target):
        return False
    return trusted_by_environment(target.rpartition(".")[0]) and (name == "_target_" or _is_plain(value))


def _refusal(key: str, value: object) -> RequestError:
    given = f"{key}={shown(str(value))}"
    trust = ""
    if key.endswith("._target_") and isinstance(value, str) and "." in value and not within_fedbench(value):
        trust = f", or set {TRUST}={value.rpartition('.')[0]}"
    return RequestError(
        f"{given} is set by a config file of --config-dir or hydra.searchpath and is not executed: such a file may "
        "choose a launcher or sweeper of Hydra and set its numbers, and nothing else of Hydra. If you know what it "
        f"does, type {key}=... on the command line yourself{trust}"
    )

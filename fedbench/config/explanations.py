"""Explanations of Hydra and OmegaConf errors in the user's terms, with likely corrections."""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import yaml

from fedbench.config.overrides import ADDITIONS, CONFIG_DIR, GROUPS, options, unknown_choice
from fedbench.core.config_values import read_yaml
from fedbench.core.errors import RequestError, install_hint, reason_of

# Hydra's launchers that docs/cluster.md shows
_EXTRAS = {"joblib": "parallel", "submitit_local": "slurm"}
# the dotted keys of the configuration, and the choice in each config group
Known: TypeAlias = tuple[Sequence[str], Mapping[str, str | None]]
_MOST_CHOICES = 6  # maximum number of choices in a hint
# config groups whose choices have keys of their own
_WITH_CHOICES = ("algo", "data/partition", *ADDITIONS)
# names used by other libraries and papers, too different for a match by spelling
_SYNONYMS = {
    "learning_rate": "lr",
    "bs": "batch_size",
    "wd": "weight_decay",
    "method": "algo",
    "random_seed": "seed",
    "fraction": "participation",
}


def _nothing() -> Known:
    return (), {}


@contextmanager
def explained(known: Callable[[], Known] = _nothing) -> Iterator[None]:
    """Convert errors from Hydra, OmegaConf and config files in this block to a RequestError.

    Args:
        known: Function that returns the configuration's keys and choices.
    """
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(
            f"a config file or an interpolation cannot be read: {reason_of(error)}"
        ) from error
    except (HydraException, OmegaConfBaseException) as error:
        raise RequestError(_explanation(error, known)) from error


def _explanation(error: Exception, known: Callable[[], Known]) -> str:
    """Return the explanation of a Hydra or OmegaConf error on one line."""
    from hydra.errors import MissingConfigException
    from omegaconf.errors import InterpolationResolutionError, MissingMandatoryValue

    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        # experiments are in folders, other groups may contain nested groups
        file = str(error.missing_cfg_file)
        group, _, name = (
            file.partition("/") if file.startswith("experiment/") else file.rpartition("/")
        )
        if group == "hydra/launcher" and name in _EXTRAS:
            return f"{group}={name} is not installed; type {install_hint(_EXTRAS[name])}"
        choices = {choice for choice in error.options if not choice.startswith("_")}
        return str(unknown_choice(group, name, sorted(choices.union(options(group)))))
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} is required; type {error.full_key}=..."
    if isinstance(error, InterpolationResolutionError):
        return f"{error.full_key}: {str(error).splitlines()[0]}"

    message = " ".join(str(error).split("\nSee https")[0].split())
    if "hydra/launcher/submitit_" in message:  # a key from our SLURM presets
        return f"this launcher needs submitit; type {install_hint('slurm')}"
    overridden = re.search(r"Could not override '([^'@]*)", message)
    return _unknown_key(overridden[1], known) if overridden else message


def _unknown_key(key: str, config: Callable[[], Known]) -> str:
    """Return the message for a key that the configuration does not contain."""
    divides = f"this data set assigns examples to clients itself; remove {key}"
    if key == "data/partition":
        return divides
    known, choices = config()
    if key.startswith("data.partition.") and not any(
        other.startswith("data.partition.") for other in known
    ):
        return divides
    if any(other.startswith(f"{key}.") for other in known):
        return (
            f"{key}={{...}} sets a key that {key} does not have; "
            "`fedbench --cfg job` shows its keys"
        )
    section, _, leaf = key.rpartition(".")
    group = section.replace(".", "/")
    names = _choices_with(group, leaf) if group in _WITH_CHOICES else []
    if names:
        return (
            f"unknown key {key}: {group}={choices.get(group)} has no {leaf}; "
            f"choices with it: {', '.join(names)}"
        )
    hint = meant(key, known) or "; `fedbench --cfg job` shows the keys"
    if group in _WITH_CHOICES and choices.get(group) not in options(group):
        hint += f"; an argument of your own function needs a line in {group}/{choices[group]}.yaml"
    return f"unknown key {key}{hint}"


def meant(key: str, known: Sequence[str]) -> str:
    """Return ``'; did you mean X?'`` for an unknown key, or else an empty string.

    A key with the same last part is preferred (``lr``: local.lr), then keys of other choices
    (``mu``: algo.mu of fedprox), then the closest spelling.

    Args:
        key: The unknown key.
        known: The dotted keys of the configuration.
    """
    section, _, leaf = key.rpartition(".")
    leaf = _SYNONYMS.get(leaf, leaf)
    group = key.replace(".", "/") if section else leaf
    if options(group):
        return f"; did you mean {group}?"

    first_section = key.partition(".")[0]

    def distance(other: str) -> tuple[bool, int]:
        return other.partition(".")[0] != first_section, other.count(".")

    by_leaf = {name: name for name in GROUPS}
    for other in sorted(known, key=distance):
        if not other.startswith("presets."):
            by_leaf.setdefault(other.rpartition(".")[2], other)
    if leaf in by_leaf:
        return f"; did you mean {by_leaf[leaf]}?"
    similar = _of_other_choices(leaf, section)
    if not similar:
        nearest_leaves = difflib.get_close_matches(leaf, by_leaf, 1)
        similar = [by_leaf[name] for name in nearest_leaves]
    return f"; did you mean {' or '.join(similar)}?" if similar else ""


def _of_other_choices(leaf: str, section: str) -> list[str]:
    """Return the keys with this name in other choices of config groups, naming the choices."""
    keys = []
    for group in _WITH_CHOICES:
        prefix = group.replace("/", ".")
        if section and not f"{prefix}.".startswith(f"{section}."):
            continue
        names = _choices_with(group, leaf)
        if names:
            keys.append(f"{prefix}.{leaf} (with {group}={', '.join(names)})")
    return keys


def _choices_with(group: str, leaf: str) -> list[str]:
    """Return the choices in a config group that have a key, at most six, short names first."""
    names = []
    for name in options(group):
        file = read_yaml(CONFIG_DIR / group / f"{name}.yaml")
        if leaf in (file or {}):
            names.append(name)
    return sorted(names, key=len)[:_MOST_CHOICES]

"""What Hydra and OmegaConf object to, in one line, with what was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence

import yaml

from fedbench.config.groups import GROUPS, config_dir, options, unknown_choice
from fedbench.core.errors import RequestError, install_hint, nearest

# what other libraries and papers call a key
_SYNONYMS = {
    "learning_rate": "lr", "batch": "batch_size", "batchsize": "batch_size", "bs": "batch_size",
    "num_clients": "clients", "n_clients": "clients", "num_rounds": "rounds", "n_rounds": "rounds",
    "local_epochs": "epochs", "num_epochs": "epochs", "local_steps": "steps", "wd": "weight_decay",
    "algorithm": "algo", "method": "algo", "dataset": "data", "random_seed": "seed", "fraction": "participation",
}  # fmt: skip
_SHOWN = 4  # choices in a hint


def explain(error: Exception, known: Callable[[], list[str]]) -> Exception:
    """Return a ``RequestError`` for an error of Hydra's or OmegaConf's, and any other error as it is.

    Args:
        error: What was raised.
        known: Returns the dotted keys of the configuration; called only if a key is unknown.
    """
    from hydra.errors import HydraException, MissingConfigException
    from omegaconf.errors import InterpolationResolutionError, MissingMandatoryValue, OmegaConfBaseException

    if isinstance(error, yaml.YAMLError):
        return RequestError(f"a config file is not valid YAML: {' '.join(str(error).split())}")
    if not isinstance(error, HydraException | OmegaConfBaseException):
        return error
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        file = str(error.missing_cfg_file)  # experiments have folders, other groups have groups inside
        group, _, name = file.partition("/") if file.startswith("experiment/") else file.rpartition("/")
        choices = {choice for choice in error.options if not choice.startswith("_")}
        return unknown_choice(group, name, sorted({*choices, *options(group)}))
    if isinstance(error, MissingMandatoryValue):
        return RequestError(f"{error.full_key} is required; type {error.full_key}=...")
    text = str(error)
    if isinstance(error, InterpolationResolutionError):
        return RequestError(f"{error.full_key}: {text.splitlines()[0]}")
    if re.search(r"Could not load 'hydra/launcher/submitit_", text):
        return RequestError(f"this launcher needs submitit; type {install_hint('slurm')}")
    if re.search(r"Could not override 'data/partition(@[^']*)?'", text):
        return RequestError("this data set assigns examples to clients itself; remove data/partition")
    if found := re.search(r"Could not override '([^']*)'", text):
        key = found[1].split("@")[0]
        keys = known()
        if key.startswith("data.partition.") and not any(k.startswith("data.partition.") for k in keys):
            return RequestError(f"unknown key {key}; this data set assigns examples to clients itself")
        if key in GROUPS or any(k.startswith(f"{key}.") for k in keys):
            return RequestError(
                f"{key}={{...}} sets a key that {key} does not have; `fedbench --cfg job` shows its keys"
            )
        return RequestError(f"unknown key {key}{meant(key, keys) or '; `fedbench --cfg job` shows the keys'}")
    return RequestError(" ".join(text.split("\nSee https")[0].split()))


def meant(key: str, known: Sequence[str]) -> str:
    """Return ``'; did you mean X?'`` for an unknown key, or an empty string.

    A key with the same last part comes first (``lr``: local.lr), then keys of other choices (``mu``: algo.mu of
    fedprox), then the nearest spelling.

    Args:
        key: The unknown key.
        known: The dotted keys of the configuration.
    """
    section, _, leaf = key.rpartition(".")
    leaf = _SYNONYMS.get(leaf, leaf)
    group = leaf if not section else key.replace(".", "/")
    if options(group):
        return f"; did you mean {group}?"
    if found := _with_leaf(leaf, key, known):
        return f"; did you mean {' or '.join(found)}?"
    if others := _of_other_choices(leaf, section, known):
        if key in others:
            return f"; it is a key of {others[key]}"
        return f"; did you mean {' or '.join(f'{k} (with {choices})' for k, choices in others.items())}?"
    if not section and (hint := nearest(key, [*GROUPS, *known])):
        return hint
    close = difflib.get_close_matches(leaf, {k.rpartition(".")[2] for k in known}, n=1, cutoff=0.7)
    found = _with_leaf(close[0], key, known) if close else []
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _with_leaf(leaf: str, key: str, known: Sequence[str]) -> list[str]:
    """Return the keys with this last part that are nearest to the top, those of the same section first."""
    same = [k for k in known if k.rpartition(".")[2] == leaf and not k.startswith("presets.")]
    same = [k for k in same if k.split(".")[0] == key.split(".")[0]] or same
    top = min((k.count(".") for k in same), default=0)
    return [k for k in same if k.count(".") == top]


def _of_other_choices(leaf: str, section: str, known: Sequence[str]) -> dict[str, str]:
    """Return the keys that another algorithm or partition would have, each with the choices that have it.

    Keys of partitions count if the data set has one, or if the unknown key is one of ``data``.
    """
    found: dict[str, str] = {}
    for group, place in (("algo", "algo"), ("data/partition", "data.partition")):
        divided = group == "algo" or section or any(k.startswith(f"{place}.") for k in known)
        if section not in ("", place.split(".")[0], place) or not divided:
            continue
        files = [(name, config_dir() / group / f"{name}.yaml") for name in options(group)]
        names = [name for name, file in files if leaf in (yaml.safe_load(file.read_text(encoding="utf-8")) or {})]
        if names:
            shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
            found[f"{place}.{leaf}"] = f"{group}={shown}"
    return found
